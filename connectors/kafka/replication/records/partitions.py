"""What is known of each partition while it is copied: what was sent, what of that is acknowledged, and where it stands.

Records are sent in **chunks**: those of one partition that one read returned. Only the last record of a chunk tells
when and where it was written; the producer keeps their order, so those before it stand right before it unless the
target partition grew by more than was sent. Then somebody else writes there as well, and from then on every record
tells its own place, so that runs stay exact.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

from confluent_kafka import KafkaError, Message

from trueup.connectors.contract import Assignment, LogId, Position, Progress, Run
from trueup.connectors.kafka.replication.records.clients import PURGED, Bounds
from trueup.connectors.kafka.replication.records.headers import prefix_of
from trueup.connectors.kafka.replication.records.target_tail import Met
from trueup.state.common.errors import Retry, Stop, TrueupError

PATH = "records"
_ELSEWHERE = "records were written before those that the target had acknowledged"
END = "end"
"""Name in `Position.carry`: the target's end when the position was acknowledged."""


Answer = Callable[[KafkaError | None, Message], None]


class Lane:
    """A target partition. ``next``: the offset after our newest record; ``shared``: others write to it too."""

    def __init__(self, target: LogId) -> None:
        self.target, self.next, self.shared = target, -1, False

    def extend(self, last: int, records: int) -> int:
        """Take the news that ``records`` of ours end at offset ``last``; return how many of others are between.
        Negative: they stand before what was written already, so the log is another one, or lost its end."""
        gap = last + 1 - records - self.next
        if gap >= 0:
            self.next = last + 1
            self.shared |= gap > 0
        return gap


class Chunk:
    """Records of one partition on their way. ``after``: the source offset behind them; ``stamp``: the first's time.

    ``offsets``: source offsets of those that are sent, in order; none: it is done once those before it are.
    """

    __slots__ = ("after", "dismissed", "dropped", "filtered", "flow", "left", "sent", "size", "spans", "stamp")

    def __init__(self, flow: "Flow", after: int, stamp: int, offsets: Sequence[int]) -> None:
        self.flow, self.after, self.stamp, self.sent = flow, after, stamp, len(offsets)
        self.spans = _spans(offsets)
        self.size = self.dropped = self.filtered = self.dismissed = 0
        self.left = len(offsets) if flow.lane.shared else min(1, len(offsets))

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        """The last record was written, and so all of them; or it was not."""
        if not self._counts(error):
            return
        last = message.offset() or 0
        gap = self.flow.lane.extend(last, self.sent)
        if gap < 0:
            self.flow.fail(KafkaError(KafkaError._STATE, _ELSEWHERE))
            return
        self.flow.counts.foreign += gap
        if gap:  # where the others stand among ours is not known: only the last is certain
            self.flow.run(self.spans[-1][0] + self.spans[-1][1] - 1, last, 1)
        else:
            at = last + 1 - self.sent
            for source, records in self.spans:
                self.flow.run(source, at, records)
                at += records
        self.left = 0
        self.flow.settle()

    def one(self, offset: int, error: KafkaError | None, message: Message) -> None:
        """The record at ``offset`` was written, or not."""
        if not self._counts(error):
            return
        last = message.offset() or 0
        gap = self.flow.lane.extend(last, 1)
        if gap < 0:
            self.flow.fail(KafkaError(KafkaError._STATE, _ELSEWHERE))
            return
        self.flow.counts.foreign += gap
        self.flow.run(offset, last, 1)
        self.left -= 1
        if not self.left:
            self.flow.settle()

    def answers(self) -> list["Answer | None"]:
        """A callback, or None, for each of its records in turn."""
        if self.flow.lane.shared:
            return [partial(self.one, s + n) for s, records in self.spans for n in range(records)]
        return [*[None] * (self.sent - 1), self.delivered]

    def forget(self) -> None:
        """What is answered from now on comes too late."""
        self.left = -1

    def _counts(self, error: KafkaError | None) -> bool:
        if error is not None and self.left > 0:
            self.flow.fail(error)
        return error is None and self.left > 0


class Counts:
    """What `Progress` tells since it was last asked."""

    def __init__(self) -> None:
        self.copied = self.bytes = self.dropped = self.filtered = self.dismissed = 0
        self.skipped = self.repeated = self.foreign = self.lost = 0


