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

from trueup.connectors.contract import Assignment
from trueup.connectors.kafka.replication.records.clients import PURGED
from trueup.connectors.replication.track import Lane, LogTrack

_ELSEWHERE = "records were written before those that the target had acknowledged"
Answer = Callable[[KafkaError | None, Message], None]


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


class Flow(LogTrack):
    """One source partition. ``pending``: chunks on their way, in order."""

    def __init__(
        self, assignment: Assignment, lane: Lane, flow: int, failed: "list[tuple[Flow | None, KafkaError]]"
    ) -> None:
        super().__init__(assignment, lane, flow)
        self._failed = failed
        self.pending: deque[Chunk] = deque()

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

    def fail(self, error: KafkaError) -> None:
        """A chunk was not written. What we took back ourselves is no failure."""
        if error.code() not in PURGED:
            self._failed.append((self, error))

    def lose(self, reason: str) -> None:
        """What is on its way may or may not arrive: the target has to be asked before anything else is sent."""
        self.forget()
        self.error, self.known = reason, False

    def forget(self) -> None:
        """Drop what is on its way: the target will be asked how far it came. Late answers about it change nothing."""
        while self.pending:
            self.pending.pop().forget()
        self.runs = self._divided()[0]  # those behind the offset are found again
        self.reached, self.idle = self.offset, False

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
