"""Child processes that cannot outlive us, ports that nobody else gets, and waiting for a condition.

A child dies with this process (PR_SET_PDEATHSIG, prctl(2)), however that ends. The kernel sends that signal when the
*thread* that forked the child ends, so every child is forked by one thread that lives as long as the process.
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

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)
_forker = ThreadPoolExecutor(1, "forker")


def _renew_forker() -> None:
    global _forker
    _forker = ThreadPoolExecutor(1, "forker")


os.register_at_fork(after_in_child=_renew_forker)


class Process:
    """One child process with a log file and a session of its own.

    ``environment`` is added to ours. A process that ended may be started again.
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
        """Start it through another command from now on."""
        self._command = [*(str(word) for word in command), *self._command]

    @property
    def pid(self) -> int | None:
        """Process id of the last start; None before the first."""
        return self._child.pid if self._child else None

    @property
    def alive(self) -> bool:
        """Whether it runs now. Notices the end of one that died by itself and ends what that left behind."""
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
        """Start it. Raises `Stop` when it runs already or cannot be started."""
        if self.alive:
            raise Stop(f"{self.name} to be down", f"process {self.pid}", "stop it first")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with open(self.log, "ab", opener=_ours_alone) as log:
            self._log_start = log.tell()
            self._child = _forker.submit(self._fork, log).result()

    def wait_ready(self, condition: Callable[[], object], timeout_s: float) -> None:
        """Wait until ``condition`` holds. Raises `Stop` with the end of its log when it dies first, `Retry` when
        time runs out."""

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
                "see its log",
            )

    def run(self, timeout_s: float) -> None:
        """Start it and wait for its end. Raises `Stop` with the end of its log unless it succeeds."""
        self.start()
        try:
            wait_until(lambda: not self.alive, timeout_s, f"{self.name} to end")
        finally:
            self.kill()
        if self.exit_code:
            raise Stop(f"{self.name} to succeed", f"exit code {self.exit_code}; it wrote\n{self.tail()}", "see its log")

    def output(self) -> str:
        """What it wrote since its last start."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def tail(self, lines: int = 20) -> str:
        """The last lines it wrote since its last start."""
        return "\n".join(self.output().splitlines()[-lines:])

    def terminate(self) -> None:
        """Ask it to end (SIGTERM) and return at once."""
        if self._child and self.alive:
            self._child.terminate()

    def stop(self, grace_s: float = 10.0) -> None:
        """End it: SIGTERM, and after ``grace_s`` seconds SIGKILL."""
        self.terminate()
        try:
            wait_until(lambda: not self.alive, grace_s, f"{self.name} to end")
        except Retry:
            self.kill()

    def kill(self) -> None:
        """End it and what it started by SIGKILL, and wait until it is gone."""
        if self._child and self.alive:
            self._bury(self._child)

    @staticmethod
    def _bury(child: "subprocess.Popen[bytes]") -> None:
        """The group is signalled before the child is reaped: until then its id cannot belong to anybody else."""
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
            raise Stop(f"{self._command[0]} to start", str(error), "check that it is there and executable") from error


def _ours_alone(path: str, flags: int) -> int:
    """Logs may hold what others should not see (the gateway's token)."""
    return os.open(path, flags, 0o600)


class Port:
    """A TCP port kept for one server, as long as this object lives.

    A bound socket that never listens keeps it: the kernel gives the number to nobody else, while a server that binds
    with SO_REUSEADDR (every Java and netty server on Linux) may listen on it.
    """

    def __init__(self, host: str = "127.0.0.1", number: int = 0) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((host, number))
        except OSError as error:
            self._socket.close()
            raise Retry(f"port {host}:{number} to be free", str(error), "end what uses it") from error
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
        """Give it back."""
        self._socket.close()


def free_port(host: str = "127.0.0.1") -> int:
    """A port free at this moment. Use `Port` where another process might take it meanwhile."""
    port = Port(host)
    port.release()
    return port.number


def wait_until(condition: Callable[[], object], timeout_s: float, what: str) -> None:
    """Return once ``condition()`` is true. Raises `Retry` after ``timeout_s`` seconds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise Retry(what, f"not so after {timeout_s:g} s", "give it more time, or see the logs")
        time.sleep(0.05)
