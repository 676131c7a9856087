"""Reconciles the read priority of brokers: observes, decides, executes permitted changes, remembers.

Each pass decides from fresh observations, so a failed pass only causes a delay.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from trueup.state.common.errors import Retry
from trueup.state.read_priority.lifecycle import (
    NOTHING,
    Change,
    ChangeEvent,
    ChangeStage,
    PriorityState,
    Purpose,
    advance,
)
from trueup.state.read_priority.plan import PassResult, decide
from trueup.state.read_priority.settings import ReadPrioritySettings
from trueup.state.read_priority.view import PriorityObservation
from trueup.streams.config.live import LiveSection
from trueup.streams.journal.topic import Put
from trueup.streams.read_priority.executor import Keep, PolicyWriter
from trueup.streams.read_priority.topics import PRIORITIES, record_of

Say = Callable[[Change], None]
"""Receives each change whose stage changed."""
HOT = frozenset({"read_priority.would-stall", "read_priority.no-priority", "read_priority.switched"})
"""Rules of topics whose copies are checked in every pass."""


class PriorityJournal(Protocol):
    """See `streams.journal.journal.Journal`."""

    def put(self, records: Iterable[Put]) -> None:
        """Write records. Raises `Retry`."""

    def newest(self, what: str) -> Mapping[bytes, tuple[str, PriorityState]]:
        """The newest record of each key of a topic."""


class Observes(Protocol):
    """See `streams.read_priority.observer.Observer`."""

    def observe(
        self, settings: ReadPrioritySettings, kept: Iterable[str], hot: Callable[[str], bool]
    ) -> PriorityObservation:
        """One pass. Raises `Retry`."""


class ReadPriorityReconciler:
    """One thread reconciles; others may read ``seen`` and ``decided`` and approve changes. ``writer``: the function
    that creates the executor from the function that writes to the journal."""

    def __init__(
        self,
        policy: LiveSection[ReadPrioritySettings],
        observer: Observes,
        writer: Callable[[Keep], PolicyWriter],
        journal: PriorityJournal,
        say: Say,
    ) -> None:
        self._policy, self._observer, self._journal, self._say = policy, observer, journal, say
        self._writer = writer(self._keep)
        self._lock, self._approved = threading.Lock(), frozenset[str]()
        self._stored: dict[str, dict[str, object]] = {}
        self.kept: Mapping[str, PriorityState] = {}
        self.seen: PriorityObservation | None = None
        self.decided = PassResult((), (), {})
        self.problem = ""

    def load(self) -> None:
        """Load what earlier runs remembered."""
        records = self._journal.newest(PRIORITIES)
        self.kept = dict(records.values())
        self._stored = {target: record for target, kept in records.values() if (record := record_of(target, kept))}

    def reconcile(self) -> None:
        """One pass. A server that does not respond is reported; the next pass tries again."""
        try:
            self._pass(self._policy.current)
        except Retry as error:
            self.problem = str(error)

    def _pass(self, settings: ReadPrioritySettings) -> None:
        hot = {finding.target for finding in self.decided.findings if finding.rule in HOT}
        hot |= {name for name, kept in self.kept.items() if kept.switch or kept.change or kept.stalls}
        remembered = [name for name, state in self.kept.items() if not state.empty]
        seen = self._observer.observe(settings, remembered, hot.__contains__)
        decided = decide(seen, self.kept, settings)
        self._reached(self.kept, decided.kept)
        kept = dict(decided.kept)
        self._approve(decided, kept)
        self.kept = kept
        error: Retry | None = None
        for change in _permitted(decided, kept, settings):
            try:
                done = self._writer.execute(change, kept.get(change.target, NOTHING))
            except Retry as failed:
                error = failed
                break
            self.kept = kept = {**kept, change.target: done}  # also if a later one fails
            self._tell(done)
        self._store(kept)
        self.seen, self.decided, self.problem = seen, decided, str(error) if error else ""

    def _approve(self, decided: PassResult, kept: dict[str, PriorityState]) -> None:
        """Note the approvals of operators for changes that are still due."""
        with self._lock:
            approved, self._approved = self._approved, frozenset()
        for change in decided.due:
            if change.id in approved and change.stage is ChangeStage.PLANNED:
                kept[change.target] = kept.get(change.target, NOTHING)._replace(
                    change=advance(change, ChangeEvent.APPROVE, change.at_ms)
                )

    def _reached(self, before: Mapping[str, PriorityState], now: Mapping[str, PriorityState]) -> None:
        """Tell the changes that the observation ended."""
        for name, kept in now.items():
            if kept.change is not None and kept.change != before.get(name, NOTHING).change:
                self._tell(kept)

    def _tell(self, kept: PriorityState) -> None:
        if kept.change is not None:
            self._say(kept.change)

    def _keep(self, target: str, kept: PriorityState) -> None:
        """Write what is remembered of one target to the journal, if it changed. Raises `Retry`."""
        record = record_of(target, kept)
        if record != self._stored.get(target):
            self._journal.put([(PRIORITIES, target.encode(), record)])
            self._stored.pop(target, None)
            if record is not None:
                self._stored[target] = record

    def _store(self, kept: Mapping[str, PriorityState]) -> None:
        for target in {*self._stored, *kept}:
            self._keep(target, kept.get(target, NOTHING))

    def approve(self, ids: Iterable[str]) -> None:
        """Approve these changes. The next pass executes those that are still due."""
        with self._lock:
            self._approved |= frozenset(ids)

    def waits(self, change: Change) -> bool:
        """Whether a change waits for approval."""
        return (
            self._policy.current.mode == "approve"
            and change.stage is ChangeStage.PLANNED
            and (change.id not in self._approved)
        )


def _permitted(decided: PassResult, kept: Mapping[str, PriorityState], settings: ReadPrioritySettings) -> list[Change]:
    """The changes to execute in this pass. What a topic inherits must not change at the same time: topics wait until
    the change of their namespace is done."""
    if settings.mode == "observe":
        return []
    approved = {
        state.change.id for state in kept.values() if state.change and state.change.stage is ChangeStage.APPROVED
    }
    due = [
        change._replace(stage=ChangeStage.APPROVED) if change.id in approved else change
        for change in decided.due
        if settings.mode == "enforce" or change.id in approved
    ]
    moving = {name for name, state in kept.items() if state.change and state.change.stage is ChangeStage.ORDERED}
    moving |= {change.target for change in due}
    due = [change for change in due if _namespace(change.target) not in moving]
    return sorted(due, key=lambda change: (change.purpose is not Purpose.SWITCH, change.target))[: settings.at_once]


def _namespace(target: str) -> str:
    """The namespace of a topic; empty for a namespace."""
    tenant, namespace, *local = target.split("/", 2)
    return f"{tenant}/{namespace}" if local else ""
