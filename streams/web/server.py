"""The HTTP server: waitress in a thread, on one socket, with a bounded shutdown."""

import socket
import threading
from contextlib import suppress

from flask import Flask
from waitress import create_server, wasyncore

from trueup.connectors.zookeeper.follower import Run
from trueup.state.common.errors import Stop
from trueup.streams.runtime.supervisor import Supervisor
from trueup.streams.web.connections import MOST, ClientChannel
from trueup.streams.web.tls import Certificate

THREADS = 8
BODY_BYTES, HEAD_BYTES = 1 << 20, 1 << 15
DRAIN_S, AGAIN_S = 2.0, 1.0


class Server:
    """A listening HTTP server. ``port``: the effective port."""

    def __init__(self, app: Flask, listener: socket.socket, run: Run, certificate: Certificate | None = None) -> None:
        self._listener = listener
        self.host, self.port = listener.getsockname()[:2]
        self._open: dict[int, object] = {}
        self._server = create_server(
            app,
            map=self._open,
            sockets=[listener],
            threads=THREADS,
            ident=None,
            max_request_body_size=BODY_BYTES,
            max_request_header_size=HEAD_BYTES,
            url_scheme="https" if certificate else "http",
            connection_limit=2 * MOST,
            asyncore_use_poll=True,
            log_socket_errors=False,
        )
        self._server.channel_class = certificate.channel if certificate else ClientChannel
        self._stopping = threading.Event()
        self._thread = run("http", self._serve, self._stopping)

    def _serve(self) -> None:
        self._server.run()
        if not self._stopping.wait(AGAIN_S) and self._listener.fileno() < 0:
            raise Stop(f"the HTTP server to listen on port {self.port}", "it closed its socket", "restart Trueup")

    def stop(self) -> None:
        """Wait for running requests, then close every connection and the socket."""
        self._stopping.set()
        if self._thread.is_alive():
            self._server.task_dispatcher.shutdown(timeout=DRAIN_S)
            # Connections belong to the server's loop, which ends without connections. The end of a request may wake it,
            # so that it ends before this call.
            with suppress(OSError):
                self._server.trigger.pull_trigger(lambda: wasyncore.close_all(self._open, ignore_all=True))
            self._thread.join(DRAIN_S)
        if not self._thread.is_alive():
            wasyncore.close_all(self._open, ignore_all=True)  # connections of a loop that failed


def serve(app: Flask, host: str, port: int, certificate: Certificate | None = None) -> Server:
    """Listen on this address (port 0: any free port) and serve requests. Raises `Stop` if it is not available."""
    return Server(app, claim(host, port), Supervisor(threading.Event(), lambda _: None).run, certificate)


def claim(host: str, port: int) -> socket.socket:
    """A socket bound to this address that does not serve requests yet. Raises `Stop` if it is not available."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise Stop(f"http.host {host} to be an address of this machine", str(error), "set http.host") from error
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise Stop(f"{host}:{port} to be free", str(error), "set http.port, or stop the other process") from error
    return listener
