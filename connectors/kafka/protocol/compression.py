"""Compressed records of a batch (CompressionType.java): gzip, snappy, lz4 frames, zstd."""

import struct
import zlib
from typing import Any

import cramjam
import numpy as np

from trueup.state.common.errors import BadBytes

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
_XERIAL = b"\x82SNAPPY\x00"
"""Snappy framing of Java clients (xerial snappy-java): magic, version, compatible version, then length and block."""
_XERIAL_BYTES = 16
_INT = struct.Struct(">i")
_GZIP_WINDOW = 16 + zlib.MAX_WBITS
_LZ4_HEAD = struct.Struct("<IBB")
_LZ4_MAGIC, _LZ4_INDEPENDENT, _LZ4_PLAIN = 0x184D2204, 0x20, 1 << 31
_LZ4_BLOCK_SIZE = struct.Struct("<I")
_FASTEST = 1
"""The level of lz4 that clients use. The default of the library takes three times as long for two percent."""
_FULL = "failed to write whole buffer"
"""cramjam's error when the output exceeds the buffer."""
MOST = 1 << 27
"""Maximum bytes of records in one batch. Larger batches count as damage: 8 KB of zstd can contain 800 MB."""
_SNAPPY_RATIO, _GUESS, _LEAST = 32, 8, 1 << 16


def opened(codec: int, body: memoryview, where: str, most: int = 0) -> memoryview:
    """The decompressed records. ``most`` > 0: about this number of bytes from the start is enough.

    Raises `BadBytes`.
    """
    try:
        if codec == NONE:
            return body
        if codec == GZIP:
            return _bounded(memoryview(zlib.decompressobj(_GZIP_WINDOW).decompress(body, most or MOST + 1)))
        if codec == SNAPPY:
            return _snappy(body, most)
        if codec == LZ4:
            return _lz4(body, most)
        if codec == ZSTD:
            return _zstd_start(body, most) if most else _whole(cramjam.zstd, body)
    except (cramjam.DecompressionError, zlib.error, struct.error, ValueError) as error:
        raise BadBytes(where, 61, f"{NAMES[codec]} data", str(error), "read it with another client") from error
    raise BadBytes(where, 21, "a codec of 0 to 4", str(codec), "read it with another client")


def closed(codec: int, body: bytes | bytearray | memoryview) -> bytes:
    """Records compressed in a form that every client can read: lz4 in independent blocks, as Java requires."""
    if codec == GZIP:
        return bytes(cramjam.gzip.compress(body))
    if codec == SNAPPY:
        return bytes(cramjam.snappy.compress_raw(body))
    if codec == LZ4:
        # A batch has a checksum of its own; Java's clients write frames without one, too.
        compressor = cramjam.lz4.Compressor(level=_FASTEST, block_linked=False, content_checksum=False)
        compressor.compress(bytes(body))
        return bytes(compressor.finish())
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(body))
    return bytes(body)


def _whole(codec: Any, body: memoryview) -> memoryview:
    """All records, in a buffer that grows with them."""
    room = max(_LEAST, _GUESS * len(body))
    while True:
        room = min(room, MOST + 1)
        out = np.empty(room, np.uint8)  # most of it is never touched
        try:
            return _bounded(out.data[: codec.decompress_into(body, out)])
        except cramjam.DecompressionError as error:
            if str(error) != _FULL:
                raise
            _bounded(out.data)
        room *= 4


def _bounded(found: memoryview) -> memoryview:
    if len(found) > MOST:
        raise ValueError(f"more than {MOST} bytes")
    return found


def _snappy_block(block: memoryview) -> memoryview:
    """One block, which contains its size; snappy never exceeds a ratio of 32."""
    size = cramjam.snappy.decompress_raw_len(block)
    if size > min(MOST, _SNAPPY_RATIO * (len(block) + 2)):
        raise ValueError(f"{len(block)} bytes with a declared size of {size}")
    return memoryview(cramjam.snappy.decompress_raw(block))


def _lz4(body: memoryview, most: int) -> memoryview:
    """The blocks of a frame (lz4_Frame_format.md): magic, flags, block size, optional content size and dictionary id, a
    checksum, then blocks after their sizes, each optionally before its checksum. The library's own reader of frames
    takes ten times as long for small ones; it reads those whose blocks need the ones before them. Checksums are not
    compared: that of the batch includes them."""
    magic, flags, sizes = _LZ4_HEAD.unpack_from(body)
    if magic != _LZ4_MAGIC or not 4 <= sizes >> 4 <= 7:
        raise ValueError(f"not an lz4 frame: {bytes(body[:6]).hex()}")
    if not flags & _LZ4_INDEPENDENT and not most:
        return _whole(cramjam.lz4, body)
    largest, parts, length = 1 << 8 + 2 * (sizes >> 4), list[memoryview](), 0
    at = _LZ4_HEAD.size + 8 * (flags >> 3 & 1) + 4 * (flags & 1) + 1
    while (size := _LZ4_BLOCK_SIZE.unpack_from(body, at)[0]) and (not most or length < most):
        at += 4
        end = at + (size & ~_LZ4_PLAIN)
        if not at < end <= len(body):
            raise ValueError(f"a block of {end - at} bytes")
        parts.append(body[at:end] if size & _LZ4_PLAIN else _lz4_block(body[at:end], largest))
        length, at = length + len(parts[-1]), end + 4 * (flags >> 4 & 1)
        if length > MOST or not flags & _LZ4_INDEPENDENT:
            break
    return _bounded(parts[0] if len(parts) == 1 else memoryview(b"".join(parts)))


def _lz4_block(block: memoryview, largest: int) -> memoryview:
    """A block of a frame whose blocks have at most ``largest`` bytes."""
    out = np.empty(min(largest, _GUESS * len(block)), np.uint8)
    try:
        return out.data[: cramjam.lz4.decompress_block_into(block, out.data)]
    except cramjam.DecompressionError:
        if len(out) == largest:
            raise
    out = np.empty(largest, np.uint8)
    return out.data[: cramjam.lz4.decompress_block_into(block, out.data)]


def _zstd_start(body: memoryview, most: int) -> memoryview:
    out = bytearray(most)
    try:
        return memoryview(out)[: cramjam.zstd.decompress_into(body, out)]
    except cramjam.DecompressionError as error:
        if str(error) != _FULL:
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
    return _bounded(memoryview(b"".join(parts)))