class Flow:
    """One source partition. ``offset``: all before it is acknowledged, dropped, filtered or dismissed.

    ``reached``: the offset after the last that was read. ``chosen``: a person said where to begin. ``careful``: how
    many records to send one by one, because one of them was refused. ``idle``: nothing more to read at the moment.
    """

    def __init__(
        self, assignment: Assignment, lane: Lane, flow: int, failed: "list[tuple[Flow | None, KafkaError]]"
    ) -> None:
        self.source, self.lane, self._failed = assignment.source, lane, failed
        self.prefix = prefix_of(flow, assignment.source)
        self.begun = assignment.position.offset >= 0
        self.offset = assignment.position.offset if self.begun else assignment.start
        self.reached, self.floor = self.offset, int(assignment.position.carry.get(END, -1))
        self.chosen = assignment.position.chosen
        self.bounds, self.counts = Bounds(-1, -1), Counts()
        self.pending: deque[Chunk] = deque()
        self.runs: list[list[int]] = []
        self.careful, self.idle, self.stamp, self.newest = 0, False, -1, -1
        self.error, self.stopped, self.known = "", False, False
        self.trouble: TrueupError = Retry("the position", "that it was never asked for", "open the lease")

    def chunk(self, after: int, stamp: int, offsets: Sequence[int]) -> Chunk:
        """A new chunk behind the others."""
        chunk = Chunk(self, after, stamp, offsets)
        self.pending.append(chunk)
        self.reached, self.stamp, self.idle = after, stamp, False
        return chunk

    def settle(self) -> None:
        """Move on past every chunk that is done, in order."""
        pending, counts = self.pending, self.counts
        while pending and not pending[0].left:
            chunk = pending.popleft()
            self.offset = max(self.offset, chunk.after)
            counts.copied += chunk.sent
            counts.bytes += chunk.size
            counts.dropped += chunk.dropped
            counts.filtered += chunk.filtered
            counts.dismissed += chunk.dismissed
            self.floor = self.lane.next

    def end(self, offset: int) -> None:
        """The source has nothing more before ``offset``: what is between is no record. One read may tell that, and
        records from there on that came since; they are read once."""
        if offset < self.reached:
            return
        self.reached, self.idle = offset, True
        if self.pending:
            self.pending[-1].after = max(self.pending[-1].after, offset)
        else:
            self.offset = max(self.offset, offset)

    def run(self, source: int, target: int, records: int) -> None:
        """Note where records stand, joined to the last run where they follow it on both sides."""
        last = self.runs[-1] if self.runs else None
        if last and last[0] + last[2] == source and last[1] + last[2] == target:
            last[2] += records
        else:
            self.runs.append([source, target, records])

    def fail(self, error: KafkaError) -> None:
        """A chunk was not written. What we took back ourselves is no failure."""
        if error.code() not in PURGED:
            self._failed.append((self, error))

    def stop(self, reason: str) -> None:
        """End this partition: a person must change something."""
        self.error, self.stopped = reason, True

    def miss(self, trouble: TrueupError) -> None:
        """Where it stands could not be found out."""
        self.trouble, self.error, self.known = trouble, str(trouble), False
        self.stopped = isinstance(trouble, Stop)

    def lose(self, reason: str) -> None:
        """What is on its way may or may not arrive: the target has to be asked before anything else is sent."""
        self.forget()
        self.error, self.known = reason, False

    def shrunk(self, end: int) -> None:
        """The target ends before what it had acknowledged: go on behind what it still has of ours, if anything."""
        if self.newest >= 0:
            self.offset = self.reached = self.newest + 1
        else:
            self.miss(Stop(
                f"records of ours in {self.lane.target}", f"none before its end, {end}",
                "it was made anew or lost records: take the topic out of the link, or give it another target",
            ))  # fmt: skip

    def see(self, start: int, end: int) -> None:
        """Take the source's ends as its leader last told them; negative: not told."""
        if end >= 0:
            self.bounds = Bounds(start if start >= 0 else self.bounds.start, end)

    def forget(self) -> None:
        """Drop what is on its way: the target will be asked how far it came. Late answers about it change nothing."""
        while self.pending:
            self.pending.pop().forget()
        self.runs = self._divided()[0]  # those behind the offset are found again
        self.reached, self.idle = self.offset, False

    def found(self, met: Sequence[Met], ours: bool) -> bool:
        """Take what of this partition stands in the target behind the floor, and whether that was more than known.

        ``ours``: this copier wrote it; otherwise a predecessor did. Where nothing was known, it counts from its first.
        """
        met = [each for each in met if each.target >= self.floor]
        if met and not self.begun:
            self.counts.skipped += max(0, met[0].source - self.offset)
            self.offset, self.begun = met[0].source, True
        before = self.offset
        for source, target in met:
            if source < self.offset:
                self.counts.repeated += 1
                continue
            self.run(source, target, 1)
            self.offset = source + 1
            self.counts.copied += ours
            self.counts.skipped += not ours
        self.reached, self.newest = self.offset, met[-1].source if met else -1
        return self.offset > before

    def progress(self, now_ms: int) -> Progress:
        """What was acknowledged since the last call."""
        counts, self.counts = self.counts, Counts()
        runs, target_end = self._settled()
        carry = {END: self.floor} if self.floor >= 0 else {}
        error, self.error = self.error, self.error if self.stopped or not self.known else ""
        return Progress(
            self.source, self.lane.target, Position(self.offset, carry, self.chosen), runs,
            source_start=self.bounds.start, source_end=self.bounds.end, target_end=target_end,
            lag_ms=self._lag_ms(now_ms), path=PATH, error=error, stopped=self.stopped, **vars(counts),
        )  # fmt: skip

    def _settled(self) -> tuple[tuple[Run, ...], int]:
        """The runs before ``offset``, and where at the target the first record behind them may stand. The others wait:
        a run is told together with the count of its chunk."""
        settled, self.runs = self._divided()
        return tuple(Run(*run) for run in settled), self.runs[0][1] if self.runs else self.lane.next

    def _divided(self) -> tuple[list[list[int]], list[list[int]]]:
        """The runs before ``offset``, and those from it on."""
        before, behind = list[list[int]](), list[list[int]]()
        for source, target, records in self.runs:
            settled = min(records, max(0, self.offset - source))
            if settled:
                before.append([source, target, settled])
            if settled < records:
                behind.append([source + settled, target + settled, records - settled])
        return before, behind

    def _lag_ms(self, now_ms: int) -> int:
        if self.idle and not self.pending:
            return 0
        stamp = self.pending[0].stamp if self.pending else self.stamp
        return max(1, now_ms - stamp) if stamp >= 0 else -1


def _spans(offsets: Sequence[int]) -> list[tuple[int, int]]:
    """Runs of consecutive offsets: (first, how many)."""
    if not offsets:
        return []
    spans, first = [], offsets[0]
    if offsets[-1] - first + 1 == len(offsets):
        return [(first, len(offsets))]
    for before, offset in pairwise(offsets):
        if offset != before + 1:
            spans.append((first, before + 1 - first))
            first = offset
    return [*spans, (first, offsets[-1] + 1 - first)]
