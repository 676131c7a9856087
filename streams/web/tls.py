"""TLS of the HTTP server: the certificate, read again when it changes, and connections of waitress over TLS.

waitress reads and writes sockets that do not block, from two threads. The socket of a TLS connection therefore reports
"try again" as such a socket does, and has a lock: OpenSSL does not permit concurrent calls for one connection.
cheroot does not serve: it performs the handshake in the thread that accepts, so that one slow client delays all others.
"""

import errno
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from trueup.connectors.replaced import state_of
from trueup.state.common.errors import Stop
from trueup.state.settings.settings import HttpSettings
from trueup.streams.web.connections import ClientChannel, refusal

log = logging.getLogger(__name__)
T = TypeVar("T")
_AGAIN = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class _Connection(ssl.SSLSocket):
    """A TLS connection that does not block."""

    calls = threading.Lock()
    """The lock of one connection. Connections that are being made, from which Python reads once, share this one."""

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        """Bytes of the client. Raises `BlockingIOError` if there are none yet."""
        return self._tried(lambda: ssl.SSLSocket.recv(self, buflen, flags))

    def send(self, data: Any, flags: int = 0) -> int:
        """Send some of the data; returns how much. Raises `BlockingIOError` if nothing can be sent now."""
        return self._tried(lambda: ssl.SSLSocket.send(self, data, flags))

    def _tried(self, call: Callable[[], T]) -> T:
        with self.calls:
            try:
                return call()
            except _AGAIN as error:
                raise BlockingIOError(errno.EWOULDBLOCK, "not ready") from error


class TlsChannel(ClientChannel):
    """A connection of the server. The handshake is part of the first read, so that no client can delay others."""

    def handle_read(self) -> None:
        """Read what is there, also what OpenSSL has decrypted already: poll does not report it."""
        while self.connected and not self.will_close:
            try:
                data = self.socket.recv(self.adj.recv_bytes)
            except BlockingIOError:
                return
            except OSError as error:  # no TLS, no common version, an unknown authority: the client's matter
                log.debug("TLS connection ended", extra={"address": self.addr[0], "found": str(error)})
                if getattr(error, "reason", "") == "HTTP_REQUEST":
                    with suppress(OSError):
                        socket.socket.send(
                            self.socket,
                            refusal("https:// on this port", "a request without TLS", "use https:// in the address"),
                        )
                self.handle_close()
                return
            if not data:
                self.handle_close()
                return
            self.last_activity = time.time()
            self.received(data)
            if not self.socket.pending():
                return


class Certificate:
    """The certificate of the server. ``problem``: why the present files are not used; empty if they are."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = certificate, key
        self._seen = self._state()
        self._context = self._load()
        self.problem = ""

    def context(self) -> ssl.SSLContext:
        """The TLS context for the next connection. Files that are not valid leave the last ones in use."""
        if (seen := self._state()) != self._seen:
            self._seen = seen
            try:
                self._context, self.problem = self._load(), ""
                log.info("certificate read", extra={"file": str(self._files[0])})
            except Stop as error:
                self.problem = f"http.tls_certificate is not renewed: {error.found}"
                log.warning("certificate refused", extra={"found": error.found})
        return self._context

    def channel(self, server: Any, sock: socket.socket, address: Any, adj: Any, map: Any = None) -> None:  # noqa: A002
        """Make a channel of waitress for an accepted connection; waitress keeps it in ``map``."""
        try:
            sock.getpeername()  # ssl would leave a socket open that is not connected any more
            connection = self.context().wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        except OSError:  # the client is gone already; an error here would close the listening socket
            sock.close()
            return
        assert isinstance(connection, _Connection)
        connection.calls = threading.Lock()
        TlsChannel(server, connection, address, adj, map=map)

    def _state(self) -> object:
        return [state_of(path) for path in self._files]

    def _load(self) -> ssl.SSLContext:
        """Raises `Stop` if the files are not a certificate with its key."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.sslsocket_class = _Connection
        try:
            # A password would otherwise be asked for on the terminal.
            context.load_cert_chain(*self._files, password=lambda: b"")
        except (OSError, ValueError) as error:
            expected = "http.tls_certificate and http.tls_key to be PEM files that belong together"
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
            raise Stop(
                expected, str(reason), "correct the files, or their permissions; the key is not encrypted"
            ) from error
        return context


def certificate_of(http: HttpSettings) -> Certificate | None:
    """The certificate that the settings name; None: without TLS. Raises `Stop` if it is not valid."""
    return Certificate(Path(http.tls_certificate), Path(http.tls_key)) if http.tls_certificate else None
