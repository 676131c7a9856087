"""One link: the leases of its next round, and the results of the last round.

The streaming query requests the orders of a round and delivers the answers; operators and loops may change the link in
between. Positions are written to the journal before the next round. While the journal does not respond they are kept in
memory; after a crash a copier then needs more time to find its position at the target.
"""

import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol, Unpack

from trueup.connectors.contract import Assignment, Endpoint, LogId, Progress
from trueup.state.common.errors import Refused, Retry, TrueupError
from trueup.state.common.patterns import matches, regex_of
from trueup.state.replication.anomalies import single_records
from trueup.state.replication.leases import target_of
from trueup.state.replication.names import LinkNames
from trueup.state.replication.provenance import Refill
from trueup.state.replication.recovery import REFILL
from trueup.state.replication.settings import LinkSettings as Declared
from trueup.streams.config.live import Effective, LiveSection
from trueup.streams.journal.journal import Journal
from trueup.streams.replication.clusters import connector_of
from trueup.streams.replication.leases import Report, ReportMessage
from trueup.streams.replication.links.checkpoints import Copy, Unsaved
from trueup.streams.replication.links.first_offsets import FirstOffset, FirstOffsets, Starts
from trueup.streams.replication.links.orders import NO_REPORTING, LeaseRound, LinkOrders, Reporting
from trueup.streams.replication.links.snapshot import Changes, LinkFacts, LinkSnapshot, ends, ids, pairs
from trueup.streams.replication.links.worker import ALONE_S, LeaseOrder, LeaseResult

log = logging.getLogger(__name__)
BATCHES = "batches"
SAFE = frozenset({BATCHES})
"""Paths on which two concurrent copiers never duplicate a record."""
STOPPED_AGAIN_MS = 30_000
UNCOUNTED_AGAIN_MS = 120_000
LATE_MS = 5_000
COUNTED = (
    "copied",
    "bytes",
    "dropped",
    "skipped",
    "dismissed",
    "filtered",
    "lost",
    "repeated",
    "foreign",
    "foreign_tags",
)


class Note(Protocol):
    """Adds a row to the history. ``rule``: the rule that caused the row."""

    def __call__(self, link: str, kind: str, outcome: str, detail: str, rule: str = "", /) -> None:
        """Add the row."""


