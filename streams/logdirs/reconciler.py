"""The log directories of one cluster: look at every broker, decide, do what may be done, and tell.

A turn begins anew from what the brokers say, so one that fails costs time only.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from trueup.connectors.kafka.logdirs.client import DescribedBroker, MoveOutcome, ReplicaLocation
from trueup.state.common.errors import Stop, TrueupError
from trueup.state.logdirs.decision import Decision, Ours, cordon_name, decide, followed_by, move_name
from trueup.state.logdirs.lifecycle import UNDER_WAY
from trueup.state.logdirs.model import Broker
from trueup.state.logdirs.settings import LogDirsSettings
from trueup.state.logdirs.snapshot import Copying, Directory, Observed, cordoned, observed
from trueup.streams.logdirs.executor import DirectoryBalancer, Say

Row = dict[str, Any]
RESTS_MS = 600_000
"""A broker that refused a cordon is not asked again for so long."""


class Client(Protocol):
    """One cluster's brokers. Calls raise our errors; see `connectors.kafka.logdirs.client.LogDirs`."""

    def brokers(self) -> dict[int, str]:
        """Rack of each that is registered."""

    def look(self, brokers: Iterable[int] | None = None) -> list[DescribedBroker]:
        """What they say."""

    def place(self, places: list[ReplicaLocation]) -> list[MoveOutcome]:
        """Order moves, or cancel them."""

    def throttle(self, broker: int, bytes_per_s: int | None) -> None:
        """Limit moves; None takes the limit away."""

    def throttled(self, brokers: Iterable[int]) -> dict[int, int]:
        """The limits that are set."""

    def cordon(self, broker: int, paths: list[str]) -> None:
        """Keep new partitions out of these directories alone."""

    def close(self) -> None:
        """Let go of connections."""

    def create_topic(self, name: str, assignments: Mapping[int, list[int]], configs: Mapping[str, str]) -> None:
        """Make a topic on chosen brokers."""


class Known(NamedTuple):
    """What is known of one broker. ``error`` says why it could not be looked at, or not changed."""

    observed: Observed | None
    decision: Decision | None
    ours: Ours
    error: str = ""

    @property
    def rule(self) -> str:
        """What is not as it should be; empty: nothing."""
        if self.decision is None:
            return "logdirs.unseen"
        return "logdirs.cannot-change" if self.error else self.decision.rule

    @property
    def reason(self) -> str:
        """The same in words."""
        return self.error or (self.decision.reason if self.decision else "not looked at since the start")


