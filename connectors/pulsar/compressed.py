"""The format of compressed nodes (MetaStoreImpl): 0x4778, header length, header, compressed message.

The sizes in the header are trusted up to `MOST` bytes, and verified.
"""

import struct
from typing import Any

from google.protobuf.message import DecodeError

from trueup.connectors.pulsar import codecs
from trueup.connectors.pulsar.messages import Wrapper
from trueup.state.common.errors import BadBytes

MOST = 1 << 23
"""50,000 ledgers with offloads. A node of a few kB can be as large when it is decompressed."""
_MAGIC = b"\x47\x78"
"""No message starts like this: it would be field 8 with wire type 7, which does not exist."""
_SIZE = struct.Struct(">i")
_START = len(_MAGIC) + _SIZE.size
_TODO = "restore it from a backup; nothing of its owner is deleted until then"


def opened(data: bytes, where: str) -> tuple[bytes, str]:
    """The message in these bytes, and its name in errors. Raises `BadBytes`."""
    if not data.startswith(_MAGIC):
        return data, where
    header, at = _header(data, where)
    place = codecs.BytePlace(where, at, _TODO)
    plain = codecs.decompressed(data[at:], header.compressionType, header.uncompressedSize, MOST, place)
    return plain, f"{where}, decompressed"


def closed(message: bytes, codec: int) -> bytes:
    """The bytes as Pulsar would write them. For tests: Trueup never writes such a node."""
    header = Wrapper(compressionType=codec, uncompressedSize=len(message)).SerializeToString()
    return b"".join([_MAGIC, _SIZE.pack(len(header)), header, codecs.compressed(message, codec)])


def _header(data: bytes, where: str) -> tuple[Any, int]:
    """The header, and the offset of the compressed message."""
    size = _SIZE.unpack_from(data, len(_MAGIC))[0] if len(data) >= _START else -1
    if not 0 <= size <= len(data) - _START:
        raise BadBytes(where, len(_MAGIC), f"the length of a header of at most {len(data)} bytes", str(size), _TODO)
    header = Wrapper()
    try:
        header.ParseFromString(data[_START : _START + size])
    except DecodeError as error:
        raise BadBytes(where, _START, "the header of a compressed message", "other bytes", _TODO) from error
    if not header.IsInitialized():
        raise BadBytes(where, _START, "a codec and a size", "none", _TODO)
    return header, _START + size
