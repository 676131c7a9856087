"""Connections to brokers: kafka-python opens them (TLS, SASL), then their sockets carry Trueup's requests.

kafka-python's codec copies every record twice; its sockets cost the same as plain ones. kafka-python is pinned to the
version whose transport this code was written for. SASL sessions are not renewed: a broker that ends a session closes
the connection, and the next connection starts a new session.
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

from trueup.connectors.kafka.client import versions as versions
from trueup.state.common.errors import BadBytes, Retry, Stop

CONNECT_S = 5.0
ANSWER_S = 20.0
"""No request makes a broker wait longer."""
_CHUNK = 1 << 16
_BUFFERS = 4 << 20
_HEAD = struct.Struct(">ihhih")
_SIZE = struct.Struct(">i")
_LARGEST, _TRUSTED_BYTES = 1 << 30, 1 << 20
_FIRST_ID = 1 << 20
Part = bytes | bytearray | memoryview
UNREADABLE = (struct.error, ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, MemoryError)
"""Errors that kafka-python raises for invalid responses."""
_KEPT, _ROUND = 16, 1 << 20


class Frames:
    """Buffers for large responses, reused once no view of them is left: new memory costs more than the transfer,
    because the kernel clears and maps it page by page."""

    def __init__(self) -> None:
        self._buffers: list[bytearray] = []

    def take(self, size: int) -> memoryview:
        """A buffer of this size, with any content. At most `_KEPT` buffers are kept, the newest: the number of
        responses that can wait for the target."""
        for buffer in self._buffers:
            if len(buffer) >= size and _unseen(buffer):
                return memoryview(buffer)[:size]
        new = bytearray(-(-size // _ROUND) * _ROUND)
        self._buffers = [*self._buffers[1 - _KEPT :], new]
        return memoryview(new)[:size]


def _unseen(buffer: bytearray) -> bool:
    """Whether no view of the buffer exists: a buffer with a view cannot be resized."""
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True


class BrokerConnection:
    """One broker connection: requests are sent in order, and responses arrive in order, as the protocol guarantees.

    Every method raises `Retry` if the connection breaks or the broker times out; the connection is unusable then.
    """

    def __init__(
        self, sock: socket.socket, name: str, client: str, versions: Mapping[int, tuple[int, int]] | None = None
    ) -> None:
        self.name, self._versions = name, versions or {}
        self._socket, self._client = sock, client.encode()
        self._id = self._expected = _FIRST_ID
        self._chunk, self._frames = bytearray(_CHUNK), Frames()
        self._at = self._end = 0
        self._trusted_bytes = _TRUSTED_BYTES

    def fileno(self) -> int:
        """The socket's file descriptor, for selectors."""
        return self._socket.fileno()

    def takes(self, key: int, version: int) -> bool:
        """Whether the broker supports this version of an API."""
        return version <= self._versions.get(key, (0, -1))[1]

    @property
    def buffered(self) -> bool:
        """Whether bytes of a response are buffered, so that the socket may not become readable."""
        if self._end > self._at:
            return True
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def send(self, key: int, version: int, *parts: Part) -> None:
        """Send a request with header version 1: API key, API version, body. Raises `Stop` if the broker is too old."""
        if version > (most := self._versions.get(key, (0, version))[1]):
            limit = f"at most version {most}"
            raise Stop(
                f"broker {self.name} to support version {version} of API {key}", limit, "upgrade it to Kafka 2.1"
            )
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
        """The body of the next response, writable. Raises `BadBytes` if responses are out of order."""
        frame = self._frame()
        self._expected += 1
        number = _SIZE.unpack_from(frame)[0]
        if number != self._expected:
            raise BadBytes(self.name, 4, f"response {self._expected}", f"response {number}", "connect again")
        return frame[4:]

    def ask(self, request: Any, version: int) -> Any:
        """Send a kafka-python request and wait for its response. No other request may be outstanding."""
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
            expected, found = f"a response to {type(request).__name__}", f"{len(frame)} other bytes"
            raise BadBytes(self.name, 4, expected, found, "check the address") from error

    def close(self) -> None:
        """Close the connection; unsent requests are lost."""
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
        """The next frame without its size. Small frames are read together, large ones are read in place."""
        try:
            while self._end - self._at < _SIZE.size:
                self._read_chunk()
            size = _SIZE.unpack_from(self._chunk, self._at)[0]
            if not 4 <= size <= _LARGEST:
                raise BadBytes(self.name, 0, f"a frame of 4 to {_LARGEST} bytes", f"{size}", "check the address")
            self._at += _SIZE.size
            return self._body(size)
        except OSError as error:
            raise self._broken(error) from error

    def _body(self, size: int) -> memoryview:
        """``size`` bytes. At most twice the largest frame so far is allocated before bytes arrive."""
        view, have = self._taken(min(size, self._trusted_bytes)), 0
        while True:
            buffered = min(len(view) - have, self._end - self._at)
            view[have : have + buffered] = self._chunk[self._at : self._at + buffered]
            self._at += buffered
            rest = view[have + buffered :]
            while rest:
                rest = rest[self._read_into(rest) :]
            if (have := len(view)) == size:
                self._trusted_bytes = max(self._trusted_bytes, 2 * size)
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
        return Retry(f"a response from broker {self.name}", str(error) or type(error).__name__, "it is retried")


def connect(host: str, port: int, settings: Mapping[str, Any]) -> BrokerConnection:
    """Open a connection with the settings of `options.settings_of`.

    Raises `Retry`, or `Stop` if either end does not trust the other.
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
            if socket_ is not None:  # otherwise TLS owns it, or kafka-python closed it
                socket_.close()
        raise
    finally:
        net.close()
    taken: socket.socket = transports[0]._sock
    taken.settimeout(ANSWER_S)
    return BrokerConnection(taken, name, settings["client_id"], versions)


_OPTIONS = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFERS),
    (socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFERS),
)
_BROKEN = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""Errors at the end of TLS from a broker that dies or is overloaded."""
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
    transports: list[Any],
    versions: dict[int, tuple[int, int]],
) -> None:
    """Open a connection with kafka-python; fills ``transports`` and each API's range in ``versions``."""

    async def open_it() -> None:
        kind = KafkaSSLTransport if settings["security_protocol"] in ("SSL", "SASL_SSL") else KafkaTCPTransport
        tls = {key: value for key, value in settings.items() if key.startswith("ssl_")}
        transports.append(kind(net, sock, host=host, **tls))
        await transports[0].handshake()
        connection = KafkaConnection(net, node_id=name, **settings)
        connection.connection_made(transports[0])
        await connection.initialize(time.monotonic() + CONNECT_S)
        await connection
        versions.update(connection.broker_version_data.api_versions)
        transports[0].pause_reading()

    future = net.call_soon_with_future(open_it())
    net.poll(timeout_ms=CONNECT_S * 1000, future=future)
    if not future.is_done:
        raise Retry(f"a response from broker {name}", f"no response for {CONNECT_S:g} s", "the connection is retried")
    error = future.exception
    if isinstance(error, _REFUSALS) and not isinstance(error, _BROKEN):
        raise Stop(f"broker {name} to accept the client", f"{type(error).__name__}: {error}", "check its options")
    if error is not None:
        todo = "retrying; if this continues, check security.protocol, user and password"
        raise Retry(f"broker {name} to accept the client", f"{type(error).__name__}: {error}", todo)
