"""Stored messages, as brokers return them one after another (MessageDecoder.java, decode), as columns.

The layout of one, big-endian: int32 size, magic, CRC of the body, queue, flag; int64 offset in the queue and in the
commit log; int32 system flag; int64 time of birth; host of birth (4 or 16 bytes) and int32 port; int64 time of storing;
host and port of storing; int32 deliveries; int64 offset of the prepared transaction; int32 length and body; int8 (magic
2: int16) length and topic; int16 length and properties.
"""

import struct
import zlib
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.connectors.rocketmq.protocol import flags
from trueup.state.common.errors import BadBytes

Numbers = NDArray[np.int64]
_SIZE = struct.Struct(">i")
_HEAD = np.dtype([
    ("size", ">i4"), ("magic", ">i4"), ("crc", ">i4"), ("queue", ">i4"), ("flag", ">i4"), ("offset", ">i8"),
    ("physical", ">i8"), ("sys", ">i4"), ("born", ">i8"),
])  # fmt: skip
_TAIL = np.dtype([("deliveries", ">i4"), ("prepared", ">i8"), ("body", ">i4")])
_STAMP, _SHORT = np.dtype(">i8"), np.dtype(">i2")
_HOST_V4, _HOST_V6 = 8, 20
_LEAST = _HEAD.itemsize + 2 * _HOST_V4 + _STAMP.itemsize + _TAIL.itemsize + 1 + _SHORT.itemsize
_CRC_BITS = 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class Stored:
    """Messages in the order of their bytes, ``data``. Times in ms since 1970; ``flags`` are the application's, ``sys``
    those of `flags`. Bodies, topics and properties are ranges of bytes."""

    data: memoryview
    queues: Numbers
    offsets: Numbers
    flags: Numbers
    sys: Numbers
    born: Numbers
    stored: Numbers
    deliveries: Numbers
    physical: Numbers
    host_at: Numbers
    body_at: Numbers
    body_end: Numbers
    topic_at: Numbers
    topic_end: Numbers
    properties_at: Numbers
    properties_end: Numbers

    def __len__(self) -> int:
        return len(self.offsets)

    def bodies(self) -> list[memoryview]:
        """The stored bodies, compressed if their system flags say so."""
        return _ranges(self.data, self.body_at, self.body_end)

    def properties(self) -> list[memoryview]:
        """The stored properties."""
        return _ranges(self.data, self.properties_at, self.properties_end)

    def topics(self) -> list[str]:
        """The topics, which brokers keep valid UTF-8."""
        return [str(raw, "utf-8", "replace") for raw in _ranges(self.data, self.topic_at, self.topic_end)]

    def message_id(self, row: int) -> str:
        """The id of a message in its broker's commit log: host, port and offset, in hexadecimal."""
        host = self.data[int(self.host_at[row]) : int(self.host_at[row]) + _host(int(self.sys[row]))]
        return (bytes(host) + int(self.physical[row]).to_bytes(8, "big", signed=True)).hex().upper()


def decode(data: memoryview, where: str) -> Stored:
    """All messages in these bytes, with bodies that match their CRC. Raises `BadBytes` at the first other byte."""
    raw = np.frombuffer(data, np.uint8)
    starts = _starts(data, where)
    bad = partial(_refuse, where)
    head = _gather(raw, starts, _HEAD)
    ends = starts + head["size"]
    magic, sys = _wide(head["magic"]), _wide(head["sys"])
    second = magic == flags.MAGIC_2
    bad(~(second | (magic == flags.MAGIC_1)), starts + 4, "the magic of a message", magic)
    at = starts + _HEAD.itemsize + np.where(sys & flags.BORN_IN_V6, _HOST_V6, _HOST_V4)
    host_at = at + _STAMP.itemsize
    body_at = host_at + np.where(sys & flags.STORED_IN_V6, _HOST_V6, _HOST_V4) + _TAIL.itemsize
    bad(body_at + 3 > ends, at, "hosts of 4 or 16 bytes within the message", sys)
    tail = _gather(raw, body_at - _TAIL.itemsize, _TAIL)
    size = _wide(tail["body"])
    body_end = body_at + size
    bad((size < 0) | (body_end + 3 + second > ends), body_at - 4, "a body within the message", size)
    size = np.where(second, _wide(_gather(raw, body_end, _SHORT)), raw[body_end])
    topic_at = body_end + 1 + second
    topic_end = topic_at + size
    bad((size < 0) | (topic_end + 2 > ends), body_end, "a topic within the message", size)
    size = _wide(_gather(raw, topic_end, _SHORT))
    properties_at = topic_end + 2
    properties_end = properties_at + size
    bad((size < 0) | (properties_end > ends), topic_end, "properties within the message", size)
    found = Stored(
        data, _wide(head["queue"]), _wide(head["offset"]), _wide(head["flag"]), sys, _wide(head["born"]),
        _wide(_gather(raw, at, _STAMP)), _wide(tail["deliveries"]), _wide(head["physical"]), host_at,
        body_at, body_end, topic_at, topic_end, properties_at, properties_end,
    )  # fmt: skip
    sums = np.array([zlib.crc32(body) for body in found.bodies()], np.int64) & _CRC_BITS
    bad(sums != (_wide(head["crc"]) & _CRC_BITS), starts + 8, "the CRC of the body", sums)
    return found


def _starts(data: memoryview, where: str) -> Numbers:
    """Where each message starts."""
    at, whole, found, size_at = 0, len(data), [], _SIZE.unpack_from
    while at < whole:
        size = size_at(data, at)[0] if whole - at >= _LEAST else whole - at
        if not _LEAST <= size <= whole - at:
            expected = f"the size of a message, {_LEAST} to {whole - at}"
            raise BadBytes(where, at, expected, str(size), "read it with another client")
        found.append(at)
        at += size
    return np.array(found, np.int64)


def _gather(raw: NDArray[np.uint8], at: Numbers, form: np.dtype[Any]) -> NDArray[Any]:
    """A value of this form at each of these places."""
    rows = raw[at[:, None] + np.arange(form.itemsize)]
    return np.ascontiguousarray(rows).view(form).reshape(len(at))


def _wide(column: NDArray[Any]) -> Numbers:
    return column.astype(np.int64)


def _ranges(data: memoryview, at: Numbers, end: Numbers) -> list[memoryview]:
    return [data[a:b] for a, b in zip(at.tolist(), end.tolist(), strict=True)]


def _host(sys: int) -> int:
    return _HOST_V6 if sys & flags.STORED_IN_V6 else _HOST_V4


def _refuse(where: str, wrong: NDArray[np.bool_], at: Numbers, expected: str, found: Numbers) -> None:
    if wrong.any():
        row = int(np.argmax(wrong))
        raise BadBytes(where, int(at[row]), expected, str(int(found[row])), "read it with another client")
