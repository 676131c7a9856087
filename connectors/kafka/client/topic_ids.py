"""Fetch and Produce with topic ids (KIP-516), so that a broker refuses a topic that was recreated.

A name does not identify a topic: a topic that is deleted and recreated has the same name, and brokers serve it without
an error. The id differs. Layouts: version 13 of FetchRequest.json, FetchResponse.json (brokers since 3.1),
ProduceRequest.json and ProduceResponse.json (since 4.1) of Kafka's clients/src/main/resources/common/message. All of
them are flexible (KIP-482): lengths are unsigned varints, one more than the actual length, and every structure ends
with tagged fields. Older brokers get names: their topics' ids are read with Metadata version 10 (MetadataRequest.json,
MetadataResponse.json, since 2.8) on the same connection, whose requests a broker processes in order.
"""

import base64
import struct
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import ParamSpec, TypeVar

from trueup.connectors.contract import LogId
from trueup.connectors.kafka.client.connection import Part
from trueup.connectors.kafka.client.fetch_produce import Fetched, FetchStart, Produced, problem, records_of
from trueup.connectors.kafka.protocol.varints import unsigned
from trueup.state.common.errors import BadBytes

BY_ID = 13
"""The first version of Fetch and of Produce with topic ids."""
NOWHERE = 1 << 62
"""An offset beyond every log: a fetch of it only checks whether the leader has the topic."""
METADATA, IDS = 3, 10
"""The API that returns topic ids, and its first version with them."""
SURE_S = 0.2
"""Seconds for which a topic id in a response of a leader counts as its current one: it is not queried again before a
write."""
_FETCH_HEAD = struct.Struct(">xiiiibii")
_FETCH_PARTITION = struct.Struct(">iiqiqix")
_FETCHED_HEAD = struct.Struct(">ihi")
_FETCHED_PARTITION = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qqx")
_PRODUCE_HEAD = struct.Struct(">xxhi")
_PRODUCED_PARTITION = struct.Struct(">ihqqq")
_INT, _SHORT = struct.Struct(">i"), struct.Struct(">h")
_DIVERGING, _DIVERGING_EPOCH = 0, struct.Struct(">iq")
"""The number of the tagged field DivergingEpoch of a partition of FetchResponse, and its layout: the newest epoch of
the leader that is not newer than the one in the request, and the end offset of this epoch."""
_METADATA_PARTITION_BYTES = 14
_ID_BYTES = 16
_NO_ID = bytes(_ID_BYTES)
_NO_EPOCH = -1
_VARINT_BYTES = 5
T = TypeVar("T")
P = ParamSpec("P")


def id_of(text: str) -> bytes:
    """The 16 bytes of a topic id in the form of clients, base64 in either alphabet; empty for the empty text."""
    return base64.urlsafe_b64decode(text.replace("+", "-").replace("/", "_") + "==") if text else b""


def text_of(topic_id: bytes) -> str:
    """A topic id in Kafka's form."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def plain_text_of(topic_id: bytes) -> str:
    """A topic id in librdkafka's form; empty for the zero id."""
    return base64.b64encode(topic_id).decode().rstrip("=") if any(topic_id) else ""


def fetch_by_id(
    topics: Mapping[bytes, Iterable[FetchStart]], partition_bytes: int, total_bytes: int, wait_ms: int, isolation: int
) -> bytes:
    """Like `fetch_produce.fetch_body`, with topic ids, and with the leader epoch of the record before each offset: a
    leader that has another one there says so (KIP-320, KIP-595)."""
    parts = [_FETCH_HEAD.pack(-1, wait_ms, 1, total_bytes, isolation, 0, -1), _size(len(topics))]
    for topic_id, places in topics.items():
        asked = [_FETCH_PARTITION.pack(n, _NO_EPOCH, offset, epoch, -1, partition_bytes) for n, offset, epoch in places]
        parts += (topic_id, _size(len(asked)), *asked, b"\0")
    return b"".join((*parts, _size(0), _size(0), b"\0"))


def produce_by_id(batches: Mapping[LogId, Part], ids: Mapping[str, bytes], wait_ms: int) -> list[Part]:
    """Like `fetch_produce.produce_body`, with topic ids. ``ids``: the id of each topic by its name."""
    topics: dict[str, list[LogId]] = {}
    for partition in batches:
        topics.setdefault(partition.topic, []).append(partition)
    parts: list[Part] = [_PRODUCE_HEAD.pack(-1, wait_ms) + _size(len(topics))]
    for topic, partitions in topics.items():
        parts.append(ids[topic] + _size(len(partitions)))
        for partition in partitions:
            batch = batches[partition]
            parts += (_INT.pack(partition.number) + _size(len(batch)), batch, b"\0")
        parts.append(b"\0")
    parts.append(b"\0")
    return parts


def ids_body(topics: Iterable[str]) -> bytes:
    """A request for the ids of topics. It creates none."""
    asked = [_NO_ID + _size(len(name)) + name + b"\0" for name in (topic.encode() for topic in topics)]
    return b"".join((b"\0", _size(len(asked)), *asked, b"\0\0\0\0"))


def _bounded(decode: Callable[P, T]) -> Callable[P, T]:
    @wraps(decode)
    def decoded(*given: P.args, **more: P.kwargs) -> T:
        try:
            return decode(*given, **more)
        except (struct.error, IndexError, KeyError, UnicodeDecodeError) as error:
            expected, found = "the layout of Kafka's protocol", f"{type(error).__name__}: {error}"
            raise BadBytes("a response from a broker", 0, expected, found, "connect again") from error

    return decoded


