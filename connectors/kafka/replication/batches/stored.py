"""Records of a copy that the target has beyond the position, compared one by one with those of the source.

A batch of the target shows which source offset it has only while the source still has the same batch. The log cleaner
of the source may have removed records since. What it keeps stays in order, so the records that were copied are first,
each of them is at the target, in the same order, and the first one that is not there was not copied. A record of the
target that the source does not have any more needs an offset that the source does not have any more, either.
"""

from array import array
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.connectors.kafka.protocol.record_batch import SEQUENCES, BatchHeader
from trueup.connectors.kafka.protocol.reencode import marks
from trueup.connectors.kafka.replication.batches.position import ahead, following
from trueup.state.common.errors import Stop

MOST = 1 << 22
"""Maximum number of records of a partition that are compared: about 200 MB."""


class UncountedRecords:
    """The records of one producer id that the position does not count, in order. ``count``: the number of records under
    this id that the position counts; later it includes the records that were found."""

    def __init__(self, count: int) -> None:
        self.count, self._gap = count, -1
        self._next = count
        self._marks, self._sequences, self._offsets = array("q"), array("q"), array("q")
        self._at = 0
        self._order: NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self._marks)

    def add(self, header: BatchHeader, batch: memoryview, where: str) -> None:
        """The records of a batch after those before it. Raises `BadBytes`, and `Stop` for too many."""
        for delta, mark in marks(header, batch, where, appended=False):
            sequence = (header.sequence + delta) % SEQUENCES
            if ahead(sequence, self.count) < 0:
                continue
            self._gap = self._gap if sequence == self._next else len(self)
            self._next = following(sequence)
            self._marks.append(mark)
            self._sequences.append(sequence)
            self._offsets.append(header.offset + delta)
        if len(self) > MOST:
            raise Stop(
                f"at most {MOST} records in {where} that are not in the journal's position",
                "more",
                "the source was compacted, or was not copied from here before: set the position of this partition",
            )

    @property
    def left(self) -> int:
        """The number of records after the last one that was found."""
        return len(self) - self._at

    @property
    def gap(self) -> bool:
        """Whether a sequence number is missing after the last record that was found."""
        return self._gap >= self._at

    @property
    def begun(self) -> bool:
        """Whether a record was found."""
        return self._at > 0

    def take(self, mark: int, most: int) -> tuple[int, int] | None:
        """Find the next record with a mark after at most ``most`` others: their number, and its target offset."""
        if self._order is None:
            self._order = np.argsort(np.frombuffer(self._marks, np.int64), kind="stable")
            self._sorted = np.frombuffer(self._marks, np.int64)[self._order]
        low, high = np.searchsorted(self._sorted, mark, "left"), np.searchsorted(self._sorted, mark, "right")
        places = self._order[low:high]
        number = int(np.searchsorted(places, self._at))
        if number == len(places) or (others := int(places[number]) - self._at) > most:
            return None
        self._at = int(places[number]) + 1
        self.count = following(self._sequences[self._at - 1])
        return others, self._offsets[self._at - 1]
