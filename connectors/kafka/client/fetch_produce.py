"""Fetch and Produce requests as bytes, and the reactions to error codes of brokers.

Layouts: FetchRequest.json, FetchResponse.json (version 10), ProduceRequest.json, ProduceResponse.json (version 7) of
Kafka's clients/src/main/resources/common/message: the first versions with zstd (KIP-110), in brokers since 2.1.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kafka.errors import for_code

from trueup.connectors.contract import LogId
from trueup.connectors.kafka.client.connection import Part
from trueup.state.common.errors import BadBytes, Retry, Stop, TrueupError

PRODUCE, PRODUCE_VERSION = 0, 7
FETCH, FETCH_VERSION = 1, 10
OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC, UNKNOWN_ID, INCONSISTENT_ID = 1, 3, 100, 103
UNCOMMITTED, COMMITTED = 0, 1

_NO_TRANSACTION_ALL_REPLICAS = struct.Struct(">hhii")
_FETCH_HEAD = struct.Struct(">iiiibiii")
_FETCH_PARTITION = struct.Struct(">iiqqi")
_ANSWER_PARTITION = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_PRODUCE_PARTITION = struct.Struct(">ii")
_PRODUCED = struct.Struct(">ihqqq")
_NO_SESSION, _ANY_EPOCH = (0, -1), -1
_FETCHED_HEAD = struct.Struct(">ihi")
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_NONE = _INT.pack(0)
_SMALL_PART = 8
"""A part of a response is small if the response is more than this number of times larger."""

_ASK_AGAIN = {2, 45, 46, 59}
"""CORRUPT_MESSAGE, and sequence errors: the partition's position at the target is read again."""
_HINTS: Mapping[int, str] = {
    3: "create the topic or its partitions, or exclude it from the link",
    10: "increase max.message.bytes of the target topic",
    18: "increase segment.bytes of the target topic",
    29: "grant READ and DESCRIBE at the source, WRITE, READ and DESCRIBE at the target",
    31: "grant IDEMPOTENT_WRITE on the cluster, or WRITE on the topic, at the target",
    43: "set message.format.version of the target topic, and inter.broker.protocol.version there, to 0.11 or later",
    32: "align message.timestamp.before.max.ms and message.timestamp.after.max.ms with the source",
    87: "a compacted target refuses records without keys: align cleanup.policy with the source",
}


class FetchStart(NamedTuple):
    """Where a fetch of a partition begins."""

    number: int
    """The number of the partition."""
    offset: int
    epoch: int = -1
    """The leader epoch of the record before the offset; -1: unknown. Not part of `fetch_body`."""


class Fetched(NamedTuple):
    """The response for one partition."""

    error: int
    end: int
    start: int
    aborted: Sequence[tuple[int, int]]
    """The producer id and the first offset of each aborted transaction."""
    records: memoryview
    """Whole record batches as writable bytes. Only the last batch may be truncated."""
    differs_from: int = -1
    """The offset from which the leader has other records, or none, than those that were read up to the requested offset
    (KIP-320). Then there are no records in the response. -1: no difference is known."""


class Produced(NamedTuple):
    """The response for one batch of a partition."""

    error: int
    offset: int
    """The offset of the first record of the batch."""


def fetch_body(
    topics: Mapping[str, Iterable[FetchStart]], partition_bytes: int, total_bytes: int, wait_ms: int, isolation: int
) -> bytes:
    """A request for partitions of topics: at most ``partition_bytes`` per partition, ``total_bytes`` in total; answered
    as soon as there is a byte, or after ``wait_ms``. The first batch is returned whole, whatever its size."""
    parts = [_FETCH_HEAD.pack(-1, wait_ms, 1, total_bytes, isolation, *_NO_SESSION, len(topics))]
    for topic, places in topics.items():
        asked = [_FETCH_PARTITION.pack(place.number, _ANY_EPOCH, place.offset, -1, partition_bytes) for place in places]
        parts += (text(topic), _INT.pack(len(asked)), *asked)
    return b"".join((*parts, _INT.pack(0)))


def fetched(body: memoryview) -> dict[LogId, Fetched]:
    """Parse a response to `fetch_body`. A broker that limits the client may return no partition. Raises `BadBytes`, and
    the `problem` of an error of the whole response."""
    answers: dict[LogId, Fetched] = {}
    _, error, _ = _unpacked(_FETCHED_HEAD, body, 0)
    if error:
        raise problem(error, "fetch records")
    topics, at = _counted(body, _FETCHED_HEAD.size)
    for _ in range(topics):
        topic, at = _text(body, at)
        partitions, at = _counted(body, at)
        for _ in range(partitions):
            number, error, end, _stable, start = _unpacked(_ANSWER_PARTITION, body, at)
            count, at = _counted(body, at + _ANSWER_PARTITION.size, _ABORTED.size)
            aborted = [_ABORTED.unpack_from(body, at + _ABORTED.size * n) for n in range(count)] if count else ()
            size, at = _counted(body, at + _ABORTED.size * count)
            answers[LogId(topic, number)] = Fetched(error, end, start, aborted, records_of(body, at, size))
            at += size
    return answers


