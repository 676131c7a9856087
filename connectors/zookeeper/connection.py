"""kazoo's connection, extended by the zxids of responses and events, and by reading many frames per system call."""

import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kazoo.exceptions import EXCEPTIONS, ConnectionDropped
from kazoo.protocol import connection as kazoo
from kazoo.protocol.serialization import ReplyHeader, read_string

from trueup.connectors.zookeeper.errors import NotSent
from trueup.connectors.zookeeper.requests import INT, ZooKeeperRequest

Events = Sequence[tuple[int, int, str]]
"""Zxid, kind and path of each."""
Sink = Callable[[Events], None]
_RECV_BYTES, _MOST_BYTES = 1 << 16, 1 << 20
LONGEST = 1 << 30
"""Maximum bytes of one response; ZooKeeper's own limit (jute.maxbuffer) applies to requests, not to responses."""
_MALFORMED = (struct.error, IndexError, UnicodeDecodeError)
_EVENT_BYTES = 8  # type and state
_GATHER_S = 0.002  # waiting for events one by one costs many times more than reading them
_EVENT = struct.Struct("!iiqiiii")  # length, xid, zxid, error; type, state, length of the path
_EVENT_SIZE = _EVENT.size - INT.size


class ZooKeeperConnection(kazoo.ConnectionHandler):  # type: ignore[misc]
    """Passes watch events to ``client.sink``, all that are buffered at once.

    ``ready``: the event that is set when the session is established and its credentials were accepted, and cleared by
    the next attempt to connect. kazoo reports a connection before it sends the credentials.
    """

    trouble: OSError | None = None
    """The newest error since the last attempt to establish a session began; None if there was none."""
    _rest = b""
    _at = 0

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.ready = threading.Event()

    @contextmanager
    def _socket_error_handling(self) -> Iterator[None]:
        with super()._socket_error_handling():
            try:
                yield
            except OSError as error:
                self.trouble = error
                raise

    def _connect(self, *args: Any) -> Any:
        self._rest, self._at, self.trouble = b"", 0, None
        self.ready.clear()
        try:
            timeouts = super()._connect(*args)
            self.ready.set()
            return timeouts
        except ConnectionDropped as error:
            self.trouble = self.trouble or ConnectionAbortedError(str(error))
            raise
        except (*_MALFORMED, RuntimeError) as error:  # RuntimeError: a response to another request
            raise ConnectionDropped(f"expected a session from ZooKeeper; found other bytes; {error}") from error

    def _read(self, length: int, timeout: float) -> bytes:
        end = self._at + length
        if end <= len(self._rest):
            chunk, self._at = self._rest[self._at : end], end
            return chunk
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
        """One response, and all events before it. An invalid response ends the connection; kazoo reconnects."""
        try:
            return self._read_answers(read_timeout)
        except _MALFORMED as error:
            raise ConnectionDropped(f"expected a response from ZooKeeper; found other bytes; {error}") from error

    def _read_answers(self, read_timeout: float) -> Any:
        answer = super()._read_socket(read_timeout)
        # The caller waits on the socket next and does not know of bytes that are buffered here.
        self._take_events()
        while answer is None and self._whole_frame():
            answer = super()._read_socket(read_timeout)
            self._take_events()
        if self.header.xid == kazoo.WATCH_XID and not self.client._pending:
            time.sleep(_GATHER_S)
        return answer

    def _take_events(self) -> None:
        """Pass on the watch events at the head of the buffer: there may be very many."""
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
            raise ConnectionDropped(f"expected the length of a response from ZooKeeper; found {size}")
        body = self._read(size, timeout)
        self.header, at = ReplyHeader.deserialize(body, 0)
        return self.header, body, at

    def _read_response(self, header: Any, body: bytes, at: int) -> Any:
        if header.err and header.err not in EXCEPTIONS:
            raise ConnectionDropped(f"expected a response from ZooKeeper; found error {header.err}")
        request, _, xid = self.client._pending[0]
        if header.xid != xid:
            raise ConnectionDropped(f"expected response {xid} from ZooKeeper; found response {header.xid}")
        if isinstance(request, ZooKeeperRequest):
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
    """Fail the requests that are still in the queue as not sent."""
    while queue:
        _, result = queue.popleft()
        if result is not None:
            result.set_exception(NotSent())
