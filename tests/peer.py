"""A listener that sends given bytes, for responses that real servers cannot be made to send."""

import socket
from concurrent.futures import Future, ThreadPoolExecutor

WAIT_S = 60.0


class Peer:
    """A listener in place of a bookie. Reads expected requests and sends given bytes."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self._pool = ThreadPoolExecutor(1)
        self.asked: Future[str] | None = None

    def answers(self, size: int, *bodies: str) -> None:
        """Read ``size`` bytes, send frames with these bodies (hex), and close the connection."""
        self.asked = self._pool.submit(self._serve, size, [bytes.fromhex(body) for body in bodies])

    def received(self) -> str:
        assert self.asked is not None
        return self.asked.result(WAIT_S)

    def close(self) -> None:
        self._listener.close()
        self._pool.shutdown()

    def _serve(self, size: int, bodies: list[bytes]) -> str:
        with self._listener.accept()[0] as end:
            received = end.recv(size, socket.MSG_WAITALL).hex()
            end.sendall(b"".join(len(body).to_bytes(4, "big") + body for body in bodies))
        return received
