"""Compressed bodies (CompressionType.java): zlib, lz4 frames, zstd; the type is in the system flag."""

import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import cramjam

from trueup.connectors.compression import lz4_frame, lz4_frame_of, whole
from trueup.connectors.rocketmq.protocol import flags
from trueup.state.common.errors import BadBytes

LZ4, ZSTD, ZLIB = 1, 2, 3
_WRITERS: Mapping[int, Callable[[bytes], Any]] = {LZ4: lz4_frame_of, ZSTD: cramjam.zstd.compress, ZLIB: zlib.compress}
_OLD_ZLIB = 0
"""Clients before 4.9.3 compress with zlib and set no type."""
MOST = 1 << 26
"""Maximum bytes of one body. Larger ones count as damage: 8 KB of zstd can contain 800 MB."""


def opened(body: memoryview | bytes, sys: int, where: str) -> memoryview | bytes:
    """The body of a message with this system flag, decompressed if it is compressed. Raises `BadBytes`."""
    if not sys & flags.COMPRESSED:
        return body
    kind = (sys & flags.COMPRESSION) >> flags.COMPRESSION_SHIFT
    try:
        if kind in (_OLD_ZLIB, ZLIB):
            return _inflated(body)
        if kind == LZ4:
            return lz4_frame(memoryview(body), MOST)
        if kind == ZSTD:
            return whole(cramjam.zstd, memoryview(body), MOST)
    except (cramjam.DecompressionError, zlib.error, struct.error, ValueError) as error:
        raise BadBytes(where, 0, "a compressed body", str(error), "read it with another client") from error
    raise BadBytes(where, 0, "a compression type of 0 to 3", str(kind), "read it with another client")


def closed(body: bytes, kind: int) -> tuple[bytes, int]:
    """The compressed body and the bits of its system flag. ``kind``: `LZ4`, `ZSTD` or `ZLIB`."""
    return bytes(_WRITERS[kind](body)), flags.COMPRESSED | kind << flags.COMPRESSION_SHIFT


def _inflated(body: memoryview | bytes) -> bytes:
    stream = zlib.decompressobj()
    content = stream.decompress(body, MOST + 1)
    if len(content) > MOST:
        raise ValueError(f"more than {MOST} bytes")
    if not stream.eof:
        raise ValueError("a truncated stream")
    return content
