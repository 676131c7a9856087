"""A listener that answers requests of the remoting protocol as told."""

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

Handler = Callable[[dict[str, Any]], bytes | None]
"""Bytes to send for the header of a request; None closes the connection."""


def frame(header: dict[str, Any], body: bytes = b"") -> bytes:
    raw = json.dumps(header).encode()
    return struct.pack(">ii", 4 + len(raw) + len(body), len(raw)) + raw + body


def answer(request: dict[str, Any], code: int = 0, body: bytes = b"", remark: str = "", **fields: str) -> bytes:
    header = {"code": code, "opaque": request["opaque"], "flag": 1, "remark": remark, "extFields": fields}
    return frame(header, body)


class Peer:
    """``requests``: headers of all requests, with the ``body``. ``pace_s``: time between two bytes of a response."""

    def __init__(self, handler: Handler, pace_s: float = 0.0) -> None:
        self.handler, self.requests, self.pace_s = handler, list[dict[str, Any]](), pace_s
        self._closed = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Close all current connections."""
        self._close(*self._ends)

    def close(self) -> None:
        self._closed.set()
        self._close(self._listener, *self._ends)

    @staticmethod
    def _close(*ends: socket.socket) -> None:
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                end, _ = self._listener.accept()
                self._ends.append(end)
                threading.Thread(target=self._serve, args=(end,), daemon=True).start()

    def _serve(self, end: socket.socket) -> None:
        with contextlib.suppress(OSError), end, end.makefile("rb") as stream:
            while len(size := stream.read(4)) == 4:
                raw = stream.read(int.from_bytes(size, "big"))
                header = json.loads(raw[4 : 4 + int.from_bytes(raw[1:4], "big")])
                header["body"] = raw[4 + int.from_bytes(raw[1:4], "big") :]
                self.requests.append(header)
                response = self.handler(header)
                if response is None:
                    return
                for piece in [response] if not self.pace_s else (response[at : at + 1] for at in range(len(response))):
                    end.sendall(piece)
                    self._closed.wait(self.pace_s)
