"""Waits of demos: each lasts as long as something moves, and shows what it waits for. Machines that do other work take
many times as long."""

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from trueup.connectors.embedded.processes import SLOW_MACHINE_S
from trueup.connectors.embedded.server import LocalServer
from trueup.sandbox.cluster import SandboxCluster
from trueup.state.common.errors import Retry, Stop
from trueup.streams.runtime.supervisor import attempted

Say = Callable[[str], None]
T = TypeVar("T")
STILL_S = SLOW_MACHINE_S
"""Seconds without any change after which a wait ends."""
SAY_S, LOOK_S = 10.0, 0.25
LINES = 4
"""Lines of a log that tell why a process ended."""
BUSY = 2.0
"""Processes that want to run, for each core, from which on a machine is too slow for a demo."""


def silent(_text: str) -> None:
    """Shows nothing."""


def wait_for(
    what: str, condition: Callable[[], object], say: Say, left: Callable[[], object] = str, still_s: float = STILL_S
) -> None:
    """Return once ``condition()`` is true. ``left``: what shows that something moves. Raises `Retry` if it does not
    change for ``still_s`` seconds."""
    now = begun = moved = said = time.monotonic()
    shown = left()
    while not condition():
        time.sleep(LOOK_S)
        now, before = time.monotonic(), shown
        shown = left()
        moved = now if shown != before else moved
        if now - moved >= still_s:
            raise Retry(what, f"{shown or 'nothing'} for {now - moved:.0f} s; {machine()}", "run the demo again alone")
        if now - said >= SAY_S:
            said = now
            say(f"  waiting for {what} for {now - begun:.0f} s: {f'{shown}; ' if shown else ''}{machine()}")


def carry_out(what: str, acts: Mapping[str, Callable[[], object]], say: Say, left: Callable[[], object] = str) -> None:
    """Do at once what waits itself, such as the starts of servers, by name, and show what is not done; see `wait_for`.
    Raises the first error of an act."""
    ended: dict[str, Exception | None] = {}

    def done() -> bool:
        return len(ended) == len(acts) or any([*ended.values()])

    def undone() -> str:
        return ", ".join(filter(None, [*(name for name in acts if name not in ended), str(left())]))

    for name, act in acts.items():
        run = threading.Thread(target=lambda name=name, act=act: ended.update({name: attempted(act)}), daemon=True)
        run.start()
    wait_for(what, done, say, undone)
    for error in filter(None, ended.values()):
        if isinstance(error, Retry):
            raise Retry(error.expected, f"{error.found}; {machine()}", "run the demo again alone") from error
        raise error


def made(what: str, make: Callable[[], T], say: Say) -> T:
    """The result of a call that waits itself; see `carry_out`."""
    results: list[T] = []
    carry_out(what, {"": lambda: results.append(make())}, say)
    return results[0]


def output_of(name: str, command: Sequence[str], errors: Path, say: Say) -> str:
    """What a command prints on stdout; its stderr is written to the file ``errors``. Raises `Stop` if it fails."""
    with tempfile.TemporaryFile("w+") as out, errors.open("w") as err:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        try:
            size = partial(os.stat, out.fileno())
            wait_for(f"{name} to end", lambda: process.poll() is not None, say, lambda: f"{size().st_size:,} B printed")
        finally:
            process.kill()
            process.wait()
        out.seek(0)
        printed = out.read()
    if process.returncode:
        last = " / ".join(errors.read_text(errors="replace").splitlines()[-LINES:])
        raise Stop(f"{name} to succeed", f"exit code {process.returncode}, and last on stderr: {last}", "run it again")
    return printed


def start(servers: Mapping[str, LocalServer], say: Say) -> None:
    """Start servers, by what they are called, and wait until they respond."""
    starts = {name: _patient(server).up for name, server in servers.items()}
    carry_out(f"{' and '.join(servers)} to respond", starts, say)


def start_cluster(cluster: SandboxCluster, say: Say, autorecovery: bool = True) -> None:
    """Start all servers of a cluster and wait until they respond; see `SandboxCluster.up`."""
    shown = ""

    def tell(what: str, ready: int, total: int) -> None:
        nonlocal shown
        shown = f"{what}: {ready:,} of {total:,}"

    for server in cluster.servers.values():
        _patient(server)
    carry_out("all servers to respond", {"": lambda: cluster.up(tell, autorecovery)}, say, lambda: shown)


def start_again(cluster: SandboxCluster, name: str, say: Say) -> None:
    """Start a server or a group of a cluster and wait until they respond; see `SandboxCluster.start`."""
    for server in cluster.servers.values():
        _patient(server)
    carry_out(f"{name} to respond", {"": lambda: cluster.start(name)}, say)


def _patient(server: LocalServer) -> LocalServer:
    """The server, whose start may take as long as any wait."""
    server.ready_s = STILL_S
    return server


def machine() -> str:
    """The load of the machine, as text."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    slow = ": this machine is too slow at the moment" if load > BUSY * cores else ""
    return f"load {load:.1f} on {cores} cores{slow}"
