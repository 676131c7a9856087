"""The messages of an entry (ConsumerImpl, messageReceived; MessageImpl; Commands, deSerializeSingleMessageInBatch).

The payload of a batch, decompressed: for each message uint32 length and SingleMessageMetadata, then ``payload_size``
bytes. Keys of the batch itself are not those of its messages; its sequence number, time of the event and null marks
apply to messages without their own.

A producer compresses a message before it cuts it into chunks: a chunk is a part of the compressed bytes, and is
returned as it is, for `chunks.Chunks`. Likewise an encrypted entry, which was compressed before it was encrypted.
"""

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from trueup.connectors.pulsar import codecs
from trueup.connectors.pulsar.protocol import fields
from trueup.connectors.pulsar.protocol.attributes import Pairs, key_of, pairs_of, text_of
from trueup.connectors.pulsar.protocol.entry import ADVICE, Entry
from trueup.state.common.counts import many
from trueup.state.common.errors import BadBytes

MOST = 1 << 27
"""Maximum bytes of a decompressed payload. Larger ones count as damage: the default limit of Pulsar is 5 MB."""
MOST_MESSAGES = 1 << 20
"""Maximum messages of a batch, for the same reason: a message of 6 bytes becomes an object of 300."""
_SIZE = struct.Struct(">I")


class Chunk(NamedTuple):
    """A part of a message."""

    uuid: str
    id: int
    """The number of the part, from 0 to ``count`` - 1."""
    count: int  # type: ignore[assignment]
    """The number of parts of the message."""
    total_size: int
    """The size of all parts as stored, in bytes."""
    codec: int
    """The compression of all parts together (`codecs`)."""
    size: int
    """The size of all parts together without compression, in bytes."""


class Message(NamedTuple):
    """One message. Times are in ms since 1970, or 0 if there is none. Bytes that are not UTF-8 become surrogate escapes
    in text."""

    ledger: int
    entry: int
    batch_index: int
    """The index of the message in its batch, or -1 if it is not in a batch."""
    batch_size: int
    """The number of messages of the entry."""
    key: bytes | None
    """The key, or None if there is none. A key that is marked as base64 but is not base64 stays as it is."""
    ordering_key: bytes | None
    value: bytes | None
    """The value, or None for a null value."""
    properties: Pairs
    """The properties in their order. Names can repeat."""
    publish_ms: int
    event_ms: int
    deliver_at_ms: int
    producer: str
    sequence: int
    """The producer's number of the message."""
    schema_version: bytes | None
    replicated_from: str
    """The cluster that the message was replicated from, or empty."""
    index: int  # type: ignore[assignment]
    """The broker's number of the message (MessageImpl.getIndex), or -1 if there is none."""
    broker_ms: int
    """When the broker received the message."""
    encrypted: bool
    """Whether the value is the encrypted payload of the entry, which may be a batch."""
    txn: tuple[int, int] | None
    """The halves of the id of the transaction, the most significant bits first; None without a transaction."""
    marker: int | None
    """The type of a marker (MarkerType), which is no message of a user; None for other messages."""
    chunk: Chunk | None


def messages_of(entry: Entry, ledger: int, entry_id: int, where: str) -> list[Message]:
    """The messages of an entry, without those that a compaction removed. Raises `BadBytes`."""
    metadata = entry.metadata
    encrypted, chunk = bool(metadata.encryption_keys), _chunk(metadata, where)
    if encrypted or chunk:
        return [_whole(entry, ledger, entry_id, bytes(entry.payload), encrypted, chunk)]
    payload = opened(entry.payload, metadata.compression, metadata.uncompressed_size, where)
    if metadata.HasField("num_messages_in_batch"):
        return _batch(payload, _whole(entry, ledger, entry_id, None), metadata, where)
    return [_whole(entry, ledger, entry_id, None if metadata.null_value else payload)]


def opened(payload: codecs.Bytes, codec: int, size: int, where: str) -> bytes:
    """A payload without its compression. Raises `BadBytes`. The size of one that is not compressed is not read."""
    if codec == codecs.NONE:
        return bytes(payload)
    return codecs.decompressed(payload, codec, size, MOST, codecs.BytePlace(f"the payload of {where}", 0, ADVICE))


