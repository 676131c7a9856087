"""Frames of the bookie protocol: a length of four bytes, big-endian, and a body, in one growing buffer.

Source: BookieProtoEncoding.java and netty's LengthFieldBasedFrameDecoder in BookieNettyServer.java.
"""

import struct
from collections.abc import Callable

from trueup.state.common.errors import BadBytes

SIZE = struct.Struct(">i")
LARGEST = 1 << 28
"""Longer frames count as damage: bookies themselves accept 5 MB, or nettyMaxFrameSizeBytes."""
_ROOM = 1 << 16


class BookieFrames:
    """Splits a stream of bytes into frames.

    ``receive``: reads bytes into a buffer and returns their number, 0 at the end of the stream; ``name``: the id of the
    bookie, for errors.
    """

    def __init__(self, receive: Callable[[memoryview], int], name: str, size: int = 1 << 20) -> None:
        self._receive, self._name = receive, name
        self._buffer = bytearray(size)
        self._at = self._end = self._before = 0

    def next(self) -> memoryview | None:
        """The next body, valid until the next call; None at the end of the stream. Raises `BadBytes`."""
        missing = self._missing()
        while missing > 0:
            self._make_room(missing)
            got = self._receive(memoryview(self._buffer)[self._end :])
            if not got:
                return None
            self._end += got
            missing = self._missing()
        start, self._at = self._at + SIZE.size, self._end + missing
        return memoryview(self._buffer)[start : self._at]

    def _missing(self) -> int:
        """The number of bytes missing from the next frame, as far as known; negative if more are buffered."""
        have = self._end - self._at
        if have < SIZE.size:
            return SIZE.size - have
        size = SIZE.unpack_from(self._buffer, self._at)[0]
        if not 0 <= size <= LARGEST:
            place = f"the stream from bookie {self._name}"
            expected = f"the length of a frame, 0 to {LARGEST}"
            raise BadBytes(place, self._before + self._at, expected, str(size), "connect again; check the address")
        return int(size) + SIZE.size - have

    def _make_room(self, missing: int) -> None:
        """Move the rest to the front if there is little room after it. The buffer doubles only when one frame fills
        it: a declared length is trusted only as far as bytes arrived."""
        have = self._end - self._at
        buffer = self._buffer
        if have == len(buffer):
            self._buffer = bytearray(2 * have)  # views of the old buffer stay valid
        elif have and (not self._at or len(buffer) - self._end >= max(missing, _ROOM)):
            return
        self._buffer[:have] = buffer[self._at : self._end]
        self._before += self._at
        self._at, self._end = 0, have
