"""The state of each partition during the copy: sent and acknowledged records, and its position.

Records are sent in **chunks**: the records of one partition in one read. Only the last record of a chunk reports
when and where it was written; the producer keeps their order, so the others are directly before it, unless the
target partition grew by more than the sent records. In this case there is another writer, and from then on every
record reports its own offset, so that runs remain exact.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

from confluent_kafka import KafkaError, Message

from trueup.connectors.contract import Assignment
from trueup.connectors.kafka.replication.records.clients import PURGED
from trueup.connectors.replication.track import Lane, LogTrack

_ELSEWHERE = "records were written before the acknowledged ones"
Answer = Callable[[KafkaError | None, Message], None]


class Chunk:
    """Records of one partition in flight. ``after``: the source offset after them; ``stamp``: time of the first.

    ``offsets``: source offsets of the sent ones, in order; empty: it is done once earlier chunks are.
    """

    __slots__ = ("after", "dismissed", "dropped", "filtered", "left", "sent", "size", "spans", "stamp", "track")

    def __init__(self, track: "PartitionTrack", after: int, stamp: int, offsets: Sequence[int]) -> None:
        self.track, self.after, self.stamp, self.sent = track, after, stamp, len(offsets)
        self.spans = _spans(offsets)
        self.size = self.dropped = self.filtered = self.dismissed = 0
        self.left = len(offsets) if track.lane.shared else min(1, len(offsets))

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        """Process the result of the last record, which includes all others."""
        if not self._counts(error):
            return
        last = message.offset() or 0
        gap = self.track.lane.extend(last, self.sent)
        if gap < 0:
            self.track.fail(KafkaError(KafkaError._STATE, _ELSEWHERE))
            return
        self.track.counts.foreign += gap
        if gap:  # offsets of the others are unknown between foreign records: only the last is certain
            self.track.run(self.spans[-1][0] + self.spans[-1][1] - 1, last, 1)
        else:
            at = last + 1 - self.sent
            for source, records in self.spans:
                self.track.run(source, at, records)
                at += records
        self.left = 0
        self.track.settle()

    def one(self, offset: int, error: KafkaError | None, message: Message) -> None:
        """Process the result of the record at ``offset``."""
        if not self._counts(error):
            return
        last = message.offset() or 0
        gap = self.track.lane.extend(last, 1)
        if gap < 0:
            self.track.fail(KafkaError(KafkaError._STATE, _ELSEWHERE))
            return
        self.track.counts.foreign += gap
        self.track.run(offset, last, 1)
        self.left -= 1
        if not self.left:
            self.track.settle()

    def answers(self) -> list["Answer | None"]:
        """A callback or None for each of its records, in order."""
        if self.track.lane.shared:
            return [partial(self.one, s + n) for s, records in self.spans for n in range(records)]
        return [*[None] * (self.sent - 1), self.delivered]

    def forget(self) -> None:
        """Ignore later results."""
        self.left = -1

    def _counts(self, error: KafkaError | None) -> bool:
        if error is not None and self.left > 0:
            self.track.fail(error)
        return error is None and self.left > 0


class PartitionTrack(LogTrack):
    """One source partition. ``pending``: chunks in flight, in order; ``held``: messages after them."""

    def __init__(
        self,
        assignment: Assignment,
        lane: Lane,
        writer_id: int,
        failed: "list[tuple[PartitionTrack | None, KafkaError]]",
    ) -> None:
        super().__init__(assignment, lane, writer_id)
        self._failed = failed
        self.pending: deque[Chunk] = deque()
        self.held: list[Message] = []

    def chunk(self, after: int, stamp: int, offsets: Sequence[int]) -> Chunk:
        """A new chunk after the others."""
        chunk = Chunk(self, after, stamp, offsets)
        self.pending.append(chunk)
        self.reached, self.stamp, self.idle = after, stamp, False
        return chunk

    def settle(self) -> None:
        """Advance past every completed chunk, in order."""
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
        """Record that the source has no records before ``offset``. A read can report this together with later records
        from there on; they are read once."""
        if offset < self.reached:
            return
        self.reached, self.idle = offset, True
        if self.pending:
            self.pending[-1].after = max(self.pending[-1].after, offset)
        else:
            self.offset = max(self.offset, offset)

    def fail(self, error: KafkaError) -> None:
        """Record that a chunk was not written. Dropped unsent records are no failure."""
        if error.code() not in PURGED:
            self._failed.append((self, error))

    def lose(self, reason: str) -> None:
        """Record that the fate of chunks in flight is unknown: the target must be read before the next write."""
        self.forget()
        self.error, self.known = reason, False

    def forget(self) -> None:
        """Drop chunks in flight: the target will be read for the progress. Later results are ignored."""
        while self.pending:
            self.pending.pop().forget()
        self.runs = self._divided()[0]  # runs after the offset are found again
        self.reached, self.idle = self.offset, False

    def _lag_ms(self, now_ms: int) -> int:
        if self.idle and not self.pending:
            return 0
        stamp = self.pending[0].stamp if self.pending else self.stamp
        return max(1, now_ms - stamp) if stamp >= 0 else -1


def _spans(offsets: Sequence[int]) -> list[tuple[int, int]]:
    """Runs of consecutive offsets: (first, count)."""
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
