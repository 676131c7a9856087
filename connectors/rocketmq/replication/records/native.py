"""Messages of RocketMQ on their way to another cluster of RocketMQ, as arrays.

What `columns.Decoder` and `columns.Encoder` do for one message after another is done here for all messages of a
response together, if they have the usual form (`protocol.block`), no message was copied before, and none has
properties that are too long for those of a copy. A request to store them is put together from slices of the response.
"""

from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from trueup.connectors.byte_rows import cuts, joined, ranges, split
from trueup.connectors.replication.headers import Path
from trueup.connectors.replication.ports import Columns, Native
from trueup.connectors.rocketmq.protocol import batch, flags, properties
from trueup.connectors.rocketmq.protocol.batch import MessageBatch
from trueup.connectors.rocketmq.protocol.block import SURE, Block, PropertyNames
from trueup.connectors.rocketmq.protocol.block import PropertyBlock as Properties
from trueup.connectors.rocketmq.replication.records import names
from trueup.connectors.rocketmq.replication.records.binding import Binding
from trueup.connectors.rocketmq.replication.records.copied import TIME_BYTES, WIDTH, BoundParts, datable, tails

Array = NDArray[Any]
_DROPPED, _COPIED = PropertyNames(names.STORED_BY_BROKER), PropertyNames(names.FOREIGN)
_ROOM = properties.MOST_SENT - 3_072
"""Bytes of properties that leave enough for those of a copy."""


class MessageContent:
    """The bytes of messages, shared by all `NativeRows` of a response.

    ``data``: the response, in which `NativeRows.batches` puts a head before each body and the length of the properties
    after it, over what the broker stored about the message and its topic. ``more``: the properties of all messages,
    those of message n from ``first[n]`` on. ``uniques``: see `BoundParts.uniques`. ``columns``: a function that returns
    the records for the messages, each message converted on its own.
    """

    def __init__(self, block: Block, more: bytes, first: Array, uniques: Array, columns: Callable[[], Columns]) -> None:
        self.block, self.more, self.first, self.columns = block, more, first, columns
        self.parts = BoundParts(block.places, block.born, block.body_end - block.body_at, uniques)
        self.data, self.stamps = bytearray(block.data), block.born.tolist()
        self.sys = int(block.sys[0]) & flags.KEPT


class NativeRows(Native):
    """Some messages of a response. ``passed`` and ``prefix``: the clusters passed and the prefix of the marks, which
    are in the properties of copies (`replication.headers`). Both are empty before `tagged`."""

    def __new__(cls, content: MessageContent, rows: slice, passed: bytes = b"", prefix: bytes = b"") -> Self:
        """The rows of a slice without a step."""
        instance = super().__new__(cls, content.block.offsets[rows], (), (), content.stamps[rows])
        instance._content, instance._rows, instance._passed, instance._prefix = content, rows, passed, prefix
        return instance

    _content: MessageContent
    _rows: slice
    _passed: bytes
    _prefix: bytes

    @property
    def size(self) -> int:
        """Bytes of bodies."""
        block, rows = self._content.block, self._rows
        return int((block.body_end[rows] - block.body_at[rows]).sum())

    def cut(self, start: int, stop: int | None = None) -> "NativeRows":
        """A range of the rows."""
        left = range(self._rows.start, self._rows.stop)[start:stop]
        return NativeRows(self._content, slice(left.start, left.stop), self._passed, self._prefix)

    def columns(self) -> Columns:
        """The messages without the properties of a copy, each on its own."""
        return self._content.columns().cut(self._rows.start, self._rows.stop)

    def tagged(self, path: Path, prefix: bytes) -> "NativeRows":
        """The messages with the properties of a copy."""
        return NativeRows(self._content, self._rows, path.source_header[1], prefix)

    def batches(self, most: int, binding: Binding) -> Iterator[MessageBatch]:
        """Batches of at most about ``most`` bytes, or of one message, for this queue."""
        content, rows = self._content, self._rows
        more = np.diff(content.first[rows.start : rows.stop + 1])
        own = batch.size_of(0, WIDTH + len(names.path_of(self._passed)))
        for part in cuts(content.parts.sizes[rows] + more + own, most):
            yield self.cut(part.start, part.stop)._batch(binding)

    def _batch(self, binding: Binding) -> MessageBatch:
        content, rows, born = self._content, self._rows, self.stamps[0]
        block, ends = content.block, content.first[rows.start : rows.stop + 1]
        tails, start, end = self._tails(binding, born)
        body_at, body_end = block.body_at[rows], block.body_end[rows]
        head_at, more = body_at - batch.HEAD.size, np.diff(ends) + end - start
        data = np.frombuffer(content.data, np.uint8)
        head = np.zeros((len(more), 4), ">i4")  # before the length of the body, which the response also has
        head[:, 0], head[:, 3] = batch.size_of(0, 0) + body_end - body_at + more, block.flags[rows]
        data[head_at[:, None] + np.arange(head.itemsize * 4)] = head.view(np.uint8)
        data[body_end], data[body_end + 1] = more >> 8, more & 0xFF
        columns = ranges(content.data, head_at, body_end + 2), split(content.more, ends), ranges(tails, start, end)
        return MessageBatch(len(more), born, content.sys, joined(columns))

    def _tails(self, binding: Binding, born: int) -> tuple[Array, Array, Array]:
        """The tag that each copy has in addition, and where it starts and ends: with the time of birth if it is not
        that of the batch."""
        parts = self._content.parts.cut(self._rows)
        tags = tails(binding, self._passed, self._prefix, born, parts)
        width = tags.shape[1]
        start = np.arange(len(tags)) * width
        return tags, start, start + width - np.where(parts.stamps == born, TIME_BYTES, 0)


def rows_of(block: Block, columns: Callable[[], Columns]) -> NativeRows | None:
    """All messages of a block; None if not all have the usual form. ``columns``: see `MessageContent`."""
    kept = block.sys & flags.KEPT
    if (kept != kept[0]).any() or not datable(block.born):
        return None
    parts = Properties.of(block)
    if (titles := parts.titles) is None or (block.more_end - block.more_at).max() > _ROOM or _COPIED.has(titles).any():
        return None
    dropped = _DROPPED.has(titles)
    if (titles.length[dropped] > SURE).any():
        return None
    return NativeRows(
        MessageContent(block, *parts.without(dropped), parts.hashes(names.UNIQUE), columns), slice(0, len(block))
    )
