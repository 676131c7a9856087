"""One link: which leases its next round has, and what became of those of the last.

The streaming query asks for the orders of a round and brings the answers; an operator or a loop may change anything
between. Positions go onto the journal before the next round; while it does not answer they wait, which costs nothing
but the time a copier needs to find its place at the target.
"""

import logging
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, Unpack

from trueup.connectors.contract import Assignment, Endpoint, LogId, Progress
from trueup.state.common.errors import Refused, Retry, TrueupError
from trueup.state.common.patterns import matches
from trueup.state.replication.leases import target_of, topics_of
from trueup.state.replication.provenance import Refill
from trueup.state.replication.settings import LinkSettings as Declared
from trueup.state.settings.settings import Settings
from trueup.streams.journal.journal import Journal
from trueup.streams.replication.checkpoints import Copy, Unsaved
from trueup.streams.replication.clusters import connector_of
from trueup.streams.replication.first_offsets import FirstOffsets, Starts
from trueup.streams.replication.orders import UNHEARD, LinkOrders, Reporting, Round
from trueup.streams.replication.reports import Heard, Report
from trueup.streams.replication.snapshot import Changes, LinkSnapshot, ids, pairs
from trueup.streams.replication.worker import ALONE_S, Answer, Order

log = logging.getLogger(__name__)
SAFE = frozenset({"batches"})
"""Paths on which a second copier never doubles a record."""
STOPPED_AGAIN_MS = 30_000
LATE_MS = 5_000
COUNTED = ("copied", "bytes", "dropped", "skipped", "dismissed", "filtered", "lost", "repeated", "foreign")


class Note(Protocol):
    """Puts something into the history. ``rule``: why it was done."""

    def __call__(self, link: str, kind: str, outcome: str, detail: str, rule: str = "", /) -> None:
        """Put it there."""


