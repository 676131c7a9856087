"""Protobuf parsing in numpy: one field of thousands of messages at a time (tags, varints, lengths)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Array = NDArray[Any]
PAD = np.zeros(80, np.uint8)
"""Padding after the bytes of all messages: a varint that exceeds them reads zeros."""
NAME_BYTES = 255
"""Longest string that `dictionary` distinguishes."""


@dataclass(slots=True)
class MessagePieces:
    """Pieces of messages, ordered by row and offset."""

    row: Array
    """The row of each piece."""
    at: Array
    """The offset of each piece in the buffer."""
    size: Array
    """The number of bytes of each piece."""

    def take(self, which: Array) -> "MessagePieces":
        """A subset of the pieces."""
        return MessagePieces(self.row[which], self.at[which], self.size[which])


def walk(
    buffer: Array, parts: MessagePieces, expected: Callable[[Array], Array]
) -> Iterator[tuple[Array, Array, Array, Array, Array]]:
    """Iterate over the fields: one field of every part that has one left.

    Yields the parts, their tags, values (or lengths), offsets of their bytes, and which of them are invalid: these are
    not parsed further. ``expected`` returns the wire type that a tag must have, 9 if it is unknown.
    """
    place, end = parts.at.copy(), parts.at + parts.size
    live = np.flatnonzero(place < end)
    while len(live):
        at = place[live]
        tag = buffer[at]
        value, at, whole = varints(buffer, at + 1)
        wire = tag & 7
        has_bytes = wire == 2
        room = end[live] - at
        bad = ~whole | (expected(tag) != wire) | (room < 0) | (has_bytes & ((value < 0) | (value > room)))
        yield live, tag, value, at, bad
        place[live] = np.where(has_bytes, at + value, at)
        live = live[~bad]
        live = live[place[live] < end[live]]


def varints(buffer: Array, at: Array) -> tuple[Array, Array, Array]:
    """Values of the varints at these offsets, their ends, and whether they end within 10 bytes."""
    byte = buffer[at].astype(np.int64)
    value, end, shift = byte & 127, at + 1, 7
    whole = np.ones(len(at), bool)
    more = np.flatnonzero(byte & 128)
    while len(more):
        byte = buffer[end[more]].astype(np.int64)
        value[more] |= (byte & 127) << shift
        end[more] += 1
        shift += 7
        if shift > 63:
            whole[more[byte > 1]] = False
            break
        more = more[(byte & 128) != 0]
    return value, end, whole


def in_order(parts: list[MessagePieces]) -> MessagePieces:
    """Pieces of several steps, ordered by row and offset."""
    row, at, size = (
        np.concatenate([np.zeros(0, np.int64), *(getattr(part, name) for part in parts)])
        for name in MessagePieces.__slots__
    )
    order = np.argsort(at, kind="stable")
    return MessagePieces(row[order], at[order], size[order])


def dictionary(buffer: Array, parts: MessagePieces) -> tuple[Array, tuple[str, ...]]:
    """The code of each name, and the distinct names. No name may exceed `NAME_BYTES` or end with a zero byte."""
    if not len(parts.at):
        return np.zeros(0, np.int64), ()
    size = np.minimum(parts.size, NAME_BYTES)
    width = max(int(size.max()), 1)
    padded = np.concatenate([buffer, np.zeros(width, np.uint8)])
    windows = np.ndarray((len(padded) - width + 1,), f"V{width}", padded, strides=(1,))
    names = windows[parts.at].view(np.uint8).reshape(-1, width)
    names &= np.tril(np.full((width + 1, width), 255, np.uint8), -1)[size]
    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(names), [None, pa.py_buffer(names)])
    coded = fixed.dictionary_encode()
    texts = [name.rstrip(b"\0").decode("utf-8", "replace") for name in coded.dictionary.to_pylist()]
    return coded.indices.to_numpy().astype(np.int64), tuple(texts)
