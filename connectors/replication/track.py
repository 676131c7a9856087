"""The state of each log during the copy: how far the target acknowledged it, and the target offsets of its records."""

from collections.abc import Iterable, Sequence

from trueup.connectors.contract import Assignment, LogId, Position, Progress, Run
from trueup.connectors.replication.headers import prefix_of
from trueup.connectors.replication.tail import Bounds, CopiedRecord
from trueup.state.common.errors import Retry, Stop, TrueupError

PATH = "records"
END = "end"
"""Name in `Position.resume_state`: the target's end when the position was acknowledged."""
PLACE = "place"
"""Name in `Position.resume_state`: `ports.Read.place` of the record before the position."""


AGAIN_S, RESTS, LONGEST_S = 0.5, 10, 60.0
"""Seconds between two attempts to read a position while other logs are copied: the least, as a multiple of the time
that the last one took in vain, and the most."""


def places_of(assignments: Iterable[Assignment]) -> dict[LogId, tuple[int, int]]:
    """The offset of each position that has a place, and the place."""
    positions = ((assignment.source, assignment.position) for assignment in assignments)
    return {log: (at.offset, at.resume_state[PLACE]) for log, at in positions if PLACE in at.resume_state}


class Lane:
    """A target log. ``shared``: whether several source logs have it as target. ``next``: the offset after the newest
    record of the copy, -1: unknown. ``clear``: the end of the log when nothing was in flight, which may be behind
    records of others, -1: unknown."""

    def __init__(self, target: LogId, shared: bool = False) -> None:
        self.target, self.shared, self.next, self.clear = target, shared, -1, -1

    def extend(self, last: int, records: int) -> int:
        """Record that ``records`` of the copy end at offset ``last``. Returns the number of foreign offsets between
        them and the former newest record. Negative: they are before it, so the log is another one, or lost its end."""
        gap = last + 1 - records - self.next
        if gap >= 0:
            self.next = last + 1
        return gap


class Counts:
    """The counters of `Progress` since the last call."""

    def __init__(self) -> None:
        self.copied = self.bytes = self.dropped = self.filtered = self.dismissed = 0
        self.skipped = self.repeated = self.foreign = self.foreign_tags = self.lost = 0


