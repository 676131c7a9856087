"""A connection to a name server or broker: requests are pipelined, and responses found by their number (opaque)."""

import socket
import ssl
import time
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from trueup.connectors.closing import Closing
from trueup.connectors.readiness import readable
from trueup.connectors.rocketmq.client.codes import RequestCode, ResponseCode, Unsupported, problem
from trueup.connectors.rocketmq.protocol import frames
from trueup.connectors.rocketmq.protocol.frames import Credentials, FrameHeader
from trueup.state.common.errors import BadBytes, Retry, Stop, TrueupError, Unknown

CONNECT_S = 5.0
ANSWER_S = 10.0
_CHUNK, _BELIEVED, _BUFFERS = 1 << 16, 1 << 20, 4 << 20
_HUNG_UP = (ConnectionResetError, BrokenPipeError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
_NEAR_S = 0.1
_LAST_OPAQUE, _LONG = (1 << 31) - 1, 1 << 63
_OK = frozenset({ResponseCode.OK})


class RocketMqRequest(NamedTuple):
    """One request."""

    code: RequestCode
    doing: str
    """The requested action as a verb phrase for errors, as in "expected the broker to list its topics"."""
    fields: Mapping[str, object]
    body: bytes | memoryview = b""
    accepted: Container[int] = _OK
    """The response codes that are not an error."""
    changes: bool = False
    """Whether the request changes something. If the response to such a request is lost, the outcome is unknown."""
    wait_s: float = 0.0
    """Seconds for which the server may hold the request before it responds."""


class RocketMqResponse(NamedTuple):
    """A response with an accepted code."""

    code: int
    fields: Mapping[str, str]
    body: memoryview
    where: str

    def number(self, name: str) -> int:
        """An integer among the fields. Raises `BadBytes`."""
        text = self.fields.get(name, "")
        try:
            if -_LONG <= (number := int(text)) < _LONG:
                return number
        except ValueError:
            pass
        raise BadBytes(self.where, 4, f"the number {name}", repr(text[:100]), "check the server's version")

    def parsed(self) -> Any:
        """The body as JSON. Raises `BadBytes`."""
        return frames.parsed(self.body, self.where)


class PendingRequest(NamedTuple):
    """A request in flight."""

    opaque: int
    """The number of the request, which its response repeats."""
    request: RocketMqRequest
    until: float
    """The value of ``time.monotonic`` until which the response may arrive."""


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """How to open connections."""

    signer: Credentials | None = None
    tls: ssl.SSLContext | None = None
    timeout_s: float = ANSWER_S
    """Seconds to wait for a response, in addition to those for which the server may hold the request."""
    connect_s: float = field(default=CONNECT_S)


class RocketMqConnection(Closing):
    """One connection, for one thread. Every request that is submitted must be waited for.

    Large requests and large responses must not be in flight together: a server whose responses are not read stops to
    read requests. If the connection breaks, or a response is late or malformed, all requests in flight are lost and the
    connection is unusable: `wait` raises `Unknown` for a request that changes something, else `Retry` or `BadBytes`.
    """

    def __init__(self, address: str, access: ConnectionOptions) -> None:
        self.name, self._access = address, access
        self._socket = _open(address, access)
        self._chunk = bytearray(_CHUNK)
        self._at = self._end = self._opaque = 0
        self._believed, self._timeout_s = _BELIEVED, -1.0
        self._pending: dict[int, PendingRequest] = {}
        self._arrived: dict[int, tuple[FrameHeader, memoryview]] = {}
        self.unsupported = set[int]()
        """The codes of requests that the version of the server does not have, as far as it was asked."""
        self._lost: TrueupError | None = None
        self._leaving: TrueupError | None = None

    def fileno(self) -> int:
        """The socket's file descriptor, for selectors."""
        return self._socket.fileno()

    @property
    def lost(self) -> bool:
        """Whether it is unusable. A server that stops (GO_AWAY) still sends the responses in flight."""
        return self._lost is not None or (self._leaving is not None and not self._pending)

    def submit(self, request: RocketMqRequest) -> PendingRequest:
        """Send a request without waiting. Raises `Retry` if the connection is lost: nothing was done."""
        if (end := self._lost or self._leaving) is not None:
            raise Retry(end.expected, end.found, end.todo)
        self._opaque = self._opaque % _LAST_OPAQUE + 1
        code, signer = request.code, self._access.signer
        raw = frames.encoded(code, self._opaque, request.fields, request.body, signer)
        self._set_timeout(self._access.timeout_s)
        try:
            self._socket.sendall(raw)
        except OSError as error:
            raise self._fail(self._broken(error)) from error
        until = time.monotonic() + self._access.timeout_s + request.wait_s
        pending = self._pending[self._opaque] = PendingRequest(self._opaque, request, until)
        return pending

    def wait(self, pending: PendingRequest) -> RocketMqResponse:
        """The response to a request. Raises what its code means, see `codes.problem`."""
        while pending.opaque not in self._arrived:
            self._read(pending)
        header, body = self._arrived.pop(pending.opaque)
        request = pending.request
        if header.code not in request.accepted:
            error = problem(header.code, header.remark, request.doing, self.name)
            self._leaving = error if header.code == ResponseCode.GO_AWAY else self._leaving
            if isinstance(error, Unsupported):
                self.unsupported.add(request.code)
            raise error
        return RocketMqResponse(header.code, header.fields, body, f"a response from {self.name} to {request.doing}")

    def arrived(self, pending: PendingRequest) -> bool:
        """Whether `wait` returns or raises at once. Reads the frames of which a part is here."""
        try:
            while self._lost is None and pending.opaque not in self._arrived and self._readable():
                self._read(pending)
        except TrueupError:
            return True  # `wait` also raises it
        return self._lost is not None or pending.opaque in self._arrived

    def ask(self, request: RocketMqRequest) -> RocketMqResponse:
        """Send a request and wait for its response."""
        return self.wait(self.submit(request))

    def ended(self) -> bool:
        """Whether the server closed it, if no request is in flight: otherwise nothing would have arrived."""
        return self.lost or self._readable()

    def close(self) -> None:
        """Close the connection; responses in flight are lost."""
        self._lost = self._lost or Retry(f"an open connection to {self.name}", "a closed one", "connect again")
        self._socket.close()

    def _readable(self) -> bool:
        if self._end > self._at or (isinstance(self._socket, ssl.SSLSocket) and self._socket.pending()):
            return True
        return bool(readable([self._socket], 0.0))

    def _read(self, pending: PendingRequest) -> None:
        """Read one frame, for this request or another."""
        try:
            if self._lost is not None:
                raise self._lost
            frame = self._frame(pending.until)
            header, body = frames.split(frame, f"a response from {self.name}")
            if not header.response:
                return  # a notice of the server
            if self._pending.pop(header.opaque, None) is None:
                where = f"a response from {self.name}"
                raise BadBytes(where, 4, "the number of a request", str(header.opaque), "connect again")
            self._arrived[header.opaque] = header, body
        except OSError as error:
            raise self._error_for(pending, self._fail(self._broken(error))) from error
        except TrueupError as error:
            raise self._error_for(pending, self._fail(error)) from None

    def _error_for(self, pending: PendingRequest, error: TrueupError) -> TrueupError:
        """What a lost connection means for one request."""
        if pending.request.changes:
            expected = f"{self.name} to {pending.request.doing}"
            return Unknown(expected, error.found, "it may or may not have happened; read before sending it again")
        if isinstance(error, Retry | BadBytes):
            return error
        return Retry(error.expected, error.found, error.todo)

    def _fail(self, error: TrueupError) -> TrueupError:
        if self._lost is None:
            self._lost = error
            self._socket.close()
        return error

    def _frame(self, until: float) -> memoryview:
        """The next frame without its length."""
        while self._end - self._at < frames.SIZE.size:
            self._read_chunk(until)
        size = frames.SIZE.unpack_from(self._chunk, self._at)[0]
        if not 4 <= size <= frames.LARGEST:
            expected = f"a frame of 4 to {frames.LARGEST} bytes"
            raise BadBytes(f"the stream from {self.name}", 0, expected, str(size), "check the address")
        self._at += frames.SIZE.size
        return memoryview(self._body(size, until))

    def _body(self, size: int, until: float) -> bytearray:
        """``size`` bytes. A declared length is believed up to the largest frame so far; then the buffer doubles when
        it is full."""
        body = bytearray(min(size, self._believed))
        have = min(len(body), self._end - self._at)
        body[:have] = self._chunk[self._at : self._at + have]
        self._at += have
        while have < size:
            if have == len(body):
                body += bytes(min(have, size - have))
            with memoryview(body) as room:
                have += self._receive(room[have:], until)
        self._believed = max(self._believed, size)
        return body

    def _read_chunk(self, until: float) -> None:
        left = self._end - self._at
        self._chunk[:left] = self._chunk[self._at : self._end]
        self._at, self._end = 0, left
        self._end += self._receive(memoryview(self._chunk)[left:], until)

    def _receive(self, room: memoryview, until: float) -> int:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._set_timeout(left)
        count = self._socket.recv_into(room)
        if not count:
            raise ConnectionResetError("it closed the connection")
        return count

    def _set_timeout(self, seconds: float) -> None:
        """Set the time-out of the next call, unless it is about the last one: setting it is a system call."""
        if abs(seconds - self._timeout_s) > _NEAR_S:
            self._timeout_s = seconds
            self._socket.settimeout(seconds)

    def _broken(self, error: OSError) -> TrueupError:
        reason = "no response in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
        return Retry(f"a response from {self.name}", reason, "retrying; check that it runs and is reachable")


def _open(address: str, access: ConnectionOptions) -> socket.socket:
    """A connected socket. Raises `Retry`, or `Stop` if one end does not trust the other."""
    host, _, port = address.rpartition(":")
    try:
        plain = socket.create_connection((host.strip("[]"), int(port)), access.connect_s)
    except (OSError, ValueError, OverflowError) as error:
        raise Retry(f"{address} to accept a connection", str(error), "start it, or check its address") from error
    try:
        for level, option, value in _OPTIONS:
            plain.setsockopt(level, option, value)
        return access.tls.wrap_socket(plain, server_hostname=host) if access.tls else plain
    except OSError as error:
        plain.close()
        if isinstance(error, ssl.SSLError) and not isinstance(error, _HUNG_UP):
            raise Stop(f"a TLS handshake with {address}", str(error), "check tls.* and its certificate") from error
        raise Retry(f"a TLS handshake with {address}", str(error), "retrying; check that it runs") from error


_OPTIONS = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFERS),
    (socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFERS),
)
