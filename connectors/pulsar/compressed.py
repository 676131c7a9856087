"""The format of compressed nodes (MetaStoreImpl): 0x4778, header length, header, compressed message.

The sizes in the header are trusted up to `MOST` bytes, and verified.
"""

import struct
import zlib
from typing import Any

import cramjam
from google.protobuf.message import DecodeError

from trueup.connectors.pulsar.messages import Wrapper
from trueup.state.common.errors import BadBytes

MOST = 1 << 26
NONE, LZ4, ZLIB, ZSTD, SNAPPY = range(5)
_RATIO, _LITTLE = {NONE: 1, LZ4: 255, ZLIB: 1_032, ZSTD: 1 << 15, SNAPPY: 32}, 64
"""Lower bound: no codec compresses a message below this share."""
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
    codec, size = header.compressionType, header.uncompressedSize
    if codec not in range(5) or not 0 <= size <= MOST:
        raise BadBytes(where, _START, f"a codec of 0 to 4 and at most {MOST} bytes", f"{codec} and {size}", _TODO)
    if size > _RATIO[codec] * (len(data) - at) + _LITTLE:
        raise BadBytes(where, at, f"{size} compressed bytes", f"only {len(data) - at}", _TODO)
    try:
        plain = _plain(codec, data[at:], size)
    except (cramjam.DecompressionError, zlib.error) as error:
        raise BadBytes(where, at, f"{size} compressed bytes", str(error), _TODO) from error
    if len(plain) != size:
        raise BadBytes(where, at, f"{size} compressed bytes", f"{len(plain)} or more", _TODO)
    return plain, f"{where}, decompressed"


def closed(message: bytes, codec: int) -> bytes:
    """The bytes as Pulsar would write them. For tests: Trueup never writes such a node."""
    header = Wrapper(compressionType=codec, uncompressedSize=len(message)).SerializeToString()
    return b"".join([_MAGIC, _SIZE.pack(len(header)), header, _compressed(message, codec)])


def _compressed(message: bytes, codec: int) -> bytes:
    if codec == LZ4:
        return bytes(cramjam.lz4.compress_block(message, store_size=False))
    if codec == ZLIB:
        return zlib.compress(message)
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(message))
    return bytes(cramjam.snappy.compress_raw(message)) if codec == SNAPPY else message


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


def _plain(codec: int, body: bytes, size: int) -> bytes:
    """The decompressed bytes, at most ``size`` + 1 of them, whatever the content."""
    if codec == NONE:
        return body
    if codec == ZLIB:
        return zlib.decompressobj().decompress(body, size + 1)
    if codec == SNAPPY:
        # Snappy's length prefix is checked first: the decoder allocates that much.
        long = cramjam.snappy.decompress_raw_len(body) > size
        return bytes(size + 1) if long else bytes(cramjam.snappy.decompress_raw(body))
    out = bytearray(size)
    if codec == LZ4:
        return bytes(out[: cramjam.lz4.decompress_block_into(body, out, output_len=size)])
    return bytes(out[: cramjam.zstd.decompress_into(body, out)])
