"""The copy of one partition as a state machine without I/O: batches of the source in, batches for the target out.

Sequence numbers are counts: the sequence number of a batch is the number of records written before it under its
producer id, so that gaps in the source cause no gaps, and the target refuses any batch out of order. Progress follows
the order of the source: the position passes a batch once all batches before it are acknowledged, dropped or found.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from trueup.connectors.contract import Assignment, Lease, Progress, Run
from trueup.connectors.kafka.client.fetch_produce import Fetched, other_records
from trueup.connectors.kafka.client.topic_ids import id_of
from trueup.connectors.kafka.protocol.aborted import Aborted
from trueup.connectors.kafka.protocol.record_batch import (
    APPEND_TIME,
    CODEC,
    CONTROL,
    BatchHeader,
    readdress,
    sound,
    walk,
)
from trueup.connectors.kafka.protocol.reencode import dense, marks
from trueup.connectors.kafka.replication.batches.loop_filter import LoopFilter
from trueup.connectors.kafka.replication.batches.position import BatchPosition, ahead, following
from trueup.connectors.kafka.replication.batches.resume import CopiedBatch, ResumePoint, ours
from trueup.connectors.kafka.replication.batches.stored import UncountedRecords
from trueup.state.common.counts import many
from trueup.state.common.errors import Retry, Stop

_SEQUENCES = 0x7FFFFFFF
_REREADS = 3


class SentBatch:
    """A batch in flight, or one that the target has. ``count``: next sequence number of its producer after it;
    ``following``: source offset after it and after everything that was skipped behind it; ``removed``: number of
    offsets before that without a record, which uncounted records at the target may have; ``epoch``: leader epoch of the
    records before ``following``."""

    __slots__ = (
        "batch",
        "count",
        "done",
        "dropped",
        "epoch",
        "first_ms",
        "following",
        "found",
        "producer",
        "records",
        "removed",
        "size",
        "skipped",
        "source",
        "stretches",
        "target",
    )

    def __init__(self, header: BatchHeader, batch: memoryview, stretches: list[tuple[int, int]] | None) -> None:
        self.source, self.following, self.records = header.offset, header.following, header.records
        self.first_ms, self.size, self.batch, self.stretches = header.first_ms, len(batch), batch, stretches
        self.producer = self.count = self.dropped = self.removed = 0
        self.target, self.done, self.skipped, self.epoch = -1, False, False, header.leader_epoch
        self.found: list[Run] = []

    def runs(self) -> list[Run]:
        """The known target offsets of its records. ``found``: the offsets of records that were there before."""
        if self.target < 0:
            return self.found
        if self.stretches is None:
            return [Run(self.source, self.target, self.records)]
        runs, at = [*self.found], self.target
        for delta, records in self.stretches:
            runs.append(Run(self.source + delta, at, records))
            at += records
        return runs


class Differs(Retry):
    """The target has other batches than the source: their records are compared one by one."""


class PartitionStatus(NamedTuple):
    """An error to report, and whether an operator must act."""

    error: str
    stopped: bool


class Track:
    """The copy of one source partition to its target partition."""

    def __init__(self, assignment: Assignment, lease: Lease) -> None:
        self.source, self.target = assignment.source, assignment.target
        self.source_id, self.target_id = id_of(assignment.source_id), id_of(assignment.target_id)
        self.place = BatchPosition.of(assignment.position, assignment.start)
        self.begun = assignment.position.offset >= 0
        self.reached, self.epoch = self.place.offset, self.place.epoch
        self.queue: deque[SentBatch] = deque()
        self.queued = self.flying = 0
        self.source_start = self.source_end = self.target_end = -1
        self._where = f"{self.source} of {lease.source.name}"
        self._writer_id, self._route = lease.writer_id, LoopFilter(assignment, lease)
        self._counts = dict(self.place.counts)
        self._known: set[int] = set()
        self._alone = self._whole = False
        self._pending: deque[SentBatch] = deque()
        self._last: dict[int, int] = {}
        self._own: dict[int, deque[CopiedBatch]] = {}
        self._stored: dict[int, UncountedRecords] = {}
        self.by_record = self._cut = self._fetched = False
        self._reported = assignment.position
        self._removed = self._passed = 0
        self._floor, self._seen = self.place.floor, -1
        self._newest_ms = -1
        self._bad = 0
        self._runs: list[Run] = []
        self._copied = self._bytes = self._dropped = self._skipped = self._foreign = self.lost = 0

    @property
    def idle(self) -> bool:
        """Whether nothing is in flight, and everything that is known to be at the target is counted."""
        return not self._pending and self._counted

    @property
    def _counted(self) -> bool:
        return not self.place.ahead(self._last)

    @property
    def _settled(self) -> bool:
        """Whether everything at the target is counted, except what the source does not have any more."""
        return self._counted or (self._fetched and self._at_end)

    @property
    def _at_end(self) -> bool:
        return 0 <= self.source_end <= self.place.offset

    @property
    def _mixed(self) -> bool:
        """Whether records at the target that are not counted may be before others that are."""
        return bool(self._stored) or min(self._uncounted(), default=self.target_end) < self.target_end

    @property
    def seen(self) -> int:
        """The target offset before which everything of this copy is counted; -1: unknown."""
        return max(self.place.floor, self._seen)

    def rewind(self, resume_point: ResumePoint) -> None:
        """Restart at the position, with the given state of the target."""
        self.queue.clear()
        self._pending.clear()
        self.queued = 0
        self.reached, self.epoch, self._counts = self.place.offset, self.place.epoch, dict(self.place.counts)
        self._last, self._own, self._floor = dict(resume_point.last), resume_point.own, resume_point.floor
        self._seen, self._fetched = -1, False
        self._known, self._alone, self._whole = set(resume_point.known), False, resume_point.whole
        self.place.chosen = False
        self._stored, self._cut, self._removed = resume_point.records, resume_point.cut, self._passed
        self.by_record = bool(self._stored)
        if self.by_record:
            self._own, self.target_end = {}, max(self.target_end, resume_point.floor)
        if self.target_end < 0:
            self.target_end = resume_point.counted if resume_point.counted >= 0 else resume_point.floor
        self._lift()

    def accept(self, answer: Fetched, asked: int) -> None:
        """Process the response to a fetch from offset ``asked``. Raises `Retry` for bytes damaged in transfer, `Stop`
        and `BadBytes` for records that cannot be copied; earlier records are kept."""
        self.source_start, self.source_end = answer.start, answer.end
        if asked != self.reached:
            return
        if answer.differs_from >= 0:
            raise other_records(self._where, asked, answer.differs_from)
        self._fetched = True
        aborted = Aborted(answer.aborted)
        for header, batch in walk(answer.records):
            if header.following > self.reached:
                self._check(header, batch)
                self.epoch = header.leader_epoch
                self._removed += max(0, header.offset - self.reached) + header.last_delta + 1 - header.records
                self._take(header, batch, aborted)
                self.reached = header.following
        if answer.records and self.reached == asked:
            raise self._bad_read(f"records of {self._where} from offset {asked} on", "earlier ones")

    @property
    def ready(self) -> bool:
        """Whether the next batch may be sent now.

        A broker accepts any sequence number of an unknown producer. Therefore the first batch of each is sent alone: if
        it were refused while others were in flight, the next one would be accepted in its place.
        """
        if self._alone or not self.queue:
            return False
        return not self.flying or self.queue[0].producer in self._known

    def next(self) -> SentBatch:
        """The next batch to send; only if `ready`."""
        entry = self.queue.popleft()
        self._alone = entry.producer not in self._known
        self.queued -= entry.size
        self.flying += 1
        return entry

    def acknowledge(self, entry: SentBatch, offset: int) -> None:
        """Record that the target has the batch from ``offset`` on."""
        entry.target, entry.done = offset, True
        self._known.add(entry.producer)
        self._alone = False
        self._settle()

    def halt(self) -> None:
        """Stop sending: the target refused a batch permanently."""
        self.queue.clear()
        self.queued = 0

    def drained(self, end: int, last: Mapping[int, int]) -> bool:
        """Process the target's end and this link's last sequence numbers there, while nothing is in flight. Returns
        whether the records from `seen` on must be read as well, because the leader forgot a producer of the position.
        If the position has no producer, the leader is trusted: most idle links never copied anything, and would read
        all records of others."""
        if not self.place.agrees(last):
            return False
        if self.place.counts.keys() <= last.keys():
            self._raise_end(end)
            self.place.floor = self.target_end = end
            return False
        if not self._at_end:
            return False
        self._raise_end(self.seen)
        return 0 <= self.seen < end

    def look(self, records: memoryview) -> bool:
        """Process records of the target from `seen` on, while nothing is in flight. Returns whether there are any.
        Raises `Retry` if one is of this copy and is not counted: another copier wrote it."""
        at, whole = self.seen, True
        for header, _ in walk(records):
            if header.following <= at:
                continue
            count = self.place.counts.get(header.producer_id, 0)
            if ours(header.producer_id, self._writer_id) and ahead(following(header.last_sequence), count) > 0:
                found = f"records up to {header.last_sequence} at offset {header.offset} of {self.target}"
                raise Retry(
                    f"{many(count, 'record')} of producer {header.producer_id:#x}", found, "the position is read again"
                )
            at, whole = header.following, whole and header.offset <= at
        return self.look_from(at, whole)

    def look_from(self, at: int, whole: bool = False) -> bool:
        """Record that everything of this copy before target offset ``at`` is counted. Not ``whole``: some records are
        removed. The floor stays behind these: a search from there on must not take them for batches never written."""
        if at <= self.seen:
            return False
        self._raise_end(at)
        if whole and self._seen <= self.place.floor:
            self.place.floor = at
        self._seen = at
        return True

    def _raise_end(self, at: int) -> None:
        self._foreign += max(0, at - self.target_end)
        self.target_end = max(self.target_end, at)

    def skip_to(self, start: int) -> None:
        """Record that the source deleted everything before this offset."""
        if self.begun:
            self.lost += start - self.reached
        self._removed += start - self.reached
        self.reached, self.epoch = start, -1
        self._pass(start, 0)

    def progress(self, now_ms: int, status: PartitionStatus) -> Progress:
        """The progress since the last call. Nothing is reported but the state while this would put records of the
        copy at the target before others that precede them at the source, or the position behind removed offsets that
        uncounted records at the target may have: a resume could not recognise these."""
        report = partial(
            Progress,
            self.source,
            self.target,
            source_start=self.source_start,
            source_end=self.source_end,
            lag_ms=self._lag_ms(now_ms),
            path="batches",
            error=status.error,
            stopped=status.stopped,
        )
        settled = self._settled
        if self._fetched and self.source_start == self.source_end == self.place.offset and not self._pending:
            self._count_deleted()
        if not settled and (self._mixed or self._passed):
            return report(self._reported)
        self._reported = self.place.position()
        progress = report(
            self._reported,
            tuple(self._runs),
            self._copied,
            self._bytes,
            self._dropped,
            self._skipped,
            lost=self.lost,
            foreign=self._foreign,
            target_end=self.target_end if settled else -1,
        )
        self._runs = []
        self._copied = self._bytes = self._dropped = self._skipped = self._foreign = self.lost = 0
        return progress

    def _count_deleted(self) -> None:
        """Count the records at the target that the source deleted before the position counted them: the source is
        empty, and deleted at least as many. A source that is not empty may still have them behind its end: a new leader
        hides the newest records until its high watermark has advanced."""
        beyond = self.place.ahead(self._last)
        if (
            not beyond
            or sum(ahead(following(n), self.place.counts.get(p, 0)) for p, n in beyond.items()) > self._passed
        ):
            return
        for producer, last in beyond.items():
            self.place.counts[producer] = self._counts[producer] = following(last)
        self._last, self._own, self._stored, self.by_record = {}, {}, {}, False
        self.place.floor = self.target_end = max(self.target_end, self._floor)
        self._passed = 0

    def _check(self, header: BatchHeader, batch: memoryview) -> None:
        where = f"offset {header.offset} of {self._where}"
        if sound(header, batch):
            self._bad = 0
            return
        raise self._bad_read(f"the checksum of the batch at {where}", "another checksum")

    def _bad_read(self, expected: str, found: str) -> Retry | Stop:
        self._bad += 1
        kind = Stop if self._bad > _REREADS else Retry
        return kind(expected, found, "check the disks of the source")

    def _take(self, header: BatchHeader, batch: memoryview, aborted: Aborted) -> None:
        if header.attributes & CONTROL:
            aborted.end(header, batch)
            return self._pass(header.following, 0)
        if aborted.holds(header) or not header.records:
            return self._pass(header.following, 0)
        producer = self._route.of(header)
        if producer is None:
            return self._pass(header.following, header.records)
        return self._write(header, batch, producer)

    def _write(self, header: BatchHeader, batch: memoryview, producer: int) -> None:
        before = self._before(header, batch)
        if before == header.records:
            return self._pass(header.following, 0)
        runs = self._found(header, batch, producer, before) if producer in self._stored else []
        first = before + len(runs)
        left = header._replace(records=header.records - first)
        if not left.records:
            entry = SentBatch(header._replace(records=len(runs)), batch, None)
            return self._append(header, entry, producer, self._stored[producer].count, runs)
        stretches = None
        if first or not header.dense or header.attributes & APPEND_TIME:
            batch, stretches = dense(header, batch, self._where, first)
        entry = SentBatch(left, batch, stretches)
        self._skipped += len(runs)
        sequence = self._counts.get(producer, 0)
        entry.producer, entry.count = producer, (sequence + entry.records) & _SEQUENCES
        if producer in self._last and self._there(entry, left, batch, sequence):
            return self._append(header, entry, producer, entry.count)
        readdress(batch, producer, sequence, header.attributes & CODEC)
        self.queue.append(entry)
        self.queued += entry.size
        return self._append(header, entry, producer, entry.count, runs, done=False)

    def _before(self, header: BatchHeader, batch: memoryview) -> int:
        """The number of records of the batch that are before the position: an operator, a point in time, or the path
        ``records`` may set it inside a batch, and the source may delete the first records of a batch."""
        passed = self.reached - header.offset
        if passed <= 0:
            return 0
        before = sum(delta < passed for delta, _ in marks(header, batch, self._where))
        self._removed -= passed - before
        return before

    def _append(
        self,
        header: BatchHeader,
        entry: SentBatch,
        producer: int,
        count: int,
        runs: Sequence[Run] = (),
        done: bool = True,
    ) -> None:
        """Add a batch behind those that are not counted yet. ``done``: the target has it."""
        entry.producer, entry.count, entry.found, entry.done, entry.skipped = producer, count, [*runs], done, done
        self._counts[producer] = count
        entry.removed = self._removed
        self._newest_ms = header.last_ms
        self._pending.append(entry)
        if done:
            self._settle()

    def _found(self, header: BatchHeader, batch: memoryview, producer: int, first: int) -> list[Run]:
        """The records of the batch, from the number ``first`` on, that the target has. If that is not all of them, the
        others were never copied, and the producer goes on behind its last record there. Raises `Stop` if the target has
        records that the source cannot have had."""
        stored, runs = self._stored[producer], list[Run]()
        for delta, mark in marks(header, batch, self._where)[first:]:
            there = stored.take(mark, self._removed)
            if there is None:
                break
            self._removed -= there[0]
            runs.append(Run(header.offset + delta, there[1], 1))
        if first + len(runs) < header.records:
            last = self._last.pop(producer)
            if stored.gap and self._whole:
                raise self._hole(header)
            if stored.left > self._removed or (self._cut and not stored.begun):
                raise self._another(header, producer, stored.count, last)
            self._removed -= stored.left
            self._counts[producer] = following(last)
            del self._stored[producer]
        return runs

    def _there(self, entry: SentBatch, header: BatchHeader, batch: memoryview, sequence: int) -> bool:
        """Whether the target has the batch. Raises `Differs` if the target has a different batch."""
        last = self._last[entry.producer]
        if ahead(sequence, last) > 0:
            del self._last[entry.producer]
            self._own.pop(entry.producer, None)
            return False
        own = self._own.get(entry.producer, deque())
        while own and ahead(own[0].last_sequence, sequence) < 0:
            own.popleft()
        exact = bool(own) and own[0].sequence == sequence
        same = exact and own[0].same(header, batch)
        crossing = own and not exact and ahead(own[0].sequence, entry.count) < 0
        if not exact and not crossing and self._whole and ahead(following(last), entry.count) >= 0:
            raise self._hole(header)
        proved = same and own[0].digest is not None and own[0].codec == header.attributes & CODEC
        if crossing or ahead(following(last), entry.count) < 0 or exact > same or (self._removed and not proved):
            self.by_record = True
            another = self._another(header, entry.producer, sequence, last)
            raise Differs(another.expected, another.found, "their records are compared")
        if exact:
            entry.target = own.popleft().offset
        return True

    def _another(self, header: BatchHeader, producer: int, sequence: int, last: int) -> Stop:
        return Stop(
            f"records {sequence} to {last} of producer {producer:#x} in {self.target} to be those from offset "
            f"{header.offset} of {self._where} on",
            "others",
            "the source was not copied from here before, or lost records: set the position of this partition",
        )

    def _hole(self, header: BatchHeader) -> Stop:
        return Stop(
            f"the batch at offset {header.offset} of {self._where} in {self.target}, which has later batches",
            "it was never written: the target refused it, forgot the producer, and accepted the next one",
            f"reset this partition of the link to source offset {header.offset}; later batches are then duplicated",
        )

    def _pass(self, offset: int, dropped: int) -> None:
        """Mark the source up to here as needing no writes, once everything before it is done."""
        if self._pending:
            self._pending[-1].following, self._pending[-1].removed = offset, self._removed
            self._pending[-1].epoch = self.epoch
            self._pending[-1].dropped += dropped
        else:
            self.place.offset, self._passed = offset, 0 if self._counted else self._removed
            self.place.epoch = self.epoch
            self._dropped += dropped

    def _settle(self) -> None:
        place, pending = self.place, self._pending
        while pending and pending[0].done:
            entry = pending.popleft()
            place.offset, place.epoch, self.begun = entry.following, entry.epoch, True
            place.counts[entry.producer] = entry.count
            self._passed = 0 if self._counted else entry.removed
            self._dropped += entry.dropped
            if entry.skipped:
                self._skipped += entry.records
            else:
                self._copied += entry.records
                self._bytes += entry.size
            self._map(entry)
        if not pending and self._own:
            self._lift()

    def _lift(self) -> None:
        """Raise the floor to the first batch at the target that the position does not count."""
        if all(self._own.get(producer) for producer in self._last):
            self.place.floor = min([self._floor, *self._uncounted()])

    def _uncounted(self) -> list[int]:
        """Target offset of the first batch that is not counted, of each producer."""
        return [batches[0].offset for batches in self._own.values() if batches]

    def _map(self, entry: SentBatch) -> None:
        if self.target_end >= 0:
            self._foreign += max(0, entry.target - self.target_end)
        if entry.target >= 0:
            self.target_end = max(self.target_end, entry.target + entry.records)
        for run in entry.runs():
            before = self._runs[-1] if self._runs else None
            if before and before.source + before.records == run.source and before.target + before.records == run.target:
                self._runs[-1] = before._replace(records=before.records + run.records)
            else:
                self._runs.append(run)

    def _lag_ms(self, now_ms: int) -> int:
        if self.source_end < 0:
            return -1
        if self.place.offset >= self.source_end:
            return 0
        oldest = self._pending[0].first_ms if self._pending else self._newest_ms
        return max(0, now_ms - oldest) if oldest >= 0 else -1
