"""Compression of messages and of nodes (CompressionType and CompressionCodecProvider): LZ4 blocks, ZLIB streams, ZSTD
frames, and SNAPPY without frames.

Pulsar stores the size of the content beside the compressed bytes. It is trusted up to a bound, and verified.
"""

import zlib
from typing import NamedTuple

import cramjam

from trueup.state.common.errors import BadBytes

NONE, LZ4, ZLIB, ZSTD, SNAPPY = range(5)
_RATIO, _LITTLE = {NONE: 1, LZ4: 255, ZLIB: 1_032, ZSTD: 1 << 15, SNAPPY: 32}, 64
"""Lower bound: no codec compresses content below this share."""
Bytes = bytes | memoryview


class BytePlace(NamedTuple):
    """Where compressed bytes start, for errors."""

    where: str
    """What contains the bytes."""
    at: int
    """The offset of the first compressed byte."""
    todo: str
    """What to do about an error."""


def decompressed(body: Bytes, codec: int, size: int, most: int, place: BytePlace) -> bytes:
    """The content, of exactly ``size`` bytes, which are at most ``most``. Raises `BadBytes`."""
    where, at, todo = place
    if codec not in _RATIO or not 0 <= size <= most:
        raise BadBytes(where, at, f"a codec of 0 to 4 and at most {most} bytes", f"{codec} and {size}", todo)
    if size > _RATIO[codec] * len(body) + _LITTLE:
        raise BadBytes(where, at, f"{size} compressed bytes", f"only {len(body)}", todo)
    try:
        plain = _plain(codec, body, size)
    except (cramjam.DecompressionError, zlib.error) as error:
        raise BadBytes(where, at, f"{size} compressed bytes", str(error), todo) from error
    if len(plain) != size:
        raise BadBytes(where, at, f"{size} compressed bytes", f"{len(plain)} or more", todo)
    return plain


def compressed(content: bytes, codec: int) -> bytes:
    """The bytes as Pulsar would write them. For tests: Trueup writes messages with Pulsar's client."""
    if codec == LZ4:
        return bytes(cramjam.lz4.compress_block(content, store_size=False))
    if codec == ZLIB:
        return zlib.compress(content)
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(content))
    return bytes(cramjam.snappy.compress_raw(content)) if codec == SNAPPY else content


def _plain(codec: int, body: Bytes, size: int) -> bytes:
    """The decompressed bytes, at most ``size`` + 1 of them, whatever the content."""
    if codec == NONE:
        return bytes(body)
    if codec == ZLIB:
        return zlib.decompressobj().decompress(body, size + 1)
    if codec == SNAPPY:
        # Snappy's length prefix is checked first: the decoder allocates that much.
        long = cramjam.snappy.decompress_raw_len(body) > size
        return bytes(size + 1) if long else bytes(cramjam.snappy.decompress_raw(body))
    out = bytearray(size)
    if codec == LZ4:
        return bytes(memoryview(out)[: cramjam.lz4.decompress_block_into(body, out, output_len=size)])
    return bytes(memoryview(out)[: cramjam.zstd.decompress_into(body, out)])
