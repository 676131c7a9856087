"""Operations on the records of a batch: encoding without gaps.

Record layout (DefaultRecord.java): varint size, attributes (1 byte), varints of time delta and offset delta, then key,
value and headers, each with a varint length (-1: null).
"""

from typing import NamedTuple

from trueup.connectors.kafka.protocol.compression import closed, opened
from trueup.connectors.kafka.protocol.record_batch import APPEND_TIME, CODEC, HEADER_BYTES, BatchHeader, assemble
from trueup.connectors.kafka.protocol.varints import varint, zigzag
from trueup.state.common.counts import many
from trueup.state.common.errors import BadBytes


class DenseBatch(NamedTuple):
    """A batch without gaps, and the original offsets of its records."""

    batch: memoryview
    stretches: list[tuple[int, int]]
    """Ranges of original offsets: the first offset, relative to the offset of the original batch, and the number of
    records from there on."""


def dense(header: BatchHeader, batch: memoryview, where: str, first: int = 0) -> DenseBatch:
    """The same records, from the number ``first`` on, with offsets 0, 1, 2 ..., as a producer would send them. Raises
    `BadBytes`.

    If the source's log set the time, every record gets this time explicitly.
    """
    body = opened(header.attributes & CODEC, batch[HEADER_BYTES:], where)
    restamp = bool(header.attributes & APPEND_TIME)
    out, stretches, at = bytearray(), list[tuple[int, int]](), 0
    try:
        for number in range(header.records):
            size, start = varint(body, at)
            at = _within(body, start, start + size)
            time, delta, rest = _deltas(body, start)
            _within(body, rest, at)
            if number < first:
                continue
            _extend(stretches, delta)
            record = body[start : start + 1].tobytes() + zigzag(0 if restamp else time) + zigzag(number - first)
            out += zigzag(len(record) + at - rest) + record + body[rest:at]
    except IndexError as error:
        raise BadBytes(where, at, many(header.records, "record"), "fewer", "read it with another client") from error
    new_header = header._replace(
        offset=0,
        attributes=header.attributes & CODEC,
        last_delta=header.records - first - 1,
        first_ms=header.last_ms if restamp else header.first_ms,
        records=header.records - first,
        leader_epoch=-1,
    )
    return DenseBatch(assemble(new_header, closed(header.attributes & CODEC, out)), stretches)


def marks(header: BatchHeader, batch: memoryview, where: str, appended: bool = True) -> list[tuple[int, int]]:
    """Offset, relative to the batch's, and a hash of time and content of each record. Hashes of one process can be
    compared. ``appended``: the time that the log set, if it did, is the time of each record. Raises `BadBytes`."""
    body, at, hashes = opened(header.attributes & CODEC, batch[HEADER_BYTES:], where), 0, list[tuple[int, int]]()
    restamp = appended and bool(header.attributes & APPEND_TIME)
    try:
        for _ in range(header.records):
            size, start = varint(body, at)
            at = _within(body, start, start + size)
            time, delta, rest = _deltas(body, start)
            _within(body, rest, at)
            hashes.append((delta, hash((header.last_ms if restamp else header.first_ms + time, bytes(body[rest:at])))))
    except IndexError as error:
        raise BadBytes(where, at, many(header.records, "record"), "fewer", "read it with another client") from error
    return hashes


def _deltas(body: memoryview, start: int) -> tuple[int, int, int]:
    time, at = varint(body, start + 1)
    delta, at = varint(body, at)
    return time, delta, at


def _within(body: memoryview, begin: int, end: int) -> int:
    """The end of a part of the records that starts here."""
    if not begin <= end <= len(body):
        raise IndexError("a part with another end")
    return end


def _extend(stretches: list[tuple[int, int]], delta: int) -> None:
    if stretches and sum(stretches[-1]) == delta:
        stretches[-1] = stretches[-1][0], stretches[-1][1] + 1
    else:
        stretches.append((delta, 1))
