"""Entries as Pulsar's producers and brokers write them (Commands.java, BatchMessageContainerImpl)."""

import struct
from collections.abc import Sequence
from typing import Any

from crc32c import crc32c

from trueup.connectors.pulsar import codecs
from trueup.connectors.pulsar.protocol import fields
from trueup.connectors.pulsar.protocol.entry import entry_of
from trueup.connectors.pulsar.protocol.message import Message, messages_of

WHERE = "entry 3 of ledger 7"
REQUIRED = {"producer_name": b"p", "sequence_id": 5, "publish_time": 1_000}
Pairs = Sequence[tuple[bytes, bytes]]
Part = tuple[bytes, dict[str, Any]]
"""The value of a message in a batch, and fields of its metadata."""


def sized(message: Any) -> bytes:
    raw: bytes = message.SerializeToString()
    return struct.pack(">I", len(raw)) + raw


def filled(message: Any, given: dict[str, Any]) -> Any:
    """A message with these fields; ``properties`` are pairs."""
    for name, value in given.items():
        if name == "properties":
            for key, text in value:
                message.properties.add(key=key, value=text)
        elif name == "encryption_keys":
            message.encryption_keys.extend(value)
        else:
            setattr(message, name, value)
    return message


def batch(parts: Sequence[Part]) -> bytes:
    found = []
    for value, given in parts:
        one = filled(fields.SingleMessageMetadata(), {"payload_size": len(value), **given})
        found += [sized(one), value]
    return b"".join(found)


def encoded(
    payload: bytes, codec: int = codecs.NONE, broker: dict[str, int] | None = None, checksum: bool = True, **given: Any
) -> bytes:
    """An entry with this payload, which is compressed here."""
    size = {"compression": codec, "uncompressed_size": len(payload)} if codec else {}
    metadata = filled(fields.MessageMetadata(), REQUIRED | size | given)
    data = sized(metadata) + codecs.compressed(payload, codec)
    if checksum:
        data = b"\x0e\x01" + struct.pack(">I", crc32c(data)) + data
    if broker is not None:
        data = b"\x0e\x02" + sized(filled(fields.BrokerEntryMetadata(), dict(broker))) + data
    return data


def batched(parts: Sequence[Part], **given: Any) -> bytes:
    """An entry with these messages in a batch."""
    return encoded(batch(parts), **{"num_messages_in_batch": len(parts), **given})


def read(data: bytes) -> list[Message]:
    return messages_of(entry_of(memoryview(data), WHERE), 7, 3, WHERE)
