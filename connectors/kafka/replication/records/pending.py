"""Batches of one partition between its leader and the pump. No I/O."""

from collections import deque

from trueup.connectors.contract import LogId
from trueup.connectors.kafka.client.fetch_produce import Fetched, other_records
from trueup.connectors.kafka.protocol.aborted import Aborted
from trueup.connectors.kafka.protocol.compression import opened
from trueup.connectors.kafka.protocol.record_batch import CODEC, CONTROL, HEADER_BYTES, BatchHeader, sound, walk
from trueup.connectors.kafka.replication.records.decode import Texts, decoded
from trueup.connectors.replication.ports import Columns, Read
from trueup.connectors.replication.tail import Bounds
from trueup.state.common.errors import BadBytes, Retry

TOGETHER = 4_000
"""Records that are decoded together, if they are there: fewer cost more each."""
ROOM = 1 << 26
"""Bytes of decompressed records after which no further batch is decoded with them. The last one may exceed it."""


class Damaged(Retry):
    """A batch with a wrong checksum: damaged on its way, or in its log."""


class PendingRecords:
    """The batches of one partition between its leader and the pump. ``at``: the offset of the next fetch. ``wanted``:
    the next offset to give; records before it were given, or do not exist. ``idle``: whether the leader had no further
    records. ``texts``: the function that returns the path of the records of a batch. ``epoch``: the leader epoch of the
    records before the next fetch, -1: unknown."""

    def __init__(self, log: LogId, at: int, texts: Texts, epoch: int = -1) -> None:
        self._log, self.at, self.wanted, self.idle, self._texts = log, at, at, False, texts
        self._batches = deque[tuple[BatchHeader, memoryview]]()
        self._rows, self._refused, self._foreign_tags = Columns(), "", 0
        self._told, self._bounds = False, Bounds(-1, -1)
        self._epochs = deque([(at, epoch)])

    @property
    def epoch(self) -> int:
        """See the class."""
        return self._epochs[-1][1]

    @property
    def empty(self) -> bool:
        """Whether more can be fetched."""
        return not self._batches and not self._rows.offsets

    @property
    def ready(self) -> bool:
        """Whether there is something to give: records, or that there are none."""
        return not self.empty or self.wanted < self.at or self.idle != self._told

    def take(self, answer: Fetched, at: int) -> None:
        """Take the response to a fetch from offset ``at``. Raises `BadBytes` and `Damaged`."""
        if at != self.at:
            return
        if answer.differs_from >= 0:
            raise other_records(str(self._log), at, answer.differs_from)
        aborted, self._bounds = Aborted(answer.aborted), Bounds(answer.start, answer.end)
        for header, batch in walk(answer.records):
            if header.following <= self.at:
                continue
            if not sound(header, batch):
                if self.at > at:
                    return
                where = f"the checksum of the batch at offset {header.offset} of {self._log}"
                raise Damaged(where, "another checksum", "check the disks of the source")
            if not _is_skipped(header, batch, aborted):
                self._batches.append((header, batch))
            self.at = header.following
            if header.leader_epoch != self.epoch:
                self._epochs.append((header.offset + 1, header.leader_epoch))
        self.idle = self.at >= answer.end or self.at == at

    def given(self, most: int) -> Read:
        """About ``most`` records. Raises `BadBytes`."""
        if not self._rows.offsets:
            self._decode(max(most, TOGETHER))
        now, self._rows = self._rows.cut(0, most), self._rows.cut(most)
        refused = ""
        if not self._rows.offsets:
            refused, self._refused = self._refused, ""
        self.wanted = self._rows.offsets[0] if self._rows.offsets else self._first()
        if refused:  # the records behind it are fetched again
            self.wanted = self.at = now.offsets[-1] + 1
            self._batches.clear()
            self._epochs = deque([(self.at, self._place())])
        self._told = self.idle and self.empty
        foreign, self._foreign_tags = self._foreign_tags, 0
        return Read(now, self.wanted, self._told, None, 0, self._place(), refused, self._bounds, foreign)

    def _place(self) -> int:
        """The leader epoch of the records before the next one to give."""
        while len(self._epochs) > 1 and self._epochs[1][0] <= self.wanted:
            self._epochs.popleft()
        return self._epochs[0][1]

    def _first(self) -> int:
        """The offset from which batches are not decoded yet."""
        return max(self.wanted, self._batches[0][0].offset) if self._batches else self.at

    def _decode(self, most: int) -> None:
        """Decode batches with about ``most`` records."""
        batches, where = list[tuple[BatchHeader, memoryview]](), f"records of {self._log}"
        records = size = 0
        while self._batches and records < most and size < ROOM:
            header, batch = self._batches[0]
            try:
                body = opened(header.attributes & CODEC, batch[HEADER_BYTES:], where)
            except BadBytes:
                if not batches:
                    raise
                break  # the records before it are given first
            batches.append((header, body))
            self._batches.popleft()
            records, size = records + header.records, size + len(body)
        if batches:
            self._rows, self._refused, self._foreign_tags = decoded(batches, where, self._texts, self.wanted)


def _is_skipped(header: BatchHeader, batch: memoryview, aborted: Aborted) -> bool:
    """Whether a batch has no records to give: it is a marker, or part of an aborted transaction."""
    if header.attributes & CONTROL:
        aborted.end(header, batch)
        return True
    return aborted.holds(header) or not header.records