def _whole(
    entry: Entry, ledger: int, entry_id: int, value: bytes | None, encrypted: bool = False, chunk: Chunk | None = None
) -> Message:
    """An entry as one message. Fields by position: by name, this would take a third more time."""
    metadata, has = entry.metadata, entry.metadata.HasField
    row = (
        ledger,
        entry_id,
        -1,
        metadata.num_messages_in_batch if has("num_messages_in_batch") else 1,
        key_of(metadata),
        metadata.ordering_key if has("ordering_key") else None,
        value,
        pairs_of(metadata.properties) if metadata.properties else (),
        metadata.publish_time,
        metadata.event_time,
        metadata.deliver_at_time,
        text_of(metadata.producer_name),
        metadata.sequence_id,
        metadata.schema_version if has("schema_version") else None,
        text_of(metadata.replicated_from),
        entry.last_index,
        entry.broker_ms,
        encrypted,
        (metadata.txnid_most_bits, metadata.txnid_least_bits) if has("txnid_most_bits") else None,
        metadata.marker_type if has("marker_type") else None,
        chunk,
    )
    return tuple.__new__(Message, row)


def _batch(payload: bytes, whole: Message, metadata: Any, where: str) -> list[Message]:
    """The messages of a batch. One flat loop over the fields: a call for each would double its time."""
    ledger, entry, _, size, _, _, _, _, publish, event, deliver, producer, sequence, schema, origin = whole[:15]
    last, broker_ms, txn, marker = whole.index, whole.broker_ms, whole.txn, whole.marker
    no_value, no_key, first = metadata.null_value, metadata.null_partition_key, last - size + 1
    single, messages = fields.SingleMessageMetadata(), list[Message]()
    has, add, new = single.HasField, messages.append, tuple.__new__
    for at, (start, end) in enumerate(_parts(payload, size, single, where)):
        if single.compacted_out:
            continue
        null, pairs = single.null_value or (no_value and not has("null_value")), single.properties
        row = (
            ledger,
            entry,
            at,
            size,
            key_of(single, no_key),
            single.ordering_key or (b"" if has("ordering_key") else None),
            None if null else payload[start:end],
            _complete(pairs, single, where) if pairs else (),
            publish,
            single.event_time or (0 if has("event_time") else event),
            deliver,
            producer,
            single.sequence_id or (0 if has("sequence_id") else sequence),
            schema,
            origin,
            -1 if last < 0 else first + at,
            broker_ms,
            False,
            txn,
            marker,
            None,
        )
        add(new(Message, row))
    return messages


def _complete(pairs: Any, single: Any, where: str) -> Pairs:
    """Properties, the only part of a message's metadata with required fields besides ``payload_size``: the check of all
    takes as long as everything else."""
    if not single.IsInitialized():
        raise _bad(where, 0, "properties with names and values", "others")
    return pairs_of(pairs)


def _parts(payload: bytes, count: int, single: Any, where: str) -> Iterator[tuple[int, int]]:
    """For each message of a batch: its metadata, in ``single``, and where its value is."""
    at, whole, has = 0, len(payload), single.HasField
    if not 0 <= count <= MOST_MESSAGES:
        raise _bad(where, at, f"0 to {MOST_MESSAGES} messages", str(count))
    for _ in range(count):
        start = at + _SIZE.size
        if start > whole:
            raise _bad(where, at, many(count, "message"), f"{whole - at} bytes for the next one")
        after = start + _SIZE.unpack_from(payload, at)[0]
        if after > whole:
            raise _bad(where, at, f"a length of at most {whole - start} bytes", str(after - start))
        try:
            single.ParseFromString(payload[start:after])
        except DecodeError as error:
            raise _bad(where, start, "SingleMessageMetadata", "other bytes") from error
        at = after + single.payload_size
        if not after <= at <= whole or not has("payload_size"):
            raise _bad(where, start, f"a message of at most {whole - after} bytes", str(single.payload_size))
        yield after, at
    if at != whole:
        raise _bad(where, at, f"the end after {many(count, 'message')}", f"{whole - at} bytes")


def _bad(where: str, at: int, expected: str, found: str) -> BadBytes:
    return BadBytes(f"the payload of {where}", at, expected, found, ADVICE)


def _chunk(metadata: Any, where: str) -> Chunk | None:
    """The place of this part in its message; None if it is a whole message."""
    count, place = metadata.num_chunks_from_msg, metadata.chunk_id
    if count <= 1:
        return None
    if not 0 <= place < count:
        raise BadBytes(where, 0, f"a chunk of 0 to {count - 1}", str(place), ADVICE)
    uuid = text_of(metadata.uuid)
    return Chunk(uuid, place, count, metadata.total_chunk_msg_size, metadata.compression, metadata.uncompressed_size)
