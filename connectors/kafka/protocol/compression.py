"""Compressed records of a batch (CompressionType.java): gzip, snappy, lz4 frames, zstd."""

import struct
import zlib

import cramjam

from trueup.connectors.compression import FULL, bounded, lz4_frame, lz4_frame_of, whole
from trueup.state.common.errors import BadBytes

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
_XERIAL = b"\x82SNAPPY\x00"
"""Snappy framing of Java clients (xerial snappy-java): magic, version, compatible version, then length and block."""
_XERIAL_BYTES = 16
_INT = struct.Struct(">i")
_GZIP_WINDOW = 16 + zlib.MAX_WBITS
MOST = 1 << 27
"""Maximum bytes of records in one batch. Larger batches count as damage: 8 KB of zstd can contain 800 MB."""
_SNAPPY_RATIO = 32


def opened(codec: int, body: memoryview, where: str, most: int = 0) -> memoryview:
    """The decompressed records. ``most`` > 0: about this number of bytes from the start is enough.

    Raises `BadBytes`.
    """
    try:
        if codec == NONE:
            return body
        if codec == GZIP:
            return bounded(memoryview(zlib.decompressobj(_GZIP_WINDOW).decompress(body, most or MOST + 1)), MOST)
        if codec == SNAPPY:
            return _snappy(body, most)
        if codec == LZ4:
            return lz4_frame(body, MOST, most)
        if codec == ZSTD:
            return _zstd_start(body, most) if most else whole(cramjam.zstd, body, MOST)
    except (cramjam.DecompressionError, zlib.error, struct.error, ValueError) as error:
        raise BadBytes(where, 61, f"{NAMES[codec]} data", str(error), "read it with another client") from error
    raise BadBytes(where, 21, "a codec of 0 to 4", str(codec), "read it with another client")


def closed(codec: int, body: bytes | bytearray | memoryview) -> bytes:
    """Records compressed in a form that every client can read."""
    if codec == GZIP:
        return bytes(cramjam.gzip.compress(body))
    if codec == SNAPPY:
        return bytes(cramjam.snappy.compress_raw(body))
    if codec == LZ4:
        return lz4_frame_of(body)
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(body))
    return bytes(body)


def _snappy_block(block: memoryview) -> memoryview:
    """One block, which contains its size; snappy never exceeds a ratio of 32."""
    size = cramjam.snappy.decompress_raw_len(block)
    if size > min(MOST, _SNAPPY_RATIO * (len(block) + 2)):
        raise ValueError(f"{len(block)} bytes with a declared size of {size}")
    return memoryview(cramjam.snappy.decompress_raw(block))


def _zstd_start(body: memoryview, most: int) -> memoryview:
    out = bytearray(most)
    try:
        return memoryview(out)[: cramjam.zstd.decompress_into(body, out)]
    except cramjam.DecompressionError as error:
        if str(error) != FULL:
            raise
    return memoryview(out)


def _snappy(body: memoryview, most: int) -> memoryview:
    if body[: len(_XERIAL)] != _XERIAL:
        return _snappy_block(body)
    parts, at, length = [], _XERIAL_BYTES, 0
    while at < len(body) and length < (most or MOST + 1):
        size = _INT.unpack_from(body, at)[0]
        if not 0 < size <= len(body) - at - 4:
            raise ValueError(f"a block of {size} bytes")
        parts.append(_snappy_block(body[at + 4 : at + 4 + size]))
        length += len(parts[-1])
        at += 4 + size
    return bounded(memoryview(b"".join(parts)), MOST)
