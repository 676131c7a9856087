"""A TCP relay to one server that can drop connections and responses."""

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable

_BYTES = 1 << 16


class Proxy:
    """Relays to ``target`` (host:port) until closed.

    ``open`` False: connections are closed immediately. ``deaf`` True: data from the server is discarded. ``change``
    modifies bytes that are "asked" or "said". If it returns no bytes, the connection is closed. ``source``: the
    address that the server sees; empty: any.
    """

    def __init__(self, target: str, source: str = "") -> None:
        host, port = target.rsplit(":", 1)
        self._target = (host, int(port))
        self._source = (source, 0)
        self.open, self.deaf = True, False
        self.change: Callable[[str, bytes], bytes] = lambda _way, data: data
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._peers: dict[socket.socket, tuple[socket.socket, str]] = {}
        """The other end of each connection, and which data this one sends."""
        self._ready = selectors.DefaultSelector()
        self._wake_read, self._wake_write = socket.socketpair()
        self._closing = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._relay, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def cut(self) -> None:
        """End all current connections."""
        with self._lock:
            for end in self._peers:
                _end(end)

    def close(self) -> None:
        self._closing = True
        with contextlib.suppress(OSError):
            self._wake_write.send(b"\0")
        self._thread.join()
        for end in (*self._peers, self._listener, self._wake_read, self._wake_write):
            _end(end)
            end.close()
        self._ready.close()

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _relay(self) -> None:
        for end in (self._listener, self._wake_read):
            self._ready.register(end, selectors.EVENT_READ)
        while not self._closing:
            for key, _ in self._ready.select():
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj in self._peers:  # its peer may just have closed both
                    self._pass_on(key.fileobj, *self._peers[key.fileobj])

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(self._target, 5.0, self._source) if self.open else None
        except OSError:
            server = None
        if server is None:
            client.close()
            return
        server.settimeout(None)
        with self._lock:
            self._peers |= {client: (server, "asked"), server: (client, "said")}
        for end in (client, server):  # as clients and servers configure it: small messages are not delayed
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._ready.register(end, selectors.EVENT_READ)

    def _pass_on(self, near: socket.socket, far: socket.socket, way: str) -> None:
        try:
            data = self.change(way, near.recv(_BYTES))
            if data and not (self.deaf and way == "said"):
                far.sendall(data)
        except OSError:
            data = b""
        if not data:
            self._forget(near, far)

    def _forget(self, *ends: socket.socket) -> None:
        with self._lock:
            for end in ends:
                del self._peers[end]
                self._ready.unregister(end)
                _end(end)
                end.close()


def _end(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
