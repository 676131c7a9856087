"""A connection to one bookie. Its first request selects the encoding of all; see `admin_calls` and `bulk_reads`.

TLS starts on the plain connection: the request START_TLS of the third encoding, then the handshake, then either
encoding (PerChannelBookieClient.java, TLSContextFactory.java).
"""

import socket
import ssl
from collections.abc import Iterable
from typing import Any

from google.protobuf.message import DecodeError

from trueup.connectors.bookkeeper.bookie.codes import Code, named
from trueup.connectors.bookkeeper.bookie.frames import SIZE, BookieFrames
from trueup.connectors.bookkeeper.bookie.security import PATH, remedy
from trueup.connectors.bookkeeper.messages import Request, Response
from trueup.connectors.bookkeeper.metadata.addresses import Address
from trueup.connectors.closing import Closing
from trueup.state.common.errors import BadBytes, Retry, Stop, TrueupError

START_TLS = 9
_RECEIVE_BYTES = 4 << 20
_HUNG_UP = (ConnectionResetError, BrokenPipeError, ssl.SSLEOFError, ssl.SSLZeroReturnError)


class BookieConnection(Closing):
    """One connection. ``timeout_s``: the maximum time without a response, including the connect; ``name``: the bookie
    id.

    Every method raises `Retry` if the connection breaks or times out; the connection is unusable then.
    """

    def __init__(self, name: str, address: Address, timeout_s: float, tls: ssl.SSLContext | None = None) -> None:
        self.name = name
        self._timeout_s, self._unanswered_tls = timeout_s, False
        try:
            self._socket = socket.create_connection(address, timeout_s)
        except (OSError, UnicodeError, OverflowError) as error:  # the last two: an invalid address
            raise self._broken(error) from error
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._frames = BookieFrames(self._receive, name)
            if tls is not None:
                self._start_tls(tls, address[0])
        except BaseException:
            self.close()
            raise

    def send(self, parts: Iterable[bytes]) -> None:
        """Send these bytes, which must be whole frames."""
        try:
            self._socket.sendall(b"".join(parts))
        except OSError as error:
            raise self._broken(error) from error

    def receive(self) -> memoryview:
        """The body of the next frame, valid until the next call. Raises `Ended` if the bookie closed the connection."""
        frame = self._frames.next()
        if frame is None:
            raise self._broken(ConnectionResetError("it closed the connection"))
        return frame

    def response(self) -> Any:
        """The next frame as a `Response` of the third encoding. Raises `BadBytes`."""
        answer = Response()
        try:
            answer.ParseFromString(self.receive())
        except DecodeError as error:
            place = f"a response from bookie {self.name}"
            raise BadBytes(place, 0, "a protobuf message", "other bytes", "check the address") from error
        return answer

    def close(self) -> None:
        """Close the connection; outstanding responses are lost."""
        self._socket.close()

    def _receive(self, room: memoryview) -> int:
        try:
            count = self._socket.recv_into(room, min(len(room), _RECEIVE_BYTES))
        except OSError as error:
            raise self._broken(error) from error
        self._unanswered_tls = self._unanswered_tls and not count
        return count

    def _start_tls(self, context: ssl.SSLContext, host: str) -> None:
        request = Request()
        request.header.version, request.header.operation, request.header.txnId = 3, START_TLS, 0
        request.tls.SetInParent()
        self.send([framed(request.SerializeToString())])
        status = self.response().status
        if status != Code.OK:
            todo = f"remove {PATH}, or configure TLS on the bookie (tlsProviderFactoryClass)"
            raise Stop(f"TLS with bookie {self.name}", named(status), todo)
        try:
            self._socket = context.wrap_socket(self._socket, server_hostname=host)
        except OSError as error:
            raise self._broken(error) from error
        # With TLS 1.3, a certificate is refused after the handshake; the alert can be lost when the bookie closes.
        self._unanswered_tls = True

    def _broken(self, error: OSError | ValueError | OverflowError) -> TrueupError:
        if isinstance(error, ssl.SSLError) and not isinstance(error, _HUNG_UP):
            return Stop(f"TLS with bookie {self.name}", str(error), remedy(error))
        silent = isinstance(error, TimeoutError)
        text = getattr(error, "strerror", None) or str(error) or type(error).__name__
        reason = f"no response for {self._timeout_s:g} s" if silent else text
        kind, todo = Ended if isinstance(error, _HUNG_UP) else Retry, "retrying; check that it runs and is reachable"
        if kind is Ended and self._unanswered_tls:
            todo = f"check that it runs, and that it accepts {PATH}.tls.certificate"
        return kind(f"a response from bookie {self.name}", reason, todo)


class Ended(Retry):
    """The bookie closed the connection."""


def framed(body: bytes) -> bytes:
    """A frame with this body."""
    return SIZE.pack(len(body)) + body
