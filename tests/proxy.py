"""A TCP relay to one server that can drop connections and responses."""

import contextlib
import select
import socket
import threading
from collections.abc import Callable

_BYTES = 1 << 16


class Proxy:
    """Relays to ``target`` (host:port) until closed.

    ``open`` False: connections are closed immediately. ``deaf`` True: data from the server is discarded. ``change``
    modifies bytes that are "asked" or "said". If it returns no bytes, the connection is closed.
    """

    def __init__(self, target: str) -> None:
        host, port = target.rsplit(":", 1)
        self._target = (host, int(port))
        self.open, self.deaf = True, False
        self.change: Callable[[str, bytes], bytes] = lambda _way, data: data
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._wake_read, self._wake_write = socket.socketpair()
        self._closing = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._relay, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def cut(self) -> None:
        """Close all current connections."""
        with self._lock:
            for pair in self._pairs:
                _close(pair)
            self._pairs.clear()
        self._wake()

    def close(self) -> None:
        self._closing = True
        self._wake()
        self._thread.join()
        self.cut()
        _close((self._listener, self._wake_read, self._wake_write))

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_write.send(b"\0")

    def _relay(self) -> None:
        while not self._closing:
            with self._lock:
                ends = {near: (far, way) for pair in self._pairs for near, far, way in (
                    (pair[0], pair[1], "asked"), (pair[1], pair[0], "said"),
                )}  # fmt: skip
            try:
                ready, _, _ = select.select([self._listener, self._wake_read, *ends], [], [], 1.0)
            except (OSError, ValueError):
                continue  # the connection was cut during the wait
            for near in ready:
                if near is self._listener:
                    self._accept()
                elif near is self._wake_read:
                    near.recv(_BYTES)
                else:
                    self._pass_on(near, *ends[near])

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(self._target, 5.0) if self.open else None
        except OSError:
            server = None
        if server is None:
            client.close()
            return
        server.settimeout(None)
        for end in (client, server):  # as clients and servers configure it: small messages are not delayed
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._pairs.append((client, server))

    def _pass_on(self, near: socket.socket, far: socket.socket, way: str) -> None:
        try:
            data = self.change(way, near.recv(_BYTES))
            if data and not (self.deaf and way == "said"):
                far.sendall(data)
        except OSError:
            data = b""
        if not data:
            with self._lock:
                lost = [pair for pair in self._pairs if near in pair]
                self._pairs = [pair for pair in self._pairs if near not in pair]
                for pair in lost:
                    _close(pair)


def _close(sockets: tuple[socket.socket, ...]) -> None:
    for end in sockets:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