class Link:
    """Implements `streams.replication.query.Leasing`. Safe to use from several threads."""

    def __init__(
        self,
        name: str,
        live: Effective,
        journal: Journal,
        copies: dict[LogId, Copy],
        starts: Starts,
        counted: Callable[[Progress], None],
        clock: Callable[[], int],
        connectors: Callable[[str, str, str], str] = connector_of,
        reporting: Reporting = NO_REPORTING,
        unreadable: Mapping[LogId, str] = MappingProxyType({}),
    ) -> None:
        self.name, self._unreadable = name, unreadable
        self.copies = {source: copy for source, copy in copies.items() if not copy.waits}
        self._live, self._clock, self._counted, self._ended = live, clock, counted, reporting.ended
        silent_s = max(0.0, (clock() - reporting.silent_ms) / 1000)
        self._silent_s = time.monotonic() - silent_s if reporting.silent_ms else None
        self._policy = LiveSection.of(live, Declared, name)
        self._orders = LinkOrders(name, live, connectors, reporting)
        self._known_names: tuple[object, LinkNames] | None = None
        waiting = {
            copy.source: FirstOffset(copy.start, copy.source_id, copy.reset) for copy in copies.values() if copy.waits
        }
        self._first = FirstOffsets(starts, self.declared, bool(self.copies), waiting)
        self._unsaved = Unsaved(journal)
        self.snapshot, self._updating = LinkSnapshot(), threading.Lock()
        self.lock = threading.RLock()
        self._changed = threading.Event()
        self.path = next((copy.path for copy in copies.values() if copy.path), "")
        self.grown = threading.Event()  # set when progress is reported
        self.refilled = self._refilled()
        self.totals: Counter[str] = Counter()
        self.rounds, self.taken_ms, self._taken_s = 0, 0, 0.0
        self._term, self._number = "", 0
        self._held: list[LeaseOrder] = []
        self._leased: set[LogId] = set()  # the source partitions of the held orders
        self._taken: dict[int, tuple[str, int]] = {}  # attempt and last report, by part of the held orders
        self._dirty: set[LogId] = set()  # reported, but not in the journal yet
        self._ending = False
        self._closed: set[LogId] = set()  # the journal holds exactly what they copied on `Copy.path`

    def update(self, **changes: Unpack[Changes]) -> None:
        """Replace `snapshot` with one that has these changes."""
        with self._updating:
            self.snapshot = replace(self.snapshot, **changes)

    @property
    def problem(self) -> str:
        """Why positions are not in the journal; empty: they are."""
        return self._unsaved.problem

    @property
    def declared(self) -> Declared:
        """The current settings of the link."""
        return self._policy.current

    def now_ms(self) -> int:
        """The time, in ms since the epoch."""
        return self._clock()

    @property
    def leases(self) -> int:
        """Number of leases in progress; without one, nothing is written."""
        return len(self._held)

    def begin(self) -> None:
        """Begin a new term: copiers of earlier terms do not continue."""
        with self.lock:
            self._term, self._number = uuid.uuid4().hex, 0
            self._hold([])
            self._closed.clear()
        self._save(())

    def _hold(self, orders: list[LeaseOrder]) -> None:
        self._held, self._taken = orders, {}
        self._leased = {assignment.source for order in orders for assignment in order.lease.assignments}

    def wake(self) -> None:
        """End `rest`, because something changed."""
        with self.lock:
            for copy in self.copies.values():
                copy.again_ms = 0
        self._first.changed(self.declared, self.snapshot.facts)
        self._changed.set()

    def end(self) -> None:
        """Stop copying. Leases that see the stop file end at once, others at their regular end."""
        self._ending = True
        self._changed.set()

    def rest(self) -> None:
        """Wait for a change, for at most the duration of a lease."""
        if not self._ending:
            self._changed.wait(self.declared.lease_s)
            self._changed.clear()

    def orders(self) -> list[LeaseOrder]:
        """The leases of the next round; none if there is nothing to copy."""
        self._save(())
        while self.may_copy():
            targets = self.wanted()
            self._begin_new(targets)
            with self.lock:
                due = self._on_one_path({s: c for s in targets if (c := self.copies.get(s)) and self._due(c)})
                new = [copy for copy in due.values() if not copy.path]
                if not new:
                    return self._lease(due)
                for copy in new:
                    copy.meet(ids(copy, self.snapshot.facts))
                    copy.follow(self.path)
            self._store_path(new)
        return self._last_orders()

    def _store_path(self, copies: Sequence[Copy]) -> None:
        """Store the path and the topic ids of the first lease before it begins: after a crash, no other path recognises
        its records. Raises `Retry`."""
        try:
            self._save(copies, must=True)
        except Retry:
            with self.lock:
                for copy in copies:
                    copy.follow("")
            raise

    def _lease(self, due: Mapping[LogId, Copy]) -> list[LeaseOrder]:
        """Leases of these copies."""
        for copy in due.values():
            copy.set_back = False
            copy.meet(ids(copy, self.snapshot.facts))
        if not due:
            return self._last_orders()
        self._number += 1
        tasks = max(1, min(self.declared.tasks, self.snapshot.slots))
        this = LeaseRound(self.path, self._term, self._number, tasks, self._alone_s())
        self._hold(self._orders.of(this, [(copy, self.behind(copy)) for copy in due.values()]))
        self._closed -= {source for source, copy in due.items() if copy.path in ("", self.path)}
        return list(self._held)

    def _due(self, copy: Copy) -> bool:
        return copy.again_ms <= self._clock() and not copy.excluded

    def may_copy(self) -> bool:
        """Whether the link may write records now."""
        declared, seen = self.declared, self.snapshot
        stopped = declared.mode == "observe" or declared.paused or seen.blocked_reason or self._ending
        return not stopped and seen.choice is not None

    def _on_one_path(self, due: dict[LogId, Copy]) -> dict[LogId, Copy]:
        """Those of these copies that may get a lease now, all on `path`; none while leases must end first.

        A copy changes its path only if the journal holds exactly what it copied on the last one: a path does not
        recognise records of another path. Copies for which this is not known, such as after a crash or a pause, get a
        lease on their last path first, and the others wait for its end.
        """
        choice = self.snapshot.choice
        assert choice is not None
        if any(not order.last for order in self._held):
            left = {source for source in self._leased if self._unfinished(self.copies[source], choice.path)}
            if left - due.keys():  # otherwise the next leases would replace theirs, which would never be closed
                return {}
        unknown = {source: copy for source, copy in due.items() if self._unfinished(copy, choice.path)}
        if unknown:
            if any(not order.last for order in self._held) and not self._counting():
                return {}
            self.path = min(copy.path for copy in unknown.values())
            return {source: copy for source, copy in unknown.items() if copy.path == self.path}
        if self.path != choice.path:
            log.info("copy path chosen", extra={"link": self.name, "path": choice.path, "reason": choice.reason})
            self.path = choice.path
        return due

    def _unfinished(self, copy: Copy, path: str) -> bool:
        """Whether a copy must be closed on its own path before it continues on this one."""
        return copy.path not in ("", path) and copy.source not in self._closed and not self._refused(copy.path)

    def _counting(self) -> bool:
        """Whether a copier still counts records that a killed one wrote, so that its end would not be exact yet."""
        last = (self.copies[source].last for source in self._leased)
        return any(progress is not None and _uncounted(progress) and not progress.error for progress in last)

    def _refused(self, path: str) -> bool:
        """Whether a path refuses the settings of the link (`batches.copier`), so that no lease can end what it began.
        The next path starts at the positions in the journal, and what a killed copier wrote after them is written
        again."""
        declared = self.declared
        return path == BATCHES and bool(single_records(bool(declared.transform), declared.failures))

    def wanted(self) -> dict[LogId, LogId]:
        """The source partitions to copy now, with their target partitions."""
        declared, seen = self.declared, self.snapshot
        targets = dict[LogId, LogId]()
        for topic, target in self.called(seen.facts.source.topics).items():
            if not matches(declared.paused_topics, topic) and seen.hold(topic, target) is None:
                targets |= self.pairs(topic)
        return targets

    def pairs(self, topic: str) -> dict[LogId, LogId]:
        """The logs of a source topic and the target logs that they are copied to. Logs without a target are left
        out."""
        called, facts = self.target(topic), self.snapshot.facts
        with self.lock:
            former = {source: copy.target for source, copy in self.copies.items() if source.topic == topic}
        return pairs(facts.source.topics.get(topic, ()), called, facts.target.topics.get(called, ()), former)

    def place(self, source: LogId) -> LogId:
        """The target log of a source log; one of the same number, at an unknown place, if none exists yet."""
        return self.pairs(source.topic).get(source, LogId(self.target(source.topic), source.number))

    def called(self, names: Iterable[str]) -> dict[str, str]:
        """The source topics that belong to the link, with their names at the target."""
        return {name: self.target(name) for name in self.topics(names)}

    def target(self, topic: str) -> str:
        """The name of a source topic at the target."""
        declared = self.declared
        return target_of(topic, declared.rename, declared.into, declared.source)

    def topics(self, names: Iterable[str]) -> list[str]:
        """The source topics that belong to the link."""
        return self._names().copied(self.declared, names)

    def _names(self) -> LinkNames:
        """The names of all links, by the current settings."""
        settings, cached = self._live.now, self._known_names
        if cached is None or cached[0] is not settings:
            cached = self._known_names = settings, LinkNames(settings.table(Declared), settings.journal.prefix)
        return cached[1]

    def named(self) -> list[str]:
        """The source topics that are declared by their names, not by an expression."""
        return self.topics(name for name in self.declared.topics if regex_of(name) is None)

    def expected(self) -> set[str]:
        """The source topics that should exist: those declared by their names, and those that were copied."""
        with self.lock:
            return {*self.named(), *(copy.source.topic for copy in self.copies.values())}

    def _begin_new(self, targets: Mapping[LogId, LogId]) -> None:
        """Store the first offsets of new partitions before any of their records is copied."""
        with self.lock:
            for source, target in targets.items():
                current = self.copies.get(source)
                if current is not None and current.target != target:
                    current.moved(target)
            fresh = [source for source in targets if source not in self.copies]
            copied = list(self.copies)
        declared, facts = self.declared, self.snapshot.facts
        learned = self._first.learn(declared, facts, self.topics(facts.source.topics), copied)
        waiting = learned.keys() - targets.keys() - self._unreadable.keys()
        if waiting:
            self._save(Copy.waiting(source, *learned[source]) for source in sorted(waiting))
        if not fresh:
            return
        starts = self._first.of(declared, fresh)
        with self.lock:
            copies = [self._new(source, targets[source], starts[source], facts) for source in fresh if source in starts]
            self.copies.update({copy.source: copy for copy in copies})
        self._save([copy for copy in copies if not copy.excluded], must=True)

    def _new(self, source: LogId, target: LogId, start: int, facts: LinkFacts) -> Copy:
        """A copy without a position; one whose position is not readable is not new, and waits for a reset.

        It has the topic ids that were observed before its first offset was asked for: records of a topic that is
        recreated since, also before the first report, must not pass for those that the first lease wrote."""
        copy = Copy(source, target, start)
        copy.meet(ids(copy, facts))
        if problem := self._unreadable.get(source):
            copy.start, copy.placed = 0, False  # any earlier record may have been copied
            shown = f"`trueup describe link {self.name}` shows the ways out"
            copy.exclude(f"its position in the journal is not readable: {problem}; {shown}")
        return copy

    def _alone_s(self) -> float:
        """How long a copier of the last round may still copy without a lease, on paths where two may duplicate
        records."""
        # The clock of the machine may have been set since.
        own_s = max(0.0, ALONE_S - (time.monotonic() - self._taken_s)) if self.taken_ms else 0.0
        return 0.0 if self.path in SAFE else max(own_s, self._others_s())

    def _others_s(self) -> float:
        """How long a lease of a previous leader, which gave no sign of its end, may still copy."""
        if self._silent_s is None:
            return 0.0
        return max(0.0, self.declared.lease_s + ALONE_S - (time.monotonic() - self._silent_s))

    def endpoint(self, cluster: str) -> Endpoint:
        """The endpoint of a cluster."""
        return self._orders.endpoint(cluster)

    def _last_orders(self) -> list[LeaseOrder]:
        """Orders that end copiers which may still be copying, so that their progress is known exactly."""
        with self.lock:
            self._number += 1
            last = [self._closing(order) for order in self._held]
            self._hold(last if any(not order.last for order in self._held) else [])
            return list(self._held)

    def _closing(self, order: LeaseOrder) -> LeaseOrder:
        """The order that ends this one. It begins at the present positions: a copier in another process opens there,
        after the copier of this one has ended."""
        path, held = order.lease.path, order.lease.assignments
        with_copies = ((assignment, self.copies[assignment.source]) for assignment in held)
        now = tuple(e._replace(position=c.place(path)) if c.holds(e) and not c.set_back else e for e, c in with_copies)
        return order._replace(
            number=self._number, lease_s=0.0, last=True, alone_s=ALONE_S, lease=replace(order.lease, assignments=now)
        )

    def take(self, answers: Sequence[LeaseResult]) -> None:
        """Process the answers of the last round."""
        now_ms = self._clock()
        with self.lock:
            self.rounds, self.taken_ms, self._taken_s = self.rounds + 1, now_ms, time.monotonic()
            for order, answer in zip(self._held, answers, strict=True):
                for report in answer.reports:
                    self._report(order, report, now_ms)
                if answer.error is not None:
                    self._failed(order, answer.error, now_ms)
                    if not isinstance(answer.error, Retry):  # its remedy may be another path
                        self._closed |= {assignment.source for assignment in order.lease.assignments}
                elif order.last:
                    self._close(order, answer, now_ms)
            self._ended()
        self.grown.set()
        self._save(())

    def _close(self, order: LeaseOrder, answer: LeaseResult, now_ms: int) -> None:
        """Process the end of copiers. Only those that have counted all of their records at the target are exact."""
        self._closed |= {assignment.source for assignment in order.lease.assignments}
        choice = self.snapshot.choice
        for progress in {progress.source: progress for progress in answer.progress}.values():
            if _uncounted(progress):
                self._closed.discard(progress.source)
                copy = self.copies[progress.source]
                if progress.error and choice is not None and copy.path != choice.path:
                    # Its partition is away, and the others wait while it gets a lease on its path.
                    copy.again_ms = now_ms + UNCOUNTED_AGAIN_MS

    def receive(self, message: ReportMessage) -> None:
        """Process a report of a running lease. A report out of sequence is ignored; the answer contains it."""
        now_ms, taken = self._clock(), False
        with self.lock:
            for order in self._held:
                if (order.term, order.number, order.part) == (message.term, message.number, message.part):
                    self.taken_ms, self._taken_s = now_ms, time.monotonic()
                    taken = self._report(order, message.report, now_ms)
        if taken and message.report.progress:
            self.grown.set()

    def _report(self, order: LeaseOrder, report: Report, now_ms: int) -> bool:
        """Process a report if it is the next in sequence. Returns whether it was."""
        attempt, last = self._taken.get(order.part, ("", 0))
        if report.at != (last + 1 if report.attempt == attempt else 1):
            return False
        self._taken[order.part] = report.attempt, report.at
        held = {assignment.source: assignment for assignment in order.lease.assignments}
        for progress in report.progress:
            self._take(progress, held[progress.source], now_ms)
        return True

    def _take(self, progress: Progress, held: Assignment, now_ms: int) -> None:
        copy = self.copies[progress.source]
        if copy.holds(held):
            copy.take(progress, now_ms)
            copy.again_ms = now_ms + STOPPED_AGAIN_MS if progress.stopped else 0
            if progress.position.chosen:
                # Its target did not respond; without a delay, the others would get only leases without time to copy.
                copy.again_ms = max(copy.again_ms, now_ms + LATE_MS)
            self._dirty.add(progress.source)
        self.totals.update({name: getattr(progress, name) for name in COUNTED})
        self._counted(progress)

    def _failed(self, order: LeaseOrder, error: TrueupError, now_ms: int) -> None:
        stopped = not isinstance(error, Retry)
        for assignment in order.lease.assignments:
            copy = self.copies[assignment.source]
            if not copy.excluded:
                copy.error, copy.stopped = str(error), stopped
            copy.again_ms = now_ms + STOPPED_AGAIN_MS if stopped else 0
        log.warning("lease ended", extra={"link": self.name, "problem": str(error)})

    def _save(self, copies: Iterable[Copy], must: bool = False) -> None:
        """Write these copies, and those with new reports, to the journal."""
        now_ms = self._clock()
        with self.lock:
            reported = [self.copies[source] for source in self._dirty if source in self.copies]
            self._dirty = set()
            self._unsaved.add(record for copy in (*reported, *copies) for record in copy.records(self.name, now_ms))
        self._unsaved.put(must)

    def reset(self, offsets: Mapping[LogId, int], reason: str, gone: Collection[LogId] = ()) -> list[LogId]:
        """Set the copies of these partitions to source offsets, where the next lease continues. ``gone``: partitions
        that do not exist any more, whose copies are forgotten. Raises `Refused`."""
        with self.lock:
            unknown = sorted(str(source) for source in (*offsets, *gone) if source not in self.copies)
            if unknown:
                look = f"see `trueup describe link {self.name}`"
                raise Refused("partitions of the link", ", ".join(unknown), look)
            facts = self.snapshot.facts
            if problem := facts.source.problem or facts.target.problem:
                raise Refused("a response from both clusters", problem, "reset the link after both respond")
            self._forget(gone)
            anew = set[str]()
            for source, offset in offsets.items():
                copy, now = self.copies[source], ids(self.copies[source], facts)
                anew |= {source.topic} if now[0] != copy.source_id else set()
                copy.set(offset, reason, now, ends(copy, facts))
            # A recreated topic is compared from now on.
            self.update(compared=self.snapshot.compared - anew)
            # No copier of the present term may continue at its old position.
            self._term = uuid.uuid4().hex
            self.refilled = self._refilled()
            changed = [self.copies[source] for source in offsets]
        self._save(changed, must=True)
        self._changed.set()
        return sorted(offsets)

    def _forget(self, gone: Collection[LogId]) -> None:
        """Forget copies. Raises `Refused` if a lease of one is in progress."""
        self._idle(gone)
        self._unsaved.add(record for source in gone for record in self.copies[source].forgotten(self.name))
        self.copies = {source: copy for source, copy in self.copies.items() if source not in gone}
        self._dirty.difference_update(gone)
        self._closed.difference_update(gone)

    def _idle(self, sources: Iterable[LogId]) -> None:
        """Raise `Refused` if a lease of one of these is in progress."""
        if busy := sorted(str(source) for source in sources if self.leased(source)):
            raise Refused("partitions without a lease", ", ".join(busy), "repeat it after their leases have ended")

    def others(self, ids: Mapping[str, str]) -> set[str]:
        """The source topics whose ids are not those that were copied under these names. ``ids``: the present id of each
        topic."""
        with self.lock:
            copied = {(copy.source.topic, copy.source_id) for copy in self.copies.values() if copy.source_id}
        return {topic for topic, topic_id in copied if ids.get(topic) and ids[topic] != topic_id}

    def leased(self, source: LogId) -> bool:
        """Whether a lease of the partition is in progress."""
        return source in self._leased

    def anew(self, begins: Mapping[LogId, tuple[LogId, int, Refill | None]], reason: str) -> None:
        """Copy partitions from a source offset to targets that have none of their records. Raises `Refused` if a lease
        of one is in progress, `Retry` if the journal does not respond."""
        with self.lock:
            self._idle(begins)
            for source, (target, offset, refill) in begins.items():
                copy = self.copies.setdefault(source, Copy(source, target, offset))
                facts = self.snapshot.facts
                copy.anew(offset, reason, ids(copy, facts), refill, ends(copy, facts))
            self._term = uuid.uuid4().hex
            self.refilled = self._refilled()
            changed = [self.copies[source] for source in begins]
        self._save(changed, must=True)
        self._changed.set()

    def _refilled(self) -> frozenset[tuple[str, str]]:
        """The target topics that this link refilled, with their ids. A topic without an id may be another one since."""
        copies = (copy for copy in self.copies.values() if copy.reset == REFILL and copy.target_id)
        return frozenset((copy.target.topic, copy.target_id) for copy in copies)

    def current(self) -> list[Copy]:
        """The copies of topics that belong to the link, sorted."""
        with self.lock:
            mine = set(self.topics({source.topic for source in self.copies}))
            return [copy for source, copy in sorted(self.copies.items()) if source.topic in mine]

    def behind(self, copy: Copy) -> int:
        """Source offsets that are not copied yet, including gaps; -1: unknown. An upper bound after a crash, until the
        first lease: the last copier may have copied more than it reported."""
        facts = self.snapshot.facts
        end, _ = ends(copy, facts)
        # While a lease runs, the source grows, and the copied part of the growth is not known.
        running = self.may_copy() and self._clock() - copy.at_ms <= self.declared.lease_s * 1000 + LATE_MS
        if copy.last is not None and running and copy.last.source_end >= 0:
            # A report that is older than the observation, or of a task that could not read, does not hide its end.
            hides = facts.at_ms <= copy.at_ms and not copy.error
            end = copy.last.source_end if hides else max(end, copy.last.source_end)
        return max(0, end - copy.offset) if end >= 0 else -1


def _uncounted(progress: Progress) -> bool:
    """Whether the target may have records after the position, which path ``batches`` finds again and no other path
    does. One that an operator must repair may have to change its path for that."""
    return progress.path == BATCHES and progress.target_end < 0 and not progress.stopped
