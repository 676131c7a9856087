"""Child processes that end with this process, reserved ports, and waiting for a condition.

A child is killed when this process ends (PR_SET_PDEATHSIG, prctl(2)). The kernel sends that signal when the
*thread* that forked the child ends, so one thread that lives as long as the process forks every child.
"""

import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

from trueup.state.common.errors import Retry, Stop

SLOW_MACHINE_S = 420.0
"""A wait that is sufficient on a machine with several times the load that it can handle."""
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)
_forker = ThreadPoolExecutor(1, "forker")


def _renew_forker() -> None:
    global _forker
    _forker = ThreadPoolExecutor(1, "forker")


os.register_at_fork(after_in_child=_renew_forker)


class Process:
    """One child process with its own log file and session.

    ``environment`` is added to the current one. A process that ended can be started again.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[object],
        log: Path,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> None:
        self.name, self.log = name, log
        self._command = [str(word) for word in command]
        self._environment, self._directory = dict(environment or {}), directory
        self._child: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    def within(self, command: Sequence[object]) -> None:
        """Start the process through another command from now on."""
        self._command = [*(str(word) for word in command), *self._command]

    @property
    def pid(self) -> int | None:
        """Process id of the last start; None before the first."""
        return self._child.pid if self._child else None

    @property
    def alive(self) -> bool:
        """Whether it runs now. If it died by itself, its remaining children are killed."""
        if self._child is None or self._child.returncode is not None:
            return False
        if os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return True
        self._bury(self._child)
        return False

    @property
    def exit_code(self) -> int | None:
        """Exit code of the last start, negative for a signal; None while it runs or before the first start."""
        return self._child.returncode if self._child and not self.alive else None

    def start(self) -> None:
        """Start it. Raises `Stop` if it runs already or cannot be started."""
        if self.alive:
            raise Stop(f"{self.name} not running", f"process {self.pid}", "stop it first")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with open(self.log, "ab", opener=ours_alone) as log:
            self._log_start = log.tell()
            self._child = _forker.submit(self._fork, log).result()

    def wait_ready(self, condition: Callable[[], object], timeout_s: float) -> None:
        """Wait until ``condition`` holds. Raises `Stop` with the end of its log if it dies first, `Retry` after
        the time-out."""

        def ready_or_dead() -> object:
            return condition() or not self.alive

        try:
            wait_until(ready_or_dead, timeout_s, f"{self.name} to be ready")
        except Retry as late:
            raise Retry(late.expected, f"{late.found}; its log ends\n{self.tail()}", late.todo) from None
        if not self.alive:
            raise Stop(
                f"{self.name} to become ready",
                f"exit code {self.exit_code}; its log ends\n{self.tail()}",
                "check its log",
            )

    def run(self, timeout_s: float) -> None:
        """Run it to its end. Raises `Stop` with the end of its log unless it succeeds."""
        self.start()
        try:
            wait_until(lambda: not self.alive, timeout_s, f"{self.name} to end")
        finally:
            self.kill()
        if self.exit_code:
            raise Stop(f"{self.name} to succeed", f"exit code {self.exit_code}; it wrote\n{self.tail()}", "see its log")

    def output(self) -> str:
        """Its output since the last start."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def tail(self, lines: int = 20) -> str:
        """The last lines of its output since the last start."""
        return "\n".join(self.output().splitlines()[-lines:])

    def terminate(self) -> None:
        """Send SIGTERM and return immediately."""
        if self._child and self.alive:
            self._child.terminate()

    def stop(self, grace_s: float = 10.0) -> None:
        """Send SIGTERM, and SIGKILL after ``grace_s`` seconds."""
        self.terminate()
        try:
            wait_until(lambda: not self.alive, grace_s, f"{self.name} to end")
        except Retry:
            self.kill()

    def kill(self) -> None:
        """Kill it and its children with SIGKILL, and wait for their end."""
        if self._child and self.alive:
            self._bury(self._child)

    @staticmethod
    def _bury(child: "subprocess.Popen[bytes]") -> None:
        """Signal the group before the child is reaped: until then its id cannot be reused."""
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()

    def _fork(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        ours = os.getpid()

        def die_with_us() -> None:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != ours:
                os._exit(1)

        try:
            return subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,
                env={**os.environ, **self._environment},
                start_new_session=True,
                preexec_fn=die_with_us,
            )
        except OSError as error:
            raise Stop(f"{self._command[0]} to start", str(error), "check that it exists and is executable") from error


def ours_alone(path: str, flags: int) -> int:
    """An opener of files that only this user can open, like logs, which can contain secrets (the gateway's token)."""
    file = os.open(path, flags, 0o600)
    os.fchmod(file, 0o600)
    return file


class Port:
    """A TCP port that is reserved for one server during the lifetime of this object.

    A bound socket that never listens reserves it: the kernel does not assign the number again, while a server that
    binds with SO_REUSEADDR (every Java and netty server on Linux) can listen on it. ``unused``: the number must not be
    reserved by another `Port`, and no connection of before may remain on it.
    """

    def __init__(self, host: str = "127.0.0.1", number: int = 0, unused: bool = False) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(not unused))
        try:
            self._socket.bind((host, number))
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        except OSError as error:
            self._socket.close()
            raise Retry(f"port {host}:{number} to be free", str(error), "stop the process that uses it") from error
        self.host, self.number = host, int(self._socket.getsockname()[1])

    def __str__(self) -> str:
        return f"{self.host}:{self.number}"

    def open(self) -> bool:
        """Whether a server listens on it."""
        try:
            socket.create_connection((self.host, self.number), 1.0).close()
        except OSError:
            return False
        return True

    def release(self) -> None:
        """Release the port."""
        self._socket.close()


def free_port(host: str = "127.0.0.1") -> int:
    """A port that is free now. Use `Port` if another process might take it meanwhile."""
    port = Port(host)
    port.release()
    return port.number


def wait_until(condition: Callable[[], object], timeout_s: float, what: str) -> None:
    """Return once ``condition()`` is true. Raises `Retry` after ``timeout_s`` seconds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise Retry(what, f"not true after {timeout_s:g} s", "wait longer, or check the logs")
        time.sleep(0.05)
