"""Keys, properties and text of messages (MessageImpl.java, getKeyBytes and getProperties)."""

import base64
import binascii
from typing import Any

Pairs = tuple[tuple[str, str], ...]
"""Names and values; names can repeat."""


def key_of(metadata: Any, null: bool = False) -> bytes | None:
    """The key in metadata of a message, None: none. ``null``: whether the batch says that its messages have none.

    A key that is marked as base64 but is none stays as it is: Pulsar's consumer also gives it as text.
    """
    key: bytes = metadata.partition_key
    if not key and not metadata.HasField("partition_key"):
        return None
    if metadata.null_partition_key or (null and not metadata.HasField("null_partition_key")):
        return None
    return decoded(key) if metadata.partition_key_b64_encoded else key


def decoded(key: bytes) -> bytes:
    """A key without its base64; see `key_of`. Java's decoder accepts text without padding."""
    try:
        return base64.b64decode(key + b"=" * (-len(key) % 4), validate=True)
    except binascii.Error:
        return key


def pairs_of(properties: Any) -> Pairs:
    """Properties in their order."""
    return tuple((text_of(pair.key), text_of(pair.value)) for pair in properties)


def text_of(raw: bytes) -> str:
    """Text. Bytes that are not UTF-8 become surrogate escapes."""
    return raw.decode(errors="surrogateescape")
