"""Control of a running sandbox from other processes: JSON objects, one per line, over a Unix socket in its directory.

Request: ``{"do": "kill", "name": "bookie4"}``. Response: as `describe` returns, or ``{"expected", "found", "todo"}``.
"""

import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.writer import LedgerWriter
from trueup.state.common.errors import Stop, TrueupError, Unknown

SOCKET = "control.sock"
REQUEST_TIMEOUT_S = 300.0


class Remote:
    """The sandbox in ``root``, which another process supervises."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def request(self, do: str, name: str = "", **more: int) -> dict[str, Any]:
        """Send a request (status, start NAME, kill NAME, stop NAME, write or down). Returns the state afterwards.

        ``write`` takes the numbers ledgers, entries, ensemble and quorum, and an isolation group as NAME or "". It
        returns the ids in ``written``.

        Raises `Stop` if no sandbox runs there or it refuses, `Unknown` if it ends before it responds.
        """
        with socket.socket(socket.AF_UNIX) as connection, _short_path(self._root) as path:
            connection.settimeout(REQUEST_TIMEOUT_S)
            try:
                connection.connect(path)
            except OSError as error:
                raise Stop(f"a sandbox running in {self._root}", str(error), "start a sandbox there") from error
            try:
                connection.sendall(json.dumps({"do": do, "name": name, **more}).encode() + b"\n")
                answer = _receive(connection)
            except OSError as error:
                raise Unknown(f"a response from the sandbox in {self._root}", str(error), "it may be ending") from error
        if "expected" in answer:
            raise Stop(answer["expected"], answer["found"], answer["todo"])
        return answer


def serve(cluster: SandboxCluster) -> None:
    """Serve requests for a cluster until a request is down, or SIGTERM or SIGINT arrives; then shut it down.

    Raises `Stop` if another process supervises the same directory.
    """
    ended = threading.Event()
    with _listen(cluster.root) as listener, _signals(ended):
        while not ended.is_set():
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            with connection:
                _answer(cluster, connection, ended)
    cluster.down()


def describe(cluster: SandboxCluster) -> dict[str, Any]:
    """Addresses and state of every server, as plain values."""
    return {
        "root": str(cluster.root),
        "zookeeper": cluster.zookeeper.address,
        "rack_script": str(cluster.rack_script),
        "autorecovery": cluster.autorecovery_urls,
        "kafka": cluster.kafka.bootstrap if "kafka" in cluster.servers else None,
        "rocketmq": {
            server.name: server.address for rocketmq in cluster.rocketmq.values() for server in rocketmq.servers
        },
        "bookies": {
            bookie.name: {"id": bookie.id, "rack": cluster.rack_of(number), "url": bookie.url}
            for number, bookie in cluster.bookies.items()
        },
        "servers": {
            name: {"alive": server.alive, "pid": server.pid, "log": str(server.log)}
            for name, server in cluster.servers.items()
        },
    }


def _answer(cluster: SandboxCluster, connection: socket.socket, ended: threading.Event) -> None:
    connection.settimeout(10.0)
    try:
        request = _receive(connection)
        answer = (
            _write(cluster, request)
            if request.get("do") == "write"
            else _perform(cluster, str(request.get("do")), str(request.get("name", "")), ended)
        )
    except TrueupError as error:
        answer = {"expected": error.expected, "found": error.found, "todo": error.todo}
    except OSError:
        return  # the client closed without a request
    try:
        connection.sendall(json.dumps(answer).encode() + b"\n")
    except OSError:
        return  # the client did not wait for the response


def _perform(cluster: SandboxCluster, do: str, name: str, ended: threading.Event) -> dict[str, Any]:
    acts: dict[str, Callable[[], None]] = {
        "status": lambda: None,
        "start": lambda: cluster.start(name),
        "kill": lambda: _kill(cluster, name),
        "stop": lambda: cluster.stop(name),
        "down": lambda: _down(cluster, ended),
    }
    if do not in acts:
        raise Stop(f"one of {', '.join(acts)}", repr(do), "request one of these")
    acts[do]()
    return describe(cluster)


def _kill(cluster: SandboxCluster, name: str) -> None:
    """Wait until no client writes to the killed bookies: new ledgers on them would be marked as lost."""
    cluster.kill(name)
    cluster.wait_lost(name)


def _write(cluster: SandboxCluster, request: dict[str, Any]) -> dict[str, Any]:
    count, entries, ensemble, quorum = (int(request[key]) for key in ("ledgers", "entries", "ensemble", "quorum"))
    writer = LedgerWriter(cluster, group=str(request.get("name", "")))
    try:
        written = [writer.write(ensemble, quorum, quorum, entries) for _ in range(count)]
    finally:
        writer.shutdown()
    return {**describe(cluster), "written": written}


def _down(cluster: SandboxCluster, ended: threading.Event) -> None:
    cluster.down()
    ended.set()


@contextmanager
def _listen(root: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener, _short_path(root) as path:
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(path) == 0:
                raise Stop(f"no process that supervises {root}", "a process that responds there", "shut it down first")
        (root / SOCKET).unlink(missing_ok=True)
        listener.bind(path)
        (root / SOCKET).chmod(0o600)
        listener.listen()
        listener.settimeout(0.5)
        try:
            yield listener
        finally:
            (root / SOCKET).unlink(missing_ok=True)


@contextmanager
def _signals(ended: threading.Event) -> Iterator[None]:
    """SIGTERM and SIGINT end the loop; only the main thread may install handlers."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: ended.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _short_path(root: Path) -> Iterator[str]:
    """The socket's path through an open directory, because its full path may exceed the 107 bytes of unix(7)."""
    try:
        directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise Stop(f"a sandbox in {root}", str(error), "start a sandbox there") from error
    try:
        yield f"/proc/self/fd/{directory}/{SOCKET}"
    finally:
        os.close(directory)


def _receive(connection: socket.socket) -> dict[str, Any]:
    """Read one line. Raises `Stop` if it is not a JSON object."""
    with connection.makefile("rb") as stream:
        line = stream.readline()
    try:
        message = json.loads(line)
    except ValueError:
        message = None
    if not isinstance(message, dict):
        raise Stop("one JSON object on a line", repr(line[:80]), "use the protocol of the control socket")
    return message
