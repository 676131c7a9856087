"""Reconciles the log directories of one cluster: observes every broker, decides, executes permitted changes, reports.

Each pass decides from fresh observations, so a failed pass only causes a delay.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple, Protocol

from trueup.connectors.kafka.logdirs.client import DescribedBroker
from trueup.state.common.errors import Stop, TrueupError
from trueup.state.logdirs.lifecycle import UNDER_WAY
from trueup.state.logdirs.model import Broker
from trueup.state.logdirs.settings import LogDirsSettings
from trueup.state.logdirs.snapshot import Copying, Directory, ObservedBroker, cordoned, observed
from trueup.state.logdirs.verdicts import Decision, OwnChanges, cordon_name, decide, followed_by, move_name
from trueup.streams.config.live import LiveSection
from trueup.streams.journal.topic import Record
from trueup.streams.logdirs.executor import BrokerRequests, DirectoryBalancer, Say
from trueup.streams.rows import Row

RESTS_MS = 600_000
"""Time until a cordon is retried on a broker that refused one."""


class Client(BrokerRequests, Protocol):
    """The brokers of one cluster. Calls raise a `TrueupError`; see `connectors.kafka.logdirs.client.LogDirsClient`."""

    def brokers(self) -> dict[int, str]:
        """Racks of the registered brokers."""

    def look(self, brokers: Iterable[int] | None = None) -> list[DescribedBroker]:
        """Describe these brokers, or all."""

    def throttled(self, brokers: Iterable[int]) -> dict[int, int]:
        """The rate limits of these brokers that are set."""

    def close(self) -> None:
        """Close all connections."""

    def create_topic(self, name: str, assignments: Mapping[int, list[int]], configs: Mapping[str, str]) -> None:
        """Create a topic with this assignment."""


class BrokerState(NamedTuple):
    """The state of one broker."""

    observed: ObservedBroker | None
    decision: Decision | None
    ours: OwnChanges
    error: str = ""
    """Why the broker could not be observed or changed; empty if it could."""

    @property
    def rule(self) -> str:
        """The rule that the broker violates; empty: none."""
        if self.decision is None:
            return "logdirs.unseen"
        return "logdirs.cannot-change" if self.error else self.decision.rule

    @property
    def reason(self) -> str:
        """The reason for the rule."""
        return self.error or (self.decision.reason if self.decision else "not observed since the start")


class LogDirsReconciler:
    """The reconciler of one cluster. One thread reconciles; others may read its state and approve actions."""

    def __init__(
        self,
        name: str,
        policy: LiveSection[LogDirsSettings],
        balancer: DirectoryBalancer,
        connect: Callable[[], Client],
        clock: Callable[[], int],
        say: Say,
    ) -> None:
        self.name, self._policy, self.balancer, self._connect = name, policy, balancer, connect
        self._clock, self._say = clock, say
        self._client: Client | None = None
        self._approved: dict[int, frozenset[str]] = {}
        self._no_cordons_until_ms: dict[int, int] = {}
        self._lock = threading.Lock()
        self.known: Mapping[int, BrokerState] = {}
        self.problem, self.at_ms = "", 0

    @property
    def policy(self) -> LogDirsSettings:
        """The current settings."""
        return self._policy.current

    @property
    def client(self) -> Client:
        """The client, connected on first use. Raises a `TrueupError`."""
        with self._lock:
            self._client = self._client or self._connect()
            return self._client

    def _part(self) -> None:
        """Close a client that failed; the next pass creates a new one."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def reconcile(self) -> None:
        """One pass over all brokers."""
        try:
            registered = self.client.brokers()
            seen = {response.id: response for response in self.client.look(registered)}
        except TrueupError as error:
            self.problem = str(error)
            self._part()
            return
        states = {}
        for broker in sorted({*seen, *self.balancer.ours}):
            described = seen.get(broker, DescribedBroker(broker, None, "it is not registered"))
            states[broker] = self._one(described, self._clock())
        self.known, self.problem, self.at_ms = states, "", self._clock()

    def _one(self, described: DescribedBroker, now_ms: int) -> BrokerState:
        """The state of one broker after this pass."""
        if described.broker is None:
            before = self.known.get(described.id)
            return BrokerState(
                before.observed if before else None, None, self.balancer.of(described.id), described.error
            )
        return self._unsettled(described.broker, now_ms) or self._settled(described.broker, now_ms)

    def _unsettled(self, broker: Broker, now_ms: int) -> BrokerState | None:
        """The state of a broker that does not show its changed settings yet; nothing is decided about it. None: it
        shows them."""
        try:
            if self.balancer.shows(self.client, broker, self._throttled, now_ms):
                return None
            before, error = self.known.get(broker.id), None
        except TrueupError as failure:
            self._failed(broker, failure, None, now_ms)
            before, error = None, str(failure)
        decision = before.decision if before else None
        why = before.error if before and decision else error or "it does not show its changed settings yet"
        return BrokerState(observed(broker, now_ms), decision, self.balancer.of(broker.id), why)

    def _settled(self, shown: Broker, now_ms: int) -> BrokerState:
        """Decide about one broker, and execute permitted changes."""
        with self._lock:
            approved = self._approved.get(shown.id, frozenset())
        cordons = shown.cordons and now_ms >= self._no_cordons_until_ms.get(shown.id, 0)
        ours = self.balancer.of(shown.id)
        broker, ours = followed_by(ours._replace(approved=ours.approved | approved), shown, now_ms)
        broker = replace(broker, cordons=cordons)
        seen, decision = observed(broker, now_ms), None
        try:
            decision, throttled = self._decided(broker, ours, now_ms)
            ours = ours._replace(approved=ours.approved & _names(decision))
            self.balancer.act(self.client, broker, ours, decision, throttled, now_ms)
        except TrueupError as error:
            self._failed(broker, error, decision, now_ms)
            self._handled(shown.id, self.balancer.of(shown.id).approved)
            return BrokerState(seen, decision, self.balancer.of(shown.id), str(error))
        self._handled(shown.id, approved)  # not before: the next pass executes what a failed one did not
        return BrokerState(cordoned(seen, decision.cordon), decision, self.balancer.of(shown.id))

    def _handled(self, broker: int, names: frozenset[str]) -> None:
        """Remove these names from the approvals that the next pass has to handle."""
        with self._lock:
            self._approved[broker] = self._approved.get(broker, frozenset()) - names

    def _decided(self, broker: Broker, ours: OwnChanges, now_ms: int) -> tuple[Decision, int | None]:
        """The decision, and the rate limit of the broker, which is queried only if it is needed."""
        throttled = self._throttled(broker.id) if ours.throttles else None
        decision = decide(broker, self.policy, ours, now_ms, throttled)
        if decision.throttle and throttled is None:
            throttled = self._throttled(broker.id)
            decision = decide(broker, self.policy, ours, now_ms, throttled)
        return decision, throttled

    def _throttled(self, broker: int) -> int:
        return self.client.throttled([broker]).get(broker, 0)

    def _failed(self, broker: Broker, error: TrueupError, decision: Decision | None, now_ms: int) -> None:
        if isinstance(error, Stop) and decision is not None and decision.cordon:
            self._no_cordons_until_ms[broker.id] = now_ms + RESTS_MS
        before = self.known.get(broker.id)
        if before is None or before.error != str(error):
            self._say(broker.id, "broker", "failed", "logdirs.cannot-change", str(error))

    def approve(self, names: Iterable[str]) -> None:
        """Approve these actions. The next pass executes them."""
        approved = set(names)
        with self._lock:
            for broker, state in self.known.items():
                if state.decision is not None and (mine := _names(state.decision) & approved):
                    self._approved[broker] = self._approved.get(broker, frozenset()) | mine

    def left(self) -> list[str]:
        """Changes of Trueup on brokers that cannot be reverted now, with the reason."""
        problems = []
        for broker, ours in sorted(dict(self.balancer.ours).items()):
            parts = (("a throttle", ours.throttles), ("cordons", ours.cordoned), ("moves", ours.moves))
            what = " and ".join(name for name, some in parts if some)
            state = self.known.get(broker)
            why = self.problem or (_blocked_reason(state, ours) if state else "it was not observed since the start")
            if what and why:
                problems.append(f"broker {broker} of {self.name} still has {what} of Trueup: {why}")
        return problems

    def waits(self, broker: int, name: str) -> bool:
        """Whether this action waits for approval."""
        state = self.known[broker]
        return self.policy.mode == "approve" and name not in state.ours.approved | self._approved.get(
            broker, frozenset()
        )


def observed_record(kafka: str, broker: ObservedBroker) -> Row:
    """An observation as a record of its topic."""
    return {
        "kafka": kafka,
        **broker._asdict(),
        "directories": [d._asdict() for d in broker.directories],
        "copying": [c._asdict() for c in broker.copying],
    }


def directories_of(record: Record) -> tuple[str, ObservedBroker]:
    """The inverse of `observed_record`: the cluster and the observation."""
    values = {name: record[name] for name in ObservedBroker._fields}
    directories = tuple(Directory(**row) for row in record["directories"])
    copying = tuple(Copying(**row) for row in record["copying"])
    return record["kafka"], ObservedBroker(**{**values, "directories": directories, "copying": copying})


def _blocked_reason(state: BrokerState, ours: OwnChanges) -> str:
    """Why the changes of Trueup on a broker cannot be reverted now. An offline directory does not report its moves,
    whose throttle remains until then."""
    stuck = state.rule == "logdirs.offline" and any(move.stage in UNDER_WAY for move in ours.moves)
    return state.error or (state.reason if stuck else "")


def _names(decision: Decision) -> frozenset[str]:
    moves = {move_name(decision.broker, move) for move in decision.moves}
    return frozenset({*moves, cordon_name(decision.broker, decision.steer)})