class Link:
    """Implements `streams.replication.query.Leasing`. Safe to use from several threads."""

    def __init__(
        self,
        name: str,
        settings: Callable[[], Settings],
        journal: Journal,
        copies: dict[LogId, Copy],
        starts: Starts,
        counted: Callable[[Progress], None],
        clock: Callable[[], int],
        connectors: Callable[[str, str, str], str] = connector_of,
        reporting: Reporting = UNHEARD,
    ) -> None:
        self.name, self.copies = name, copies
        self._settings, self._clock, self._counted, self._ended = settings, clock, counted, reporting.ended
        self._orders = LinkOrders(name, settings, connectors, reporting)
        self._first = FirstOffsets(starts, self.declared, bool(copies))
        self._unsaved = Unsaved(journal)
        self.snapshot, self._updating = LinkSnapshot(), threading.Lock()
        self.lock = threading.RLock()
        self._changed = threading.Event()
        self.path = next((copy.path for copy in copies.values() if copy.path), "")
        self.grown = threading.Event()  # more is known to be copied
        self.totals: Counter[str] = Counter()
        self.rounds, self.taken_ms = 0, 0
        self._term, self._number = "", 0
        self._held: list[Order] = []
        self._taken: dict[int, tuple[str, int]] = {}  # of the orders that are held: attempt and last report
        self._dirty: set[LogId] = set()  # what was reported since the journal was told
        self._ending = False
        self._exact = not self.path  # whether the journal knows all that was copied: no copier is open, none died

    def update(self, **changes: Unpack[Changes]) -> None:
        """Take what a loop found out: `snapshot` is another one from now on."""
        with self._updating:
            self.snapshot = replace(self.snapshot, **changes)

    @property
    def problem(self) -> str:
        """Why positions are not on the journal; empty: they are."""
        return self._unsaved.problem

    @property
    def declared(self) -> Declared:
        """The settings of the link as they are now."""
        return self._settings().links[self.name]

    def now_ms(self) -> int:
        """The time, in ms since the epoch."""
        return self._clock()

    @property
    def leases(self) -> int:
        """Leases that are held: while there are none, nothing is written."""
        return len(self._held)

    def begin(self) -> None:
        """A new term: no copier of an earlier one goes on."""
        with self.lock:
            self._term, self._number = uuid.uuid4().hex, 0
            self._hold([])
            self._exact = self._exact and not self.rounds
        self._save(())

    def _hold(self, orders: list[Order]) -> None:
        self._held, self._taken = orders, {}

    def wake(self) -> None:
        """Something changed: do not rest."""
        with self.lock:
            for copy in self.copies.values():
                copy.again_ms = 0
        self._first.changed(self.declared, self.snapshot.facts)
        self._changed.set()

    def end(self) -> None:
        """Copy nothing more; leases that can be told so end at once, others in their time."""
        self._ending = True
        self._changed.set()

    def rest(self) -> None:
        """Wait until there may be something to copy, or for a lease's time."""
        if not self._ending:
            self._changed.wait(self.declared.lease_s)
            self._changed.clear()

    def orders(self) -> list[Order]:
        """The leases of the next round; none when nothing is to be copied now."""
        self._save(())
        if not self.may_copy() or not self._take_path():
            return self._last_orders()
        wanted = self.wanted()
        self._begin_new(wanted)
        with self.lock:
            due = {s: c for s in wanted if (c := self.copies.get(s)) and self._due(c)}
            for copy in due.values():
                copy.set_back = False
                copy.meet(ids(copy, self.snapshot.facts))
            if not due:
                return self._last_orders()
            self._number += 1
            tasks = max(1, min(self.declared.tasks, self.snapshot.slots))
            this = Round(self.path, self._term, self._number, tasks, self._alone_s())
            self._hold(self._orders.of(this, [(copy, self.behind(copy)) for copy in due.values()]))
            self._exact = False
            return list(self._held)

    def _due(self, copy: Copy) -> bool:
        return copy.again_ms <= self._clock() and not copy.excluded

    def may_copy(self) -> bool:
        """Whether the link may write records now."""
        declared, seen = self.declared, self.snapshot
        stopped = declared.mode == "observe" or declared.paused or seen.blocked_reason or self._ending
        return not stopped and seen.choice is not None

    def _take_path(self) -> bool:
        """Whether leases may be given now. Another path is taken only when the journal knows exactly what the present
        one copied: neither recognises the other's records."""
        choice = self.snapshot.choice
        assert choice is not None
        if choice.path == self.path:
            return True
        if self._exact:
            log.info("path", extra={"link": self.name, "path": choice.path, "reason": choice.reason})
            self.path = choice.path
            return True
        return not self._held

    def wanted(self) -> dict[LogId, LogId]:
        """Every source partition that is to be copied now, with its place at the target if that exists."""
        declared, seen = self.declared, self.snapshot
        found = dict[LogId, LogId]()
        if seen.waiting is None:
            return found
        for topic, target in self.called(seen.facts.source.topics).items():
            if not matches(declared.paused_topics, topic) and target not in seen.waiting:
                found |= self.pairs(topic)
        return found

    def pairs(self, topic: str) -> dict[LogId, LogId]:
        """The logs of a topic of the source, as it was seen last, and where they go at the target, if they can."""
        called, facts = self.target(topic), self.snapshot.facts
        with self.lock:
            known = {source: copy.target for source, copy in self.copies.items() if source.topic == topic}
        return pairs(facts.source.topics.get(topic, ()), called, facts.target.topics.get(called, ()), known)

    def place(self, source: LogId) -> LogId:
        """Where a log goes at the target, or would, if that had a log of the same name."""
        like = LogId(self.target(source.topic), source.number, source.place)
        return self.pairs(source.topic).get(source, like)

    def called(self, names: Iterable[str]) -> dict[str, str]:
        """The source's topics that belong to the link, and what they are called at the target."""
        return {name: self.target(name) for name in self.topics(names)}

    def target(self, topic: str) -> str:
        """What a topic of the source is called at the target."""
        declared = self.declared
        return target_of(topic, declared.rename, declared.into, declared.source)

    def topics(self, names: Iterable[str]) -> list[str]:
        """Those of the source's topics that belong to the link."""
        declared = self.declared
        return topics_of(declared.topics, declared.exclude, names, self._settings().journal.prefix)

    def _begin_new(self, wanted: Mapping[LogId, LogId]) -> None:
        """Write down where partitions begin that were never copied, before anything of them is."""
        with self.lock:
            for source, target in wanted.items():
                known = self.copies.get(source)
                if known is not None and known.target != target:
                    known.moved(target)
            fresh = [source for source in wanted if source not in self.copies]
            copied = list(self.copies)
        declared, facts = self.declared, self.snapshot.facts
        self._first.learn(declared, facts, self.topics(facts.source.topics), copied)
        if not fresh:
            return
        starts = self._first.of(declared, fresh)
        with self.lock:
            made = [Copy(source, wanted[source], starts[source]) for source in fresh if source in starts]
            self.copies.update({copy.source: copy for copy in made})
        self._save(made, must=True)

    def _alone_s(self) -> float:
        """How long a copier of the last round may still copy without a lease, where two at once are one too many."""
        since_s = (self._clock() - self.taken_ms) / 1000
        return 0.0 if self.path in SAFE else min(ALONE_S, max(0.0, ALONE_S - since_s))

    def endpoint(self, cluster: str) -> Endpoint:
        """A cluster as one end of the link."""
        return self._orders.endpoint(cluster)

    def _last_orders(self) -> list[Order]:
        """Orders that end the copiers which may still tail, so that what they did is known exactly."""
        with self.lock:
            self._number += 1
            last = [order._replace(number=self._number, lease_s=0.0, last=True) for order in self._held]
            self._hold(last if any(not order.last for order in self._held) else [])
            return list(self._held)

    def take(self, answers: Sequence[Answer]) -> None:
        """What the tasks of the last round said."""
        now_ms = self._clock()
        with self.lock:
            self.rounds, self.taken_ms = self.rounds + 1, now_ms
            for order, answer in zip(self._held, answers, strict=True):
                for report in answer.reports:
                    self._report(order, report, now_ms)
                if answer.error is not None:
                    self._failed(order, answer.error, now_ms)
            self._ended()
            self._exact = all(order.last for order in self._held) and not any(a.error for a in answers)
        self.grown.set()
        self._save(())

    def hear(self, heard: Heard) -> None:
        """A report of a lease while it runs. One that does not follow on the last one waits for the result."""
        now_ms, taken = self._clock(), False
        with self.lock:
            for order in self._held:
                if (order.term, order.number, order.part) == (heard.term, heard.number, heard.part):
                    self.taken_ms = now_ms
                    taken = self._report(order, heard.report, now_ms)
        if taken and heard.report.progress:
            self.grown.set()

    def _report(self, order: Order, report: Report, now_ms: int) -> bool:
        """Take a report if it is the next one; whether it was."""
        attempt, last = self._taken.get(order.part, ("", 0))
        if report.at != (last + 1 if report.attempt == attempt else 1):
            return False
        self._taken[order.part] = report.attempt, report.at
        held = {each.source: each for each in order.lease.assignments}
        for progress in report.progress:
            self._take(progress, held[progress.source], now_ms)
        return True

    def _take(self, progress: Progress, held: Assignment, now_ms: int) -> None:
        copy = self.copies[progress.source]
        if copy.holds(held):
            copy.take(progress, now_ms)
            copy.again_ms = now_ms + STOPPED_AGAIN_MS if progress.stopped else 0
            if progress.position.chosen:
                # Its target did not answer: the others are not to get lease after lease without any time to copy.
                copy.again_ms = max(copy.again_ms, now_ms + LATE_MS)
            self._dirty.add(progress.source)
        self.totals.update({name: getattr(progress, name) for name in COUNTED})
        self._counted(progress)

    def _failed(self, order: Order, error: TrueupError, now_ms: int) -> None:
        stopped = not isinstance(error, Retry)
        for assignment in order.lease.assignments:
            copy = self.copies[assignment.source]
            copy.error, copy.stopped = str(error), stopped
            copy.again_ms = now_ms + STOPPED_AGAIN_MS if stopped else 0
        log.warning("lease ended", extra={"link": self.name, "problem": str(error)})

    def _save(self, copies: Iterable[Copy], must: bool = False) -> None:
        """Put these copies, and those that were reported since, onto the journal."""
        now_ms = self._clock()
        with self.lock:
            reported = [self.copies[source] for source in self._dirty if source in self.copies]
            self._dirty = set()
            self._unsaved.add(record for copy in (*reported, *copies) for record in copy.records(self.name, now_ms))
        self._unsaved.put(must)

    def reset(self, offsets: Mapping[LogId, int], said: str) -> list[LogId]:
        """Set the copies of these partitions to source offsets; the next lease begins there. Raises `Refused`."""
        with self.lock:
            strange = sorted(str(source) for source in offsets if source not in self.copies)
            if strange:
                look = f"look at `trueup describe link {self.name}`"
                raise Refused("partitions of the link", ", ".join(strange), look)
            facts = self.snapshot.facts
            if problem := facts.source.problem or facts.target.problem:
                raise Refused("both clusters to answer", problem, "reset the link when they do")
            for source, offset in offsets.items():
                copy = self.copies[source]
                copy.set(offset, said, ids(copy, facts), facts.target.logs.get(copy.target, (-1, -1))[1])
            # No copier of the present term may go on where it stands.
            self._term = uuid.uuid4().hex
            changed = [self.copies[source] for source in offsets]
        self._save(changed, must=True)
        self._changed.set()
        return sorted(offsets)

    def others(self, ids: Mapping[str, str]) -> set[str]:
        """Of topics of the source, by their ids, those that are not the ones that were copied under these names."""
        with self.lock:
            known = {(copy.source.topic, copy.source_id) for copy in self.copies.values() if copy.source_id}
        return {topic for topic, wanted in known if ids.get(topic) and ids[topic] != wanted}

    def leased(self, source: LogId) -> bool:
        """Whether a copier may be at work on the partition."""
        with self.lock:
            return any(source == each.source for order in self._held for each in order.lease.assignments)

    def anew(self, begins: Mapping[LogId, tuple[LogId, int, Refill | None]], said: str) -> None:
        """Copy partitions from a source offset on into targets that have nothing of them. Raises `Refused` for one that
        a copier is at work on, `Retry` when the journal does not answer."""
        with self.lock:
            busy = sorted(str(source) for source in begins if self.leased(source))
            if busy:
                raise Refused("partitions without a lease", ", ".join(busy), "repeat it when their leases have ended")
            for source, (target, offset, refill) in begins.items():
                copy = self.copies.setdefault(source, Copy(source, target, offset))
                copy.anew(offset, said, ids(copy, self.snapshot.facts), refill)
            self._term = uuid.uuid4().hex
            changed = [self.copies[source] for source in begins]
        self._save(changed, must=True)
        self._changed.set()

    def current(self) -> list[Copy]:
        """The copies of topics that still belong to the link, in order."""
        with self.lock:
            mine = set(self.topics({source.topic for source in self.copies}))
            return [copy for source, copy in sorted(self.copies.items()) if source.topic in mine]

    def behind(self, copy: Copy) -> int:
        """Records of the source that are not copied yet, -1 when nobody knows: offsets, so gaps count too. After a
        crash it is at most so many until the first lease: the last copier may have copied more than it could tell."""
        seen = self.snapshot.facts.source.logs.get(copy.source, (-1, -1))[1]
        # While a lease runs the source has grown, and nobody knows how much of that was copied already.
        running = self.may_copy() and self._clock() - copy.at_ms <= self.declared.lease_s * 1000 + LATE_MS
        told = copy.last.source_end if copy.last is not None and running else -1
        end = told if told >= 0 else seen
        return max(0, end - copy.offset) if end >= 0 else -1
