"""Compressed records of a batch (CompressionType.java): gzip, snappy, lz4 frames, zstd."""

import struct
import zlib
from typing import Any

import cramjam

from state.errors import BadBytes

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
_XERIAL = b"\x82SNAPPY\x00"
"""How Java clients frame snappy (xerial snappy-java): magic, version, compatible version, then length and block."""
_XERIAL_BYTES = 16
_INT = struct.Struct(">i")
_GZIP_WINDOW = 16 + zlib.MAX_WBITS


def opened(codec: int, body: memoryview, where: str, most: int = 0) -> memoryview:
    """The records. ``most`` > 0: so many bytes suffice (saves work with gzip). Raises `BadBytes`."""
    try:
        if codec == NONE:
            return body
        if codec == GZIP:
            return memoryview(zlib.decompressobj(_GZIP_WINDOW).decompress(body, most))
        if codec == SNAPPY:
            return _snappy(body)
        if codec in (LZ4, ZSTD):
            whole: Any = (cramjam.lz4 if codec == LZ4 else cramjam.zstd).decompress(bytes(body))
            return memoryview(bytes(whole))
    except (cramjam.DecompressionError, zlib.error, struct.error, ValueError) as error:
        raise BadBytes(where, 61, f"{NAMES[codec]} data", str(error), "read it with another client") from error
    raise BadBytes(where, 21, "a codec of 0 to 4", str(codec), "read it with another client")


def closed(codec: int, body: bytes | bytearray) -> bytes:
    """Records compressed as any client can read them: lz4 in independent blocks, as Java demands."""
    if codec == GZIP:
        return bytes(cramjam.gzip.compress(body))
    if codec == SNAPPY:
        return bytes(cramjam.snappy.compress_raw(body))
    if codec == LZ4:
        compressor = cramjam.lz4.Compressor(block_linked=False)
        compressor.compress(bytes(body))
        return bytes(compressor.finish())
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(body))
    return bytes(body)


def _snappy(body: memoryview) -> memoryview:
    if body[: len(_XERIAL)] != _XERIAL:
        return memoryview(bytes(cramjam.snappy.decompress_raw(bytes(body))))
    parts, at = [], _XERIAL_BYTES
    while at < len(body):
        size = _INT.unpack_from(body, at)[0]
        parts.append(bytes(cramjam.snappy.decompress_raw(bytes(body[at + 4 : at + 4 + size]))))
        at += 4 + size
    return memoryview(b"".join(parts))
