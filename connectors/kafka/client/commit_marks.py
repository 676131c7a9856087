"""The metadata of a group offset that a link committed: the path of `GroupCommits`.

Kafka stores a text with each committed offset. A link writes the Base64 form of ``trueup``, the bitmap of the clusters
from which the offset came (32 bits), and the offset (64 bits), in network byte order. A program that reads the metadata
and commits another offset with it does not write a mark, because the mark contains its offset.

Kafka Streams stores Base64 in this place, whose first byte is a version (StreamTask.java; TopicPartitionMetadata.java
from 3.0 on). It logs a warning about an unknown version, but not all releases accept text that is not Base64.
"""

import struct
from base64 import b64decode, b64encode

_FORMAT = struct.Struct(">6sIq")
_NAME = b"trueup"
_HEAD = b64encode(_NAME).decode()
_LENGTH = len(b64encode(bytes(_FORMAT.size)))


def mark(path: int, offset: int) -> str:
    """The metadata of an offset that came from the clusters in ``path``."""
    return b64encode(_FORMAT.pack(_NAME, path, offset)).decode()


def path_of(metadata: str | None, offset: int) -> int:
    """The bitmap of the clusters from which a committed offset came; 0 if no link committed it."""
    if not metadata or not metadata.startswith(_HEAD) or len(metadata) != _LENGTH:
        return 0
    try:
        name, path, marked = _FORMAT.unpack(b64decode(metadata, validate=True))
    except (ValueError, struct.error):
        return 0
    return int(path) if (name, marked) == (_NAME, offset) else 0
