"""Connections to brokers: kafka-python opens them (TLS, SASL), then their sockets carry our bytes.

Its own codec copies every record twice; the sockets taken over from it cost what plain sockets do. It is pinned to the
version whose transport this was written for. SASL sessions are not renewed: a broker that ends one ends the connection,
and the next one begins a new session.
"""

import socket
import ssl
import struct
import time
from collections.abc import Mapping
from typing import Any

from kafka import errors as kafka_errors
from kafka.net.connection import KafkaConnection
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

from trueup.state.common.errors import BadBytes, Retry, Stop

CONNECT_S = 5.0
ANSWER_S = 20.0
"""No request of ours makes a broker wait longer."""
_CHUNK = 1 << 16
_BUFFERS = 4 << 20
_HEAD = struct.Struct(">ihhih")
_SIZE = struct.Struct(">i")
_LARGEST, _BELIEVED = 1 << 30, 1 << 20
_FIRST_ID = 1 << 20
Part = bytes | bytearray | memoryview
UNREADABLE = (struct.error, ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, MemoryError)
"""What kafka-python raises for an answer that is none."""
_KEPT, _ROUND = 16, 1 << 20


class Frames:
    """Memory for large answers, used again once no view of it is left: memory that is new to the process costs more
    than what the broker sent, as the kernel clears and maps it page by page."""

    def __init__(self) -> None:
        self._buffers: list[bytearray] = []

    def take(self, size: int) -> memoryview:
        """So many bytes of any content. At most `_KEPT` buffers are kept, the newest: as many answers as can wait for
        the target."""
        for buffer in self._buffers:
            if len(buffer) >= size and _unseen(buffer):
                return memoryview(buffer)[:size]
        new = bytearray(-(-size // _ROUND) * _ROUND)
        self._buffers = [*self._buffers[1 - _KEPT :], new]
        return memoryview(new)[:size]


def _unseen(buffer: bytearray) -> bool:
    """Whether there is no view of it: one that is viewed refuses to change its size."""
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True


class Connection:
    """One broker connection: requests go out in order, answers come back in order (the protocol's promise).

    Every method raises `Retry` when the connection breaks or the broker is silent; nothing can be done with it then.
    """

    def __init__(
        self, sock: socket.socket, name: str, client: str, versions: Mapping[int, tuple[int, int]] | None = None
    ) -> None:
        self.name, self._versions = name, versions or {}
        self._socket, self._client = sock, client.encode()
        self._id = self._expected = _FIRST_ID
        self._chunk, self._frames = bytearray(_CHUNK), Frames()
        self._at = self._end = 0
        self._believed = _BELIEVED

    def fileno(self) -> int:
        """For selectors."""
        return self._socket.fileno()

    def takes(self, key: int, version: int) -> bool:
        """Whether the broker knows this version of an API."""
        return version <= self._versions.get(key, (0, -1))[1]

    @property
    def buffered(self) -> bool:
        """Whether bytes of an answer were read already, so that the socket may stay silent."""
        if self._end > self._at:
            return True
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def send(self, key: int, version: int, *parts: Part) -> None:
        """Send a request with header version 1: API key, API version, body."""
        self._id += 1
        size = _HEAD.size - 4 + len(self._client) + sum(map(len, parts))
        head = _HEAD.pack(size, key, version, self._id, len(self._client)) + self._client
        try:
            if isinstance(self._socket, ssl.SSLSocket):
                self._socket.sendall(b"".join((head, *parts)))
            else:
                self._send_all([head, *parts], size + 4)
        except OSError as error:
            raise self._broken(error) from error

    def receive(self) -> memoryview:
        """The body of the next answer, writable. Raises `BadBytes` when answers come out of order."""
        frame = self._frame()
        self._expected += 1
        found = _SIZE.unpack_from(frame)[0]
        if found != self._expected:
            raise BadBytes(self.name, 4, f"answer {self._expected}", f"answer {found}", "connect again")
        return frame[4:]

    def ask(self, request: Any, version: int) -> Any:
        """Send a request of kafka-python's and wait for its answer. No other may be under way."""
        self._id += 1
        request.API_VERSION = version
        request.with_header(correlation_id=self._id, client_id=self._client.decode())
        try:
            self._socket.sendall(request.encode(framed=True, header=True))
        except OSError as error:
            raise self._broken(error) from error
        answer = request.header.get_response_class()
        self._expected += 1
        frame = bytes(self._frame())
        try:
            return answer.decode(frame, version=version, header=True)
        except UNREADABLE as error:
            expected, found = f"an answer to {type(request).__name__}", f"{len(frame)} other bytes"
            raise BadBytes(self.name, 4, expected, found, "is it a Kafka broker?") from error

    def close(self) -> None:
        """Close it; what was not sent is lost."""
        self._socket.close()

    def _send_all(self, parts: list[Part], size: int) -> None:
        sent = self._socket.sendmsg(parts)
        while sent < size:
            size -= sent
            while sent >= len(parts[0]):
                sent -= len(parts.pop(0))
            parts[0] = memoryview(parts[0])[sent:]
            sent = self._socket.sendmsg(parts)

    def _frame(self) -> memoryview:
        """The next frame without its size. Small ones come out of one read, large ones are read in place."""
        try:
            while self._end - self._at < _SIZE.size:
                self._read_chunk()
            size = _SIZE.unpack_from(self._chunk, self._at)[0]
            if not 4 <= size <= _LARGEST:
                raise BadBytes(self.name, 0, f"a frame of 4 to {_LARGEST} bytes", f"{size}", "is it a Kafka broker?")
            self._at += _SIZE.size
            return self._body(size)
        except OSError as error:
            raise self._broken(error) from error

    def _body(self, size: int) -> memoryview:
        """So many bytes. Room for twice the largest frame so far is made at once; for more of them once they come."""
        view, have = self._taken(min(size, self._believed)), 0
        while True:
            buffered = min(len(view) - have, self._end - self._at)
            view[have : have + buffered] = self._chunk[self._at : self._at + buffered]
            self._at += buffered
            rest = view[have + buffered :]
            while rest:
                rest = rest[self._read_into(rest) :]
            if (have := len(view)) == size:
                self._believed = max(self._believed, 2 * size)
                return view
            small, view = view, self._taken(min(size, 2 * have))
            view[:have] = small

    def _taken(self, size: int) -> memoryview:
        return self._frames.take(size) if size > _CHUNK else memoryview(bytearray(size))

    def _read_chunk(self) -> None:
        left = self._end - self._at
        self._chunk[:left] = self._chunk[self._at : self._end]
        self._at, self._end = 0, left
        self._end += self._read_into(memoryview(self._chunk)[left:])

    def _read_into(self, view: memoryview) -> int:
        count = self._socket.recv_into(view)
        if not count:
            raise ConnectionResetError("the broker closed the connection")
        return count

    def _broken(self, error: OSError) -> Retry:
        return Retry(f"broker {self.name} to answer", str(error) or type(error).__name__, "it is tried again")


def connect(host: str, port: int, settings: Mapping[str, Any]) -> Connection:
    """Open a connection with the settings of `options.settings_of`.

    Raises `Retry`, or `Stop` when either end does not trust the other.
    """
    name = f"{host}:{port}"
    try:
        sock = socket.create_connection((host, port), CONNECT_S)
    except OSError as error:
        raise Retry(f"broker {name} to accept a connection", str(error), "start it, or check its address") from error
    net = NetworkSelector()
    transports: list[Any] = []
    versions: dict[int, tuple[int, int]] = {}
    try:
        sock.setblocking(False)
        for level, option, value in _OPTIONS:
            sock.setsockopt(level, option, value)
        _open(net, sock, host, name, settings, transports, versions)
    except BaseException:
        for socket_ in (sock, *(transport._sock for transport in transports)):
            if socket_ is not None:  # TLS took it over, or kafka-python closed it
                socket_.close()
        raise
    finally:
        net.close()
    taken: socket.socket = transports[0]._sock
    taken.settimeout(ANSWER_S)
    return Connection(taken, name, settings["client_id"], versions)


_OPTIONS = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFERS),
    (socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFERS),
)
_BROKEN = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""A broker that dies or has no time ends TLS so."""
_REFUSALS = (
    kafka_errors.SaslAuthenticationFailedError,
    kafka_errors.UnsupportedSaslMechanismError,
    kafka_errors.IllegalSaslStateError,
    kafka_errors.AuthorizationError,
    ssl.SSLError,
    FileNotFoundError,
    ValueError,
    AssertionError,
)


def _open(
    net: NetworkSelector,
    sock: socket.socket,
    host: str,
    name: str,
    settings: Mapping[str, Any],
    found: list[Any],
    versions: dict[int, tuple[int, int]],
) -> None:
    """Let kafka-python open it; the transport is put into ``found``, least and most of each API's ``versions`` too."""

    async def open_it() -> None:
        kind = KafkaSSLTransport if settings["security_protocol"] in ("SSL", "SASL_SSL") else KafkaTCPTransport
        tls = {key: value for key, value in settings.items() if key.startswith("ssl_")}
        found.append(kind(net, sock, host=host, **tls))
        await found[0].handshake()
        connection = KafkaConnection(net, node_id=name, **settings)
        connection.connection_made(found[0])
        await connection.initialize(time.monotonic() + CONNECT_S)
        await connection
        versions.update(connection.broker_version_data.api_versions)
        found[0].pause_reading()

    future = net.call_soon_with_future(open_it())
    net.poll(timeout_ms=CONNECT_S * 1000, future=future)
    if not future.is_done:
        raise Retry(f"broker {name} to answer", f"nothing for {CONNECT_S:g} s", "it is tried again")
    error = future.exception
    if isinstance(error, _REFUSALS) and not isinstance(error, _BROKEN):
        raise Stop(f"broker {name} to let us in", f"{type(error).__name__}: {error}", "check the cluster's options")
    if error is not None:
        todo = "it is tried again; if this goes on, check security.protocol, user and password"
        raise Retry(f"broker {name} to let us in", f"{type(error).__name__}: {error}", todo)
