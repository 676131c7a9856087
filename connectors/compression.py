"""Frames of lz4 (lz4_Frame_format.md), and decompression within a limit, for the formats of several systems.

Errors of decompression are `ValueError`, `struct.error` and `cramjam.DecompressionError`.
"""

import struct
from typing import Any

import cramjam
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.uint8]
FULL = "failed to write whole buffer"
"""cramjam's error when the output exceeds the buffer."""
_HEAD = struct.Struct("<IBB")
_MAGIC, _INDEPENDENT, _PLAIN = 0x184D2204, 0x20, 1 << 31
_START, _BLOCK = bytes.fromhex("04224d18604082"), 1 << 16
"""The start of a frame of independent blocks of up to 64 KB without checksums."""
_BLOCK_SIZE = struct.Struct("<I")
_GUESS, _LEAST = 8, 1 << 16


def whole(codec: Any, body: memoryview, limit: int) -> memoryview:
    """All that a codec of cramjam finds, in a buffer that grows with it to at most ``limit`` bytes."""
    room = max(_LEAST, _GUESS * len(body))
    while True:
        room = min(room, limit + 1)
        out = np.empty(room, np.uint8)  # most of it is never touched
        try:
            return bounded(out.data[: codec.decompress_into(body, out)], limit)
        except cramjam.DecompressionError as error:
            if str(error) != FULL:
                raise
            bounded(out.data, limit)
        room *= 4


def bounded(content: memoryview, limit: int) -> memoryview:
    """The same bytes, which are at most ``limit``."""
    if len(content) > limit:
        raise ValueError(f"more than {limit} bytes")
    return content


def lz4_frame_of(body: bytes | bytearray | memoryview) -> bytes:
    """A frame for this body. The library of Java clients refuses blocks that depend on earlier ones; RocketMQ's client
    then drops the message and all after it in the same response. cramjam's writer of frames takes twice as long."""
    raw = memoryview(body)
    out = np.empty(len(_START) + 2 * len(raw) + 64, np.uint8).data
    at = len(_START)
    out[:at] = _START
    for start in range(0, len(raw), _BLOCK):
        part = raw[start : start + _BLOCK]
        first = at + _BLOCK_SIZE.size
        size, kind = cramjam.lz4.compress_block_into(part, out[first:], store_size=False), 0
        if size >= len(part):
            size, kind = len(part), _PLAIN
            out[first : first + size] = part
        _BLOCK_SIZE.pack_into(out, at, size | kind)
        at = first + size
    _BLOCK_SIZE.pack_into(out, at, 0)
    return bytes(out[: at + _BLOCK_SIZE.size])


def lz4_frame(body: memoryview, limit: int, most: int = 0) -> memoryview:
    """The content of a frame: magic, flags, block size, optional content size and dictionary id, a checksum, then
    blocks after their sizes, each optionally before its checksum. Checksums are not compared: a batch, and a message,
    has its own. cramjam's reader of frames takes ten times as long for small ones; it reads those whose blocks need the
    ones before them. ``most`` > 0: about this number of bytes from the start is enough."""
    magic, flags, sizes = _HEAD.unpack_from(body)
    if magic != _MAGIC or not 4 <= sizes >> 4 <= 7:
        raise ValueError(f"not an lz4 frame: {bytes(body[:6]).hex()}")
    if not flags & _INDEPENDENT and not most:
        return whole(cramjam.lz4, body, limit)
    largest, length = 1 << 8 + 2 * (sizes >> 4), 0
    out = np.empty(min(_GUESS * len(body), most + largest if most else limit), np.uint8)
    at = _HEAD.size + 8 * (flags >> 3 & 1) + 4 * (flags & 1) + 1
    while (size := _BLOCK_SIZE.unpack_from(body, at)[0]) and (not most or length < most):
        at += 4
        end = at + (size & ~_PLAIN)
        if not at < end <= len(body):
            raise ValueError(f"a block of {end - at} bytes")
        out, length = _with(out, length, body[at:end], bool(size & _PLAIN), largest)
        at = end + 4 * (flags >> 4 & 1)
        if length > limit or not flags & _INDEPENDENT:
            break
    return bounded(out.data[:length], limit)


def _with(out: Array, length: int, block: memoryview, plain: bool, largest: int) -> tuple[Array, int]:
    """Put the content of a block, of at most ``largest`` bytes, behind the first ``length`` bytes of a buffer. Returns
    the buffer, which is a larger one if there is no room, and the number of its bytes that are in use."""
    room = min(largest, _GUESS * len(block))
    while True:
        if len(out) < length + room:
            out, before = np.empty(2 * length + room, np.uint8), out
            out[:length] = before[:length]
        free = out.data[length : length + room]
        if plain:
            free[: len(block)] = block
            return out, length + len(block)
        try:
            return out, length + cramjam.lz4.decompress_block_into(block, free)
        except cramjam.DecompressionError:
            if room == largest:
                raise
        room = largest
