"""Connections of the HTTP server, which no client can keep from others by doing nothing.

A request must be complete `REQUEST_S` after its connection or its first byte, whatever arrives in between. When more
than `MOST` connections are open, the one that has waited longest for its client is closed. waitress itself closes only
connections without a byte for minutes, and accepts no more at its limit (HTTPChannel, BaseWSGIServer of waitress 3).
"""

import json
import math
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser

from trueup.streams.runtime.headers import REPEATED

REQUEST_S, IDLE_S = 10.0, 60.0
MOST = 256
TLS_HANDSHAKE = b"\x16"
"""The type of the first record of a TLS connection (RFC 8446)."""


class Parser(HTTPRequestParser):  # type: ignore[misc] # waitress has no types
    """A request. waitress joins repeated headers; `REPEATED` tells the application their names."""

    def parse_header(self, header_plus: bytes) -> None:
        """Parse the request line and the headers."""
        super().parse_header(header_plus)
        lines = header_plus.split(b"\r\n")[1:]
        names = [line.partition(b":")[0].decode("latin-1").lower() for line in lines if line[:1] not in (b" ", b"\t")]
        repeated = sorted(name for name, times in Counter(names).items() if name and times > 1)
        self.headers[REPEATED.upper().replace("-", "_")] = ",".join(repeated)


class ClientChannel(HTTPChannel):  # type: ignore[misc]
    """A connection. ``since_s``: the time at which the connection began to wait for its client, on the clock of
    `time.monotonic`; infinite while a request is executed."""

    parser_class = Parser

    def __init__(self, server: Any, sock: Any, address: Any, adj: Any, map: Any = None) -> None:  # noqa: A002
        self.since_s, self._served = time.monotonic(), False
        self._waiting = 0, self.since_s
        super().__init__(server, sock, address, adj, map=map)
        _make_room(server.active_channels.values(), self)

    def received(self, data: bytes) -> bool:
        """Take bytes of the client."""
        if self.request is None and not self.requests:
            self.since_s = time.monotonic()
            if data[:1] == TLS_HANDSHAKE:  # without a response it would wait, and so would the client
                with suppress(OSError):
                    self.socket.send(
                        refusal("http:// on this port", "a request with TLS", "use http:// in the address")
                    )
                self.will_close = True
                return False
        taken: bool = super().received(data)
        return taken

    def readable(self) -> bool:
        """Whether more bytes are read. The server's loop asks about once a second: a connection whose time is over is
        closed. waitress would close it after the next write, for which a client that reads nothing never is ready."""
        if self.connected and self._overdue():
            self.handle_close()
            return False
        ready: bool = super().readable()
        return ready

    def close(self) -> None:
        """Close the connection and the buffers of its responses."""
        self.handle_close()

    def service(self) -> None:
        """Execute a request, in a thread of the server."""
        self.since_s = math.inf
        try:
            super().service()
        finally:
            self._served, self.since_s = True, time.monotonic()

    def _overdue(self) -> bool:
        if self.requests:
            return self._stuck()
        if self.total_outbufs_len:  # the client reads a response
            return bool(time.time() - self.last_activity > IDLE_S)
        return time.monotonic() - self.since_s > (REQUEST_S if self.request or not self._served else IDLE_S)

    def _stuck(self) -> bool:
        """Whether the thread of a request waits for a client that reads nothing: it does above this size."""
        size, now = self.total_outbufs_len, time.monotonic()
        if size <= self.adj.outbuf_high_watermark or size != self._waiting[0]:
            self._waiting = size, now
        return now - self._waiting[1] > REQUEST_S


def refusal(expected: str, found: str, todo: str) -> bytes:
    """A whole response, for a client that does not speak the protocol of the port."""
    body = json.dumps({"error": "rejected", "expected": expected, "found": found, "todo": todo}).encode()
    head = "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: "
    return f"{head}{len(body)}\r\n\r\n".encode() + body


def _make_room(channels: Iterable[ClientChannel], newest: ClientChannel) -> None:
    """Close connections if there are too many: the longest wait first, but none that has a request."""
    every = [channel for channel in channels if not channel.will_close]
    waiting = sorted(
        (channel for channel in every if not channel.requests and channel is not newest),
        key=lambda channel: channel.since_s,
    )
    for surplus in [*waiting, newest][: max(0, len(every) - MOST)]:
        surplus.will_close = True