class LogTrack:
    """One source log. ``offset``: the offset before which all records are acknowledged, dropped, filtered or dismissed.

    ``prefix``: the prefix of the marks of its records at the target (`headers.prefix_of`). ``begun``: whether the log
    has a position, of this lease or of an earlier one. ``reached``: the offset after the last record read. ``floor``:
    the target's end when ``offset`` was acknowledged, -1: unknown; no newer record of this log is below it. ``chosen``:
    whether an operator set the offset. ``bounds``: the last known bounds of the source log. ``runs``: the source
    offset, target offset and length of each unreported acknowledgement.

    ``careful``: the number of records to send one by one, because one of them was refused. ``stamp``: the timestamp of
    the oldest record of the last read, in ms since the epoch. ``newest``: the source offset of the newest record in the
    tail of the target, -1: none. ``place``: an offset, and `ports.Read.place` of the record before it. ``idle``:
    whether there is nothing more to read now. ``known``: whether the target confirmed ``offset``, so that the log may
    be read; otherwise ``trouble`` is the reason. ``stopped``: whether an operator must change something before the log
    is copied again. ``again_s``: the time before which the position is not read again while other logs are copied.
    """

    def __init__(self, assignment: Assignment, lane: Lane, writer_id: int) -> None:
        self.source, self.lane = assignment.source, lane
        self.prefix = prefix_of(writer_id, assignment.source)
        self.begun = assignment.position.offset >= 0
        self.offset = assignment.position.offset if self.begun else assignment.start
        self.reached, self.floor = self.offset, int(assignment.position.resume_state.get(END, -1))
        self.chosen = assignment.position.chosen
        self.place = self.offset, int(assignment.position.resume_state.get(PLACE, -1))
        self.bounds, self.counts = Bounds(-1, -1), Counts()
        self.runs: list[list[int]] = []
        self.careful, self.idle, self.stamp, self.newest = 0, False, -1, -1
        self.error, self.stopped, self.known, self.again_s = "", False, False, 0.0
        self.trouble: TrueupError = Retry("a position that was read", "no read yet", "open the lease")

    def run(self, source: int, target: int, records: int) -> None:
        """Add a run of records at the target; it extends the last run if it follows it on both sides."""
        last = self.runs[-1] if self.runs else None
        if last and last[0] + last[2] == source and last[1] + last[2] == target:
            last[2] += records
        else:
            self.runs.append([source, target, records])

    def stop(self, reason: str) -> None:
        """Stop copying this log: an operator must change something."""
        self.error, self.stopped = reason, True

    def miss(self, trouble: TrueupError) -> None:
        """The offset could not be determined, or is no longer certain."""
        self.trouble, self.error, self.known = trouble, str(trouble), False
        self.stopped = isinstance(trouble, Stop)

    def rest(self, began_s: float, now_s: float) -> None:
        """Set the time of the next attempt after one to read the position. A server that hangs must not take the time
        of the other logs."""
        took_s = 0.0 if self.known else now_s - began_s
        self.again_s = now_s + min(LONGEST_S, max(AGAIN_S, RESTS * took_s))

    def shrunk(self, end: int) -> None:
        """Handle a target that ends before acknowledged records: continue after the newest remaining one, if any."""
        if self.newest >= 0:
            self.offset = self.reached = self.newest + 1
        else:
            self.miss(
                Stop(
                    f"records of the copy in {self.lane.target}",
                    f"none before its end, {end}",
                    "it was recreated or lost records: exclude the topic from the link, or set another target",
                )
            )

    def see(self, start: int, end: int) -> None:
        """Set the bounds of the source log as its server reported them; negative: not reported."""
        if end >= 0:
            self.bounds = Bounds(start if start >= 0 else self.bounds.start, end)

    def found(self, met: Sequence[CopiedRecord], ours: bool) -> bool:
        """Process the records of this log found at the target from the floor on. Returns whether they are more
        than was known. ``ours``: this copier wrote them; otherwise a predecessor did. A log without earlier copies
        starts with the first of them."""
        met = [record for record in met if record.target >= self.floor]
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
        """The progress since the last call."""
        counts, self.counts = self.counts, Counts()
        runs, target_end = self._settled()
        resume_state = {END: self.floor} if self.floor >= 0 else {}
        if self.place[0] == self.offset and self.place[1] >= 0:
            resume_state[PLACE] = self.place[1]
        # Before the target was read, earlier copies may be at it: a position would let the next lease pass over the
        # records after them.
        position = Position(self.offset, resume_state, self.chosen) if self.begun else Position()
        error, self.error = self.error, self.error if self.stopped or not self.known else ""
        return Progress(
            self.source,
            self.lane.target,
            position,
            runs,
            source_start=self.bounds.start,
            source_end=self.bounds.end,
            target_end=target_end,
            lag_ms=self._lag_ms(now_ms),
            path=PATH,
            error=error,
            stopped=self.stopped,
            **vars(counts),
        )

    def _settled(self) -> tuple[tuple[Run, ...], int]:
        """The runs before ``offset``, and a lower bound for the target offset of the next record, -1: unknown, because
        it may have been written before others: by a dead copier, whose requests arrived late, before those of
        another log with this target. Later runs wait to be reported together with their chunk's count."""
        settled, self.runs = self._divided()
        following = self.runs[0][1] if self.runs else max(self.lane.next, self.lane.clear)
        sure = self.known and (self.idle or not self.lane.shared)
        return tuple(Run(*run) for run in settled), following if sure else -1

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
        return 0 if self.idle else max(1, now_ms - self.stamp) if self.stamp >= 0 else -1