def records_of(body: memoryview, at: int, size: int) -> memoryview:
    """The writable bytes of the records at a place of a response. They are a view of the response, unless they are a
    small part of it: records wait for their target, and a view keeps the whole response in memory."""
    records = body[at : at + size]
    return memoryview(bytearray(records)) if _SMALL_PART * size < len(body) else records


def produce_body(batches: Mapping[LogId, Part], wait_ms: int) -> list[Part]:
    """A request with one batch per partition, acknowledged by all in-sync replicas within ``wait_ms``. Returned in
    pieces: the batches are not copied."""
    topics: dict[str, list[LogId]] = {}
    for partition in batches:
        topics.setdefault(partition.topic, []).append(partition)
    parts: list[Part] = [_NO_TRANSACTION_ALL_REPLICAS.pack(-1, -1, wait_ms, len(topics))]
    for topic, partitions in topics.items():
        parts.append(text(topic) + _INT.pack(len(partitions)))
        for partition in partitions:
            batch = batches[partition]
            parts += (_PRODUCE_PARTITION.pack(partition.number, len(batch)), batch)
    return parts


def produced(body: memoryview) -> dict[LogId, Produced]:
    """Parse a response to `produce_body`."""
    answers: dict[LogId, Produced] = {}
    topics, at = _counted(body, 0)
    for _ in range(topics):
        topic, at = _text(body, at)
        partitions, at = _counted(body, at)
        for _ in range(partitions):
            number, error, offset, _appended, _start = _unpacked(_PRODUCED, body, at)
            at += _PRODUCED.size
            answers[LogId(topic, number)] = Produced(error, offset)
    return answers


class UnknownTopic(Retry):
    """A topic or partition that brokers do not know: usually permanent, but transient after its creation."""


def problem(code: int, doing: str) -> TrueupError:
    """The meaning of an error code for one partition: `Retry`, or `Stop` if an operator must change something."""
    kind = for_code(code)
    found = f"error {code} {kind.__name__.removesuffix('Error')}"
    if code in (UNKNOWN_TOPIC, UNKNOWN_ID, INCONSISTENT_ID):
        return UnknownTopic(f"to {doing}", found, _HINTS[UNKNOWN_TOPIC])
    if kind.retriable or code in _ASK_AGAIN or code == OFFSET_OUT_OF_RANGE:
        return Retry(f"to {doing}", found, _HINTS.get(code, "check the brokers; retrying"))
    return Stop(f"to {doing}", found, _HINTS.get(code, "check the broker's log"))


def other_records(where: str, read: int, start: int) -> Stop:
    """The error for a partition whose leader does not have the records that were read. ``read``: the offset up to which
    they were read; ``start``: `Fetched.differs_from`."""
    return Stop(
        f"the records of {where} before offset {read} as they were read",
        f"others from offset {start} on: a leader that was elected without being in sync did not have them",
        f"reset this partition of the link to source offset {start}, which copies the other records too",
    )


def text(value: str) -> bytes:
    """STRING."""
    raw = value.encode()
    return _SHORT.pack(len(raw)) + raw


def _text(body: memoryview, at: int) -> tuple[str, int]:
    (size,), at = _unpacked(_SHORT, body, at), at + _SHORT.size
    try:
        if 0 <= size <= len(body) - at:
            return str(body[at : at + size], "utf-8"), at + size
    except UnicodeDecodeError:
        pass
    raise _bad_bytes(at, "the name of a topic")


def _counted(body: memoryview, at: int, size: int = 1) -> tuple[int, int]:
    """The number of items of at least ``size`` bytes, and their offset; null counts as none."""
    (count,), at = _unpacked(_INT, body, at), at + _INT.size
    if not -1 <= count <= (len(body) - at) // size:
        raise _bad_bytes(at, f"a count of items of {size} bytes within the response")
    return max(count, 0), at


def _unpacked(form: struct.Struct, body: memoryview, at: int) -> tuple[Any, ...]:
    if at + form.size > len(body):
        raise _bad_bytes(at, f"{form.size} bytes")
    return form.unpack_from(body, at)


def _bad_bytes(at: int, expected: str) -> BadBytes:
    return BadBytes("a response from a broker", at, expected, "other bytes", "check the address")
