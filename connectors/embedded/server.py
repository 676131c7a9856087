"""The base class of sandbox servers: a JVM with its own files, and a readiness check."""

import fcntl
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from trueup.connectors.closing import Closing
from trueup.connectors.embedded import archive
from trueup.connectors.embedded.java import java
from trueup.connectors.embedded.processes import Process, ours_alone
from trueup.state.common.errors import Stop

SMALL_HEAP = ("-Xms48m", "-Xmx192m", "-XX:MaxDirectMemorySize=96m", "-XX:MaxMetaspaceSize=96m")
"""JVM flags for many JVMs on a small machine."""
SMALL_JVM = (*SMALL_HEAP, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
DEFAULT_JVM: tuple[str, ...] = ()
"""JVM flags with Java's own choices, for fair benchmarks."""

_ALWAYS = (
    "-Djava.net.preferIPv4Stack=true",
    "-XX:-UsePerfData",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
)


class LocalServer(Closing):
    """A server that can be started, killed and started again on the same directories.

    ``root`` is its directory: configuration, data, log, and the libraries that netty and RocksDB unpack.
    """

    ready_s = 90.0

    def __init__(self, name: str, root: Path) -> None:
        self.name, self.root = name, root
        self._process: Process | None = None
        self._claim: IO[str] | None = None

    @property
    def process(self) -> Process:
        """The process, created at the first use."""
        if self._process is None:
            self._process = self.make()
        return self._process

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self._process is not None and self._process.alive

    @property
    def pid(self) -> int | None:
        """Process id of the last start; None before the first."""
        return self._process.pid if self._process else None

    @property
    def log(self) -> Path:
        """Its log file."""
        return self.root / "server.log"

    def make(self) -> Process:
        """Write its files and create its process."""
        raise NotImplementedError

    def is_ready(self) -> bool:
        """Whether it responds."""
        raise NotImplementedError

    def start(self) -> None:
        """Start the process; see `wait_ready`. Raises `Stop` if it runs already, here or in another process."""
        if self._claim is None:
            self._claim = _claim(self.root, self.name)
        self.prepare()
        _clear(self.root / "tmp")
        self.process.start()

    def prepare(self) -> None:
        """Preparation before each start."""

    def wait_ready(self) -> None:
        """Wait until it responds. Raises `Stop` if it dies first, `Retry` after the time-out."""
        self.process.wait_ready(self.is_ready, self.ready_s)

    def up(self) -> None:
        """Start and wait."""
        self.start()
        self.wait_ready()

    def stop(self, grace_s: float = 10.0) -> None:
        """Shut down regularly, by force after ``grace_s`` seconds."""
        if self._process:
            self._process.stop(grace_s)
        self._give_up()

    def kill(self) -> None:
        """SIGKILL."""
        if self._process:
            self._process.kill()
        self._give_up()

    def close(self) -> None:
        """Kill it and release its resources."""
        self.kill()

    def restart(self) -> None:
        """Kill it if it runs, start it on the same directories and wait."""
        self.kill()
        self.up()

    def _give_up(self) -> None:
        if self._claim:
            self._claim.close()
            self._claim = None


def jvm(
    name: str,
    root: Path,
    classpath: Sequence[Path],
    main: Sequence[object],
    flags: Sequence[str],
    environment: Mapping[str, str] | None = None,
) -> Process:
    """A Java process. The class path is passed in the environment, to keep the command line readable."""
    scratch = root / "tmp"
    _clear(scratch)
    return Process(
        name,
        [java(), *flags, *archive.flags(classpath, main), *_ALWAYS, f"-Djava.io.tmpdir={scratch}", *main],
        root / "server.log",
        {"CLASSPATH": ":".join(map(str, classpath)), **(environment or {})},
        root,
    )


def write_properties(path: Path, values: Mapping[str, object], mode: int = 0o644) -> Path:
    """Write a Java properties file, one key per line."""
    return write_whole(path, "".join(f"{key}={value}\n" for key, value in values.items()), mode)


def write_whole(path: Path, text: str, mode: int = 0o644) -> Path:
    """Write a file atomically. At no time it has more permissions than ``mode``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.draft")
    draft.unlink(missing_ok=True)
    with open(draft, "x", opener=ours_alone) as file:
        file.write(text)
    draft.chmod(mode)
    return draft.replace(path)


def log4j2(directory: Path, target: str = "SYSTEM_OUT", level: str = "INFO") -> Path:
    """A log4j2 configuration that logs to standard output, or to SYSTEM_ERR."""
    return write_whole(
        directory / "log4j2.xml",
        f'<Configuration status="ERROR"><Appenders><Console name="out" target="{target}">'
        '<PatternLayout pattern="%d{ISO8601} %-5p %c{1} [%t] %m%n"/></Console></Appenders>'
        f'<Loggers><Root level="{level}"><AppenderRef ref="out"/></Root>'
        '<Logger name="org.apache.zookeeper" level="WARN"/></Loggers></Configuration>\n',
    )


def _clear(scratch: Path) -> None:
    """Replace the files that a killed JVM unpacked and never removed by an empty directory."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)


def _claim(directory: Path, name: str) -> IO[str]:
    """Lock a directory until the result is closed. Raises `Stop` if another process has locked it."""
    directory.mkdir(parents=True, exist_ok=True)
    # Who can open a file can lock it.
    lock = open(directory / "lock", "w", opener=ours_alone)  # noqa: SIM115 - open until the result is closed
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise Stop(
            f"exclusive use of {directory} for {name}", "another process", "stop it, or use another directory"
        ) from None
    return lock
