"""Read priorities as one process of Trueup runs them: the observer, the decisions, and the writer of policies.

The admin API is silent, refuses, applies late or not at all; another client changes policies. What bookies and tiered
storage have of a ledger is derived from the world.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.simulation.instances import Leader
from tests.simulation.priority_checkers import VALUES, PriorityCheckers
from tests.simulation.pulsar import Brokers, owner_of
from tests.simulation.pulsar_session import PATHS, Session
from tests.simulation.store import FIELD, Policies, Raw, SimulatedStore
from trueup.connectors.pulsar.admin.client import BrokerAnswers, PolicyScope
from trueup.connectors.pulsar.admin.policies import OffloadPolicy
from trueup.connectors.pulsar.offload_verify import OffloadFacts
from trueup.state.common.errors import Refused, Retry, Stop, TrueupError, Unknown
from trueup.state.deletion.offloads import OffloadedCopy
from trueup.state.read_priority.copies import CopyCheck, CopyState, stored
from trueup.state.read_priority.lifecycle import Change
from trueup.state.read_priority.policies import BrokerFacts
from trueup.state.read_priority.settings import ReadPrioritySettings
from trueup.state.read_priority.tiers import ReadPriority
from trueup.state.read_priority.view import PriorityObservation
from trueup.streams.config.live import LiveSection
from trueup.streams.read_priority.copies import CopyChecker, LedgerToCheck
from trueup.streams.read_priority.executor import PolicyWriter
from trueup.streams.read_priority.observer import Observer
from trueup.streams.read_priority.reconciler import ReadPriorityReconciler

BROKER = ("http://b", (4, 2, 4))


class Admin:
    """The admin API: `connectors.pulsar.admin.client.PulsarAdmin` over the policies. Every write is checked."""

    def __init__(
        self,
        policies: Policies,
        brokers: Brokers,
        leader: Leader,
        chosen: LiveSection[ReadPrioritySettings],
        checkers: PriorityCheckers,
    ) -> None:
        self.policies, self.brokers_, self.leader, self.faults = policies, brokers, leader, leader.faults
        self.chosen, self.checkers = chosen, checkers

    @property
    def now_ms(self) -> int:
        return self.brokers_.world.now_ms

    def brokers(self) -> BrokerAnswers:
        self._fails(Retry, 0.05)
        priority = ReadPriority(VALUES[self.policies.broker_value])
        return BrokerAnswers((BrokerFacts(*BROKER, priority, -1),))

    def policy(self, scope: PolicyScope) -> OffloadPolicy:
        name = self._existing(scope)
        if self.faults.happens(0.02):
            self.policies.interfere(name)
        shown = self.policies.shown(name, self.now_ms)
        if self.checkers.look is not None:
            self.checkers.look.shown[name] = shown
        return OffloadPolicy(shown)

    def applied(self, scope: PolicyScope) -> OffloadPolicy:
        return OffloadPolicy(self.policies.merged(self._existing(scope), self.now_ms))

    def _existing(self, scope: PolicyScope) -> str:
        self._fails(Retry)
        if scope.local and owner_of(str(scope)) not in self.brokers_.nodes:
            raise Refused(f"topic {scope}", "HTTP 404", "create it")
        return str(scope)

    def set(self, scope: PolicyScope, policy: OffloadPolicy) -> None:
        self._write(self._existing(scope), policy.body())

    def remove(self, scope: PolicyScope) -> None:
        self._write(self._existing(scope), None)

    def unload(self, scope: PolicyScope) -> None:
        self._fails(Unknown)
        self.leader.act()
        self.checkers.unloading(str(scope), self.chosen.current)

    def _write(self, name: str, body: Raw | None) -> None:
        faults, stored, before = self.faults, self.policies.stored, self.policies.stored.get(name)
        self.leader.act()
        self.checkers.written(name, before, body, self.chosen.current)
        if faults.happens(0.05):
            raise Refused("the broker to store it", "HTTP 412", "try again")
        self.policies.replaced[name] = (before or {}).get(FIELD)
        lost = faults.answer_lost()
        if not lost or faults.happens(0.5):
            stored.pop(name, None)
            if body is not None:
                stored[name] = {field: value for field, value in body.items() if value is not None}
                if faults.happens(0.05):
                    stored[name].pop(FIELD, None)  # status 204, and no value stored
            self.checkers.ours(name, before, (body or {}).get(FIELD))
            if faults.happens(0.2):
                self.policies.delayed[name] = (self.now_ms + faults.rng.randint(1, 5_000), before)
            self.brokers_.world.note(f"the policy of {name} has {(stored.get(name) or {}).get(FIELD)}, by Trueup")
        faults.seam()
        if lost:
            raise Unknown("a response", "none", "observe")
        if faults.happens(0.05):
            self.policies.interfere(name)

    def _fails(self, kind: type[TrueupError], share: float = 0.02) -> None:
        self.faults.seam()
        if self.faults.happens(share):
            raise kind("a response", "none", "try again")


class SimulatedCopies:
    """The stores of `connectors.pulsar.offload_verify.Tiered`. ``hidden``: owners and ledgers of copies of which it
    showed nothing."""

    def __init__(self, brokers: Brokers, leader: Leader) -> None:
        self._bucket, self._leader = brokers.bucket, leader
        self.hidden: set[tuple[str, int]] = set()

    def store(self, _copy: OffloadedCopy) -> object:
        return SimulatedStore.place

    def read(self, _copy: OffloadedCopy) -> bool:
        return True

    def verify(self, copy: OffloadedCopy, facts: OffloadFacts) -> None:
        if self._leader.faults.happens(0.03):
            self.hidden.add((facts.owner, copy.pair.ledger))
            raise Retry("the store", "no response", "try again")
        objects = [self._bucket.objects.get(key) for key in (copy.pair.data_key, copy.pair.index_key)]
        if None in objects:
            raise Stop("both objects", "none", "it is kept")
        if not all(one and one.whole for one in objects):
            raise Stop("a whole copy", "a truncated one", "it is kept")


class CheckedCopies(CopyChecker):
    """The checks of copies, with the responses of bookies from the world instead of requests to them."""

    def __init__(self, brokers: Brokers, leader: Leader, checkers: PriorityCheckers) -> None:
        self._stores = SimulatedCopies(brokers, leader)
        super().__init__(None, self._stores, lambda: None, leader.clock)  # type: ignore[arg-type]
        self._brokers, self._faults, self._checkers = brokers, leader.faults, checkers
        self._silent: frozenset[str] = frozenset()

    def check(
        self, wanted: Sequence[LedgerToCheck], most: int, verify_bytes: int, first: Callable[[str], bool]
    ) -> None:
        self._faults.acting()
        self._stores.hidden = set()
        bookies = self._brokers.world.bookies.values()
        cut = self._faults.happens(0.05)
        self._silent = frozenset(b.id for b in bookies if b.state != "down" and (cut or self._faults.happens(0.03)))
        super().check(wanted, most, verify_bytes, first)
        if self._checkers.look is not None:
            for topic in dict.fromkeys(one.name for one in wanted):
                hidden = frozenset(number for owner, number in self._stores.hidden if owner == owner_of(topic))
                self._checkers.look.copies[topic] = self._checkers.copies(topic, self._silent, hidden)

    def _bookkeeper(self, chosen: Sequence[LedgerToCheck]) -> None:
        for one in chosen:
            state = self._state(one.info.ledger)
            self._known[one.key] = CopyCheck(state, "", self._clock()), self._known[one.key][1]

    def _state(self, number: int) -> CopyState:
        ledger = self._brokers.world.ledgers.get(number)
        if ledger is None:
            return CopyState.GONE
        if ledger.unreadable:
            return CopyState.UNKNOWN
        holders = {bookie for fragment in ledger.fragments for bookie in fragment.holders}
        answers = {bookie: self._answer(bookie, bookie in holders) for bookie in ledger.members}
        entries = None if ledger.fragments[-1].entries else 0
        return stored([fragment.bookies for fragment in ledger.fragments], ledger.quorum, answers, entries)

    def _answer(self, bookie: str, holds: bool) -> CopyState:
        if not self._brokers.world.up(bookie):
            return CopyState.DOWN
        return CopyState.UNKNOWN if bookie in self._silent else CopyState.WHOLE if holds else CopyState.GONE


class ReportedObserver:
    """The observer; the checkers learn what each of its passes sees."""

    def __init__(self, observer: Observer, checkers: PriorityCheckers, clock: Callable[[], int]) -> None:
        self._observer, self._checkers, self._clock = observer, checkers, clock

    def observe(
        self, settings: ReadPrioritySettings, kept: Iterable[str], hot: Callable[[str], bool]
    ) -> PriorityObservation:
        self._checkers.begin(self._clock())
        complete = False
        try:
            seen = self._observer.observe(settings, kept, hot)
            complete = True
        finally:
            self._checkers.end(complete)
        return seen


@dataclass
class PriorityParts:
    """The classes under test and their surroundings; tests of the simulation replace them by defective ones."""

    admin: type[Admin] = Admin
    observer: type[Observer] = Observer
    copies: type[CheckedCopies] = CheckedCopies
    writer: type[PolicyWriter] = PolicyWriter
    reconciler: type[ReadPriorityReconciler] = ReadPriorityReconciler


class Priorities:
    """Read priorities in one process, from its start to its crash."""

    def __init__(
        self,
        chosen: LiveSection[ReadPrioritySettings],
        leader: Leader,
        brokers: Brokers,
        policies: Policies,
        checkers: PriorityCheckers,
        parts: PriorityParts,
    ) -> None:
        self.chosen, self.brokers, self.checkers = chosen, brokers, checkers
        self.changes: list[Change] = []
        admin = parts.admin(policies, brokers, leader, chosen, checkers)
        session = Session(brokers, leader.faults)
        copies = parts.copies(brokers, leader, checkers)
        observer = parts.observer(admin, lambda: session, PATHS, copies, leader.clock)  # type: ignore[arg-type]
        self.reconciler = parts.reconciler(
            chosen,
            ReportedObserver(observer, checkers, leader.clock),
            lambda keep: parts.writer(admin, keep, leader.clock),
            leader.journal,
            self.changes.append,
        )

    def load(self) -> None:
        """Load what earlier processes remembered. Raises `TrueupError`."""
        self.reconciler.load()

    def step(self) -> None:
        """One pass. Raises `Crash`."""
        try:
            self.reconciler.reconcile()
        except TrueupError as error:
            self.brokers.world.note(f"read priorities failed: {error}")

    def approve(self, wanted: Callable[[Any], bool]) -> None:
        """An operator approves these of the changes that are due."""
        for change in filter(wanted, self.reconciler.decided.due):
            self.checkers.approved.add(f"{change.id}/")
            self.reconciler.approve([change.id])
