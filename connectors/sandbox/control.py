"""A running sandbox looked after from other processes: one JSON object a line over a Unix socket in its directory.

Request: ``{"do": "kill", "name": "bookie4"}``. Answer: what `describe` returns, or ``{"expected", "found", "todo"}``.
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

from trueup.connectors.sandbox.cluster import Cluster
from trueup.connectors.sandbox.writer import Writer
from trueup.state.common.errors import Stop, TrueupError, Unknown

SOCKET = "control.sock"
REQUEST_TIMEOUT_S = 300.0


class Remote:
    """The sandbox that another process supervises in ``root``."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def request(self, do: str, name: str = "", **more: int) -> dict[str, Any]:
        """Ask for status, start NAME, kill NAME, stop NAME, write or down; the state of the sandbox afterwards.

        ``write`` takes the numbers ledgers, entries, ensemble and quorum, and answers with the ids in ``written``.

        Raises `Stop` when no sandbox runs there or it refuses, `Unknown` when it ends before it has answered.
        """
        with socket.socket(socket.AF_UNIX) as connection, _short_path(self._root) as path:
            connection.settimeout(REQUEST_TIMEOUT_S)
            try:
                connection.connect(path)
            except OSError as error:
                raise Stop(f"a sandbox running in {self._root}", str(error), "start one there") from error
            try:
                connection.sendall(json.dumps({"do": do, "name": name, **more}).encode() + b"\n")
                answer = _receive(connection)
            except OSError as error:
                raise Unknown(f"an answer of the sandbox in {self._root}", str(error), "it may be ending") from error
        if "expected" in answer:
            raise Stop(answer["expected"], answer["found"], answer["todo"])
        return answer


def serve(cluster: Cluster) -> None:
    """Answer requests about a cluster until one says down, or SIGTERM or SIGINT comes; then shut it down.

    Raises `Stop` when another process supervises the same directory.
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


def describe(cluster: Cluster) -> dict[str, Any]:
    """Addresses and state of every server, as plain values."""
    return {
        "root": str(cluster.root),
        "zookeeper": cluster.zookeeper.address,
        "rack_script": str(cluster.rack_script),
        "autorecovery": cluster.autorecovery_urls,
        "kafka": cluster.kafka.bootstrap if "kafka" in cluster.servers else None,
        "bookies": {
            bookie.name: {"id": bookie.id, "rack": cluster.rack_of(number), "url": bookie.url}
            for number, bookie in cluster.bookies.items()
        },
        "servers": {
            name: {"alive": server.alive, "pid": server.pid, "log": str(server.log)}
            for name, server in cluster.servers.items()
        },
    }


def _answer(cluster: Cluster, connection: socket.socket, ended: threading.Event) -> None:
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
        return  # it went away without asking anything
    try:
        connection.sendall(json.dumps(answer).encode() + b"\n")
    except OSError:
        return  # it did not wait for the answer


def _perform(cluster: Cluster, do: str, name: str, ended: threading.Event) -> dict[str, Any]:
    acts: dict[str, Callable[[], None]] = {
        "status": lambda: None,
        "start": lambda: cluster.start(name),
        "kill": lambda: _kill(cluster, name),
        "stop": lambda: cluster.stop(name),
        "down": lambda: _down(cluster, ended),
    }
    if do not in acts:
        raise Stop(f"one of {', '.join(acts)}", repr(do), "ask for one of these")
    acts[do]()
    return describe(cluster)


def _kill(cluster: Cluster, name: str) -> None:
    """Whoever writes next must not be sent to what was killed: its ledgers would be marked, and repaired, as lost."""
    cluster.kill(name)
    cluster.wait_lost(name)


def _write(cluster: Cluster, request: dict[str, Any]) -> dict[str, Any]:
    count, entries, ensemble, quorum = (int(request[key]) for key in ("ledgers", "entries", "ensemble", "quorum"))
    writer = Writer(cluster)
    try:
        written = [writer.write(ensemble, quorum, quorum, entries) for _ in range(count)]
    finally:
        writer.shutdown()
    return {**describe(cluster), "written": written}


def _down(cluster: Cluster, ended: threading.Event) -> None:
    cluster.down()
    ended.set()


@contextmanager
def _listen(root: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener, _short_path(root) as path:
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(path) == 0:
                raise Stop(f"nobody supervising {root}", "a process that answers there", "ask it to go down first")
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
    """SIGTERM and SIGINT end the loop; only the main thread may say so."""
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
    """The socket by way of an open directory, as its full path may be longer than the 107 bytes of unix(7)."""
    try:
        directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise Stop(f"a sandbox in {root}", str(error), "start one there") from error
    try:
        yield f"/proc/self/fd/{directory}/{SOCKET}"
    finally:
        os.close(directory)


def _receive(connection: socket.socket) -> dict[str, Any]:
    """One line. Raises `Stop` when it is not a JSON object."""
    with connection.makefile("rb") as stream:
        line = stream.readline()
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Stop("one JSON object on a line", repr(line[:80]), "speak the protocol of the control socket")
    return found