@_bounded
def fetched_by_id(body: memoryview, names: Mapping[bytes, str]) -> dict[LogId, Fetched]:
    """Parse a response to `fetch_by_id`. ``names``: the names of the requested topics by id. See
    `fetch_produce.fetched`."""
    answers: dict[LogId, Fetched] = {}
    _, error, _ = _FETCHED_HEAD.unpack_from(body, at := _tags(body, 0))
    if error:
        raise problem(error, "fetch records")
    topics, at = _count(body, at + _FETCHED_HEAD.size)
    for _ in range(topics):
        name = names[bytes(body[at : at + _ID_BYTES])]
        partitions, at = _count(body, at + _ID_BYTES)
        for _ in range(partitions):
            number, error, end, _stable, start = _FETCHED_PARTITION.unpack_from(body, at)
            count, at = _count(body, at + _FETCHED_PARTITION.size)
            aborted = [_ABORTED.unpack_from(body, at + _ABORTED.size * n) for n in range(count)]
            at += _ABORTED.size * count + 4  # the preferred replica
            size, at = _count(body, at)
            records, (differs_from, at) = records_of(body, at, size), _difference(body, at + size)
            answers[LogId(name, number)] = Fetched(error, end, start, aborted, records, differs_from)
        at = _tags(body, at)
    return answers


@_bounded
def produced_by_id(body: memoryview, names: Mapping[bytes, str]) -> dict[LogId, Produced]:
    """Parse a response to `produce_by_id`. ``names``: the names of the written topics by id. Raises `BadBytes`."""
    answers: dict[LogId, Produced] = {}
    topics, at = _count(body, _tags(body, 0))
    for _ in range(topics):
        name = names[bytes(body[at : at + _ID_BYTES])]
        partitions, at = _count(body, at + _ID_BYTES)
        for _ in range(partitions):
            number, error, offset, _appended, _start = _PRODUCED_PARTITION.unpack_from(body, at)
            wrong, at = _count(body, at + _PRODUCED_PARTITION.size)
            for _ in range(wrong):
                size, at = _count(body, at + 4)
                at = _tags(body, at + size)
            size, at = _count(body, at)
            at = _tags(body, at + size)
            answers[LogId(name, number)] = Produced(error, offset)
        at = _tags(body, at)
    return answers


@_bounded
def ids_found(body: memoryview) -> dict[str, bytes]:
    """Parse a response to `ids_body`; empty for a topic that the broker does not know, or that has no id. Raises
    `BadBytes`."""
    brokers, at = _count(body, _tags(body, 0) + _INT.size)
    for _ in range(brokers):
        at = _text_end(body, at + _INT.size) + _INT.size
        at = _tags(body, _text_end(body, at))
    topics, at = _count(body, _text_end(body, at) + _INT.size)
    ids: dict[str, bytes] = {}
    for _ in range(topics):
        (error,), at = _SHORT.unpack_from(body, at), at + _SHORT.size
        size, at = _count(body, at)
        name, at = str(body[at : at + size], "utf-8"), at + size
        topic_id, at = bytes(body[at : at + _ID_BYTES]), at + _ID_BYTES + 1
        ids[name] = b"" if error or topic_id == _NO_ID else topic_id
        partitions, at = _count(body, at)
        for _ in range(partitions):
            at += _METADATA_PARTITION_BYTES
            for _ in ("replicas", "in sync", "offline"):
                count, at = _count(body, at)
                at += _INT.size * count
            at = _tags(body, at)
        at = _tags(body, at + _INT.size)
    return ids


def _text_end(body: memoryview, at: int) -> int:
    size, at = _count(body, at)
    return at + size


def _size(count: int) -> bytes:
    """A length plus one, as an unsigned varint."""
    return unsigned(count + 1)


def _varint(body: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for n in range(_VARINT_BYTES):
        byte = body[at + n]
        value |= (byte & 0x7F) << 7 * n
        if byte < 0x80:
            return value, at + n + 1
    raise IndexError(f"a varint of more than {_VARINT_BYTES} bytes")


def _count(body: memoryview, at: int) -> tuple[int, int]:
    """A length (0 for null) within the rest of the response."""
    value, at = _varint(body, at)
    count = max(0, value - 1)
    if count > len(body) - at:
        raise IndexError(f"a length of {count} with {len(body) - at} bytes left")
    return count, at


def _tags(body: memoryview, at: int) -> int:
    """Skip tagged fields."""
    return _tagged(body, at)[1]


def _tagged(body: memoryview, at: int) -> tuple[dict[int, int], int]:
    """Tagged fields: where each of them begins, by its number, and where they end."""
    count, at = _varint(body, at)
    starts = dict[int, int]()
    for _ in range(min(count, len(body))):
        number, at = _varint(body, at)
        size, at = _varint(body, at)
        starts[number], at = at, at + size
    return starts, at


def _difference(body: memoryview, at: int) -> tuple[int, int]:
    """`Fetched.differs_from` in the tagged fields of a partition, and where they end."""
    fields, end = _tagged(body, at)
    if _DIVERGING not in fields:
        return -1, end
    _epoch, offset = _DIVERGING_EPOCH.unpack_from(body, fields[_DIVERGING])
    return max(0, offset), end