class Dirs:
    """One cluster. Its turns are made by one thread; what is known may be read, and approved, by others."""

    def __init__(
        self, name: str, policy: Callable[[], LogDirsSettings], leveller: DirectoryBalancer,
        connect: Callable[[], Client], clock: Callable[[], int], say: Say,
    ) -> None:  # fmt: skip
        self.name, self._policy, self.leveller, self._connect = name, policy, leveller, connect
        self._clock, self._say = clock, say
        self._client: Client | None = None
        self._approved: dict[int, frozenset[str]] = {}
        self._barred: dict[int, int] = {}
        self._lock = threading.Lock()
        self.known: Mapping[int, Known] = {}
        self.problem, self.at_ms = "", 0

    @property
    def policy(self) -> LogDirsSettings:
        """What is declared, as it is now."""
        return self._policy()

    @property
    def client(self) -> Client:
        """Connects at the first question. Raises our errors."""
        with self._lock:
            self._client = self._client or self._connect()
            return self._client

    def _part(self) -> None:
        """Let go of a connection that led nowhere; the next turn makes a new one."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def reconcile(self) -> None:
        """One pass over all brokers."""
        try:
            registered = self.client.brokers()
            seen = {one.id: one for one in self.client.look(registered)}
        except TrueupError as error:
            self.problem = str(error)
            self._part()
            return
        found = {}
        for broker in sorted({*seen, *self.leveller.ours}):
            one = seen.get(broker, DescribedBroker(broker, None, "it is not registered now"))
            found[broker] = self._one(one, self._clock())
        self.known, self.problem, self.at_ms = found, "", self._clock()

    def _one(self, one: DescribedBroker, now_ms: int) -> Known:
        """Look at one broker and do what may be done."""
        if one.broker is None:
            before = self.known.get(one.id)
            return Known(before.observed if before else None, None, self.leveller.of(one.id), one.error)
        with self._lock:
            said = self._approved.pop(one.id, frozenset())
        cordons = one.broker.cordons and now_ms >= self._barred.get(one.id, 0)
        ours = self.leveller.of(one.id)
        broker, ours = followed_by(ours._replace(approved=ours.approved | said), one.broker, now_ms)
        broker = replace(broker, cordons=cordons)
        seen, decision = observed(broker, now_ms), None
        try:
            decision, throttled = self._decided(broker, ours, now_ms)
            ours = ours._replace(approved=ours.approved & _names(decision))
            self.leveller.act(self.client, broker, ours, decision, throttled, now_ms)
        except TrueupError as error:
            self._failed(broker, error, decision, now_ms)
            return Known(seen, decision, self.leveller.of(one.id), str(error))
        return Known(cordoned(seen, decision.cordon), decision, self.leveller.of(one.id))

    def _decided(self, broker: Broker, ours: Ours, now_ms: int) -> tuple[Decision, int | None]:
        """The decision, and the limit that is set there, which is asked only where it matters."""
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
            self._barred[broker.id] = now_ms + RESTS_MS
        before = self.known.get(broker.id)
        if before is None or before.error != str(error):
            self._say(broker.id, "broker", "failed", "logdirs.cannot-change", str(error))

    def approve(self, names: Iterable[str]) -> None:
        """An operator's yes; heeded at the next turn."""
        chosen = set(names)
        with self._lock:
            for broker, known in self.known.items():
                if known.decision is not None and (mine := _names(known.decision) & chosen):
                    self._approved[broker] = self._approved.get(broker, frozenset()) | mine

    def left(self) -> list[str]:
        """What is ours on brokers that cannot be told now to take it back, and why they cannot."""
        found = []
        for broker, ours in sorted(dict(self.leveller.ours).items()):
            parts = (("a throttle", ours.throttles), ("cordons", ours.cordoned), ("moves", ours.moves))
            what = " and ".join(name for name, some in parts if some)
            known = self.known.get(broker)
            why = self.problem or (_hindrance(known, ours) if known else "it was not looked at since the start")
            if what and why:
                found.append(f"broker {broker} of {self.name} still has {what} of ours: {why}")
        return found

    def waits(self, broker: int, name: str) -> bool:
        """Whether this action waits for an operator."""
        known = self.known[broker]
        return self.policy.mode == "approve" and name not in known.ours.approved | self._approved.get(
            broker, frozenset()
        )


def observed_record(kafka: str, found: Observed) -> Row:
    """A broker as its topic holds it."""
    return {
        "kafka": kafka, **found._asdict(), "directories": [d._asdict() for d in found.directories],
        "copying": [c._asdict() for c in found.copying],
    }  # fmt: skip


def observed_of(record: Mapping[str, Any]) -> Observed:
    """What `observed_record` made."""
    values = {name: record[name] for name in Observed._fields}
    directories = tuple(Directory(**row) for row in record["directories"])
    return Observed(**{**values, "directories": directories, "copying": tuple(Copying(**r) for r in record["copying"])})


def _hindrance(known: Known, ours: Ours) -> str:
    """Why what is ours on a broker cannot be taken back now. A directory that is offline tells nothing of its moves,
    and their throttle stays as long."""
    stuck = known.rule == "logdirs.offline" and any(move.stage in UNDER_WAY for move in ours.moves)
    return known.error or (known.reason if stuck else "")


def _names(decision: Decision) -> frozenset[str]:
    moves = {move_name(decision.broker, move) for move in decision.moves}
    return frozenset({*moves, cordon_name(decision.broker, decision.steer)})
