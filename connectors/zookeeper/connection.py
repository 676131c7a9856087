"""kazoo's connection, with what it leaves out: zxids of answers and events, and many frames for one system call."""

import struct
import time
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.exceptions import EXCEPTIONS, ConnectionDropped
from kazoo.protocol import connection as kazoo
from kazoo.protocol.serialization import ReplyHeader, read_string

from trueup.connectors.zookeeper.errors import NotSent
from trueup.connectors.zookeeper.requests import INT, Request

Events = Sequence[tuple[int, int, str]]
"""Zxid, kind and path of each."""
Sink = Callable[[Events], None]
_RECV_BYTES, _MOST_BYTES = 1 << 16, 1 << 20
LONGEST = 1 << 30
"""Bytes of one answer; ZooKeeper's own limit (jute.maxbuffer) is on what it takes, not on what it says."""
_STRANGE = (struct.error, IndexError, UnicodeDecodeError)
_EVENT_BYTES = 8  # type and state
_GATHER_S = 0.002  # events come one by one; to wait for each costs many times what reading it does
_EVENT = struct.Struct("!iiqiiii")  # length, xid, zxid, error; type, state, length of the path
_EVENT_SIZE = _EVENT.size - INT.size


class Connection(kazoo.ConnectionHandler):  # type: ignore[misc]
    """Hands watch events, those that came together at once, to ``client.sink``."""

    _rest = b""
    _at = 0

    def _connect(self, *args: Any) -> Any:
        self._rest, self._at = b"", 0
        try:
            return super()._connect(*args)
        except (*_STRANGE, RuntimeError) as error:  # the last of an answer to another request
            raise ConnectionDropped(f"expected ZooKeeper to open a session; found other bytes; {error}") from error

    def _read(self, length: int, timeout: float) -> bytes:
        end = self._at + length
        if end <= len(self._rest):
            found, self._at = self._rest[self._at : end], end
            return found
        parts = [self._rest[self._at :]]
        missing = length - len(parts[0])
        while missing > 0:
            parts.append(self._receive(min(max(missing, _RECV_BYTES), _MOST_BYTES), timeout))
            missing -= len(parts[-1])
        whole = b"".join(parts)
        self._rest, self._at = whole, length
        return whole if not missing else whole[:length]

    def _receive(self, most: int, timeout: float) -> bytes:
        with self._socket_error_handling():
            while True:
                try:
                    chunk: bytes = self._socket.recv(most)
                except (BlockingIOError, kazoo.ssl.SSLWantReadError, kazoo.ssl.SSLWantWriteError):
                    if not self.handler.select([self._socket], [], [], timeout)[0]:
                        raise self.handler.timeout_exception("socket time-out during read") from None
                    continue
                if not chunk:
                    raise ConnectionDropped("socket connection broken")
                return chunk

    def _read_socket(self, read_timeout: float) -> Any:
        """One answer, and all that came with it. What is no answer ends the connection; kazoo makes another."""
        try:
            return self._read_answers(read_timeout)
        except _STRANGE as error:
            raise ConnectionDropped(f"expected an answer of ZooKeeper; found other bytes; {error}") from error

    def _read_answers(self, read_timeout: float) -> Any:
        answer = super()._read_socket(read_timeout)
        # The caller waits for the socket next, which knows nothing of what is buffered here.
        self._take_events()
        while answer is None and self._whole_frame():
            answer = super()._read_socket(read_timeout)
            self._take_events()
        if self.header.xid == kazoo.WATCH_XID and not self.client._pending:
            time.sleep(_GATHER_S)
        return answer

    def _take_events(self) -> None:
        """Hand on the watch events that come next of what is buffered: there may be very many."""
        sink, rest, at = self.client.sink, self._rest, self._at
        if sink is None or self.client._data_watchers or self.client._child_watchers:
            return
        end, taken = len(rest), []
        while at + _EVENT.size <= end:
            size, xid, zxid, _, kind, _, name = _EVENT.unpack_from(rest, at)
            if xid != kazoo.WATCH_XID or at + 4 + size > end:
                break
            if not 0 <= name <= size - _EVENT_SIZE:
                raise ConnectionDropped(f"expected a watch event; found a path of {name} bytes in {size}")
            start, at = at + _EVENT.size, at + 4 + size
            taken.append((zxid, kind, rest[start : start + name].decode()))
        if taken:
            self._at = at
            sink(taken)

    def _whole_frame(self) -> bool:
        have = len(self._rest) - self._at
        return have >= 4 and have - 4 >= INT.unpack_from(self._rest, self._at)[0]

    def _read_header(self, timeout: float) -> tuple[Any, bytes, int]:
        size = INT.unpack(self._read(4, timeout))[0]
        if not 0 <= size <= LONGEST:
            raise ConnectionDropped(f"expected the length of an answer of ZooKeeper; found {size}")
        body = self._read(size, timeout)
        self.header, at = ReplyHeader.deserialize(body, 0)
        return self.header, body, at

    def _read_response(self, header: Any, body: bytes, at: int) -> Any:
        if header.err and header.err not in EXCEPTIONS:
            raise ConnectionDropped(f"expected an answer of ZooKeeper; found error {header.err}")
        request, _, xid = self.client._pending[0]
        if header.xid != xid:
            raise ConnectionDropped(f"expected answer {xid} of ZooKeeper; found answer {header.xid}")
        if isinstance(request, Request):
            request.zxid = header.zxid
        return super()._read_response(header, body, at)

    def _read_watch_event(self, body: bytes, at: int) -> None:
        client = self.client
        if client.sink is not None:
            kind, path = INT.unpack_from(body, at)[0], read_string(body, at + _EVENT_BYTES)[0]
            client.sink([(self.header.zxid, kind, path)])
        if client._data_watchers or client._child_watchers:
            super()._read_watch_event(body, at)


def fail_unsent(queue: Any) -> None:
    """Tell the callers of requests that are still in the queue that these were not sent."""
    while queue:
        _, result = queue.popleft()
        if result is not None:
            result.set_exception(NotSent())
