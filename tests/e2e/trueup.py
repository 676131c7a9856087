"""`trueup run` in a separate process, its command line, and an independent ZooKeeper client."""

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
import urllib3
from urllib3.exceptions import HTTPError

from trueup.connectors.bookkeeper.metadata import mark_codec, queries
from trueup.connectors.bookkeeper.metadata.layout import BookKeeperPaths, ZnodeKind
from trueup.connectors.embedded.processes import Port, Process
from trueup.connectors.kafka.journal.embedded import MECHANISM, USER
from trueup.connectors.zookeeper.client import NodeEvent, ZooKeeperClient
from trueup.connectors.zookeeper.connection import Events
from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.writer import LedgerWriter

WAIT_S = 420.0
"""Sufficient on a machine with four times the load that it can handle. Permanent failures end a wait immediately."""
LOOK_S = 0.2
SETTINGS = {
    # Idle time of a worker after a repair that did not produce an adhering ensemble (5 s by default).
    "rwRereplicateBackoffMs": 100
}
TRUEUP = [sys.executable, "-m", "trueup.streams.cli.main"]


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of one command."""

    code: int
    out: str
    err: str


def on_one_rack(cluster: SandboxCluster, writer: LedgerWriter, ledgers: int, entries: int) -> list[int]:
    """Ledgers whose replicas are on one of two racks: /rack2 was down when they were written."""
    cluster.stop("/rack2")
    written = [writer.write(2, 2, 2, entries) for _ in range(ledgers)]
    cluster.start("/rack2")
    return written


def command(*words: str) -> CommandResult:
    """Run `trueup` with these arguments."""
    done = subprocess.run([*TRUEUP, *words], capture_output=True, text=True, timeout=WAIT_S, check=False)
    return CommandResult(done.returncode, done.stdout, done.stderr)


class Trueup:
    """One application on a sandbox cluster, or without one. ``sections`` override the settings that fit the cluster."""

    def __init__(self, cluster: SandboxCluster | None, root: Path, /, **sections: Mapping[str, object]) -> None:
        self._kept = Port()  # other test workers also search for ports
        self.port = self._kept.number
        watched: dict[str, dict[str, object]] = (
            {}
            if cluster is None
            else {
                "cluster": {"zookeeper": cluster.zookeeper.address, "name": "e2e", "session_timeout_ms": 8_000},
                "racks": {"source": "script", "script": str(cluster.rack_script)},
                "placement": {"grace_s": 1.0},
            }
        )
        fitting: dict[str, dict[str, object]] = {
            **watched,
            "spark": {"buckets": 8, "memory": "768m"},
            "http": {"port": self.port},
        }
        settings = {name: {**fitting.get(name, {}), **sections.get(name, {})} for name in {**fitting, **sections}}
        root.mkdir(parents=True, exist_ok=True)
        self.data, self.file = root / "data", root / "trueup.yaml"
        self.file.write_text(json.dumps({**settings, "data_dir": str(self.data)}, indent=2))  # JSON is valid YAML
        self.process = Process("trueup", [*TRUEUP, "run", "-c", self.file], root / "trueup.log")
        self._http = urllib3.PoolManager(timeout=10.0, retries=False)
        self.url = f"http://127.0.0.1:{self.port}"
        self._wanted = False

    def start(self) -> None:
        """Start the application and wait until its view is complete."""
        self.process.start()
        self._wanted = True
        self.wait("ready", lambda status: status["ready"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._kept.release()

    def kill(self) -> None:
        """SIGKILL Python and Spark's JVM. An embedded journal also ends."""
        self._wanted = False
        self.process.kill()

    def end(self, limit_s: float = WAIT_S) -> int | None:
        """Send SIGTERM and return the exit code."""
        self._wanted = False
        self.process.terminate()
        until(lambda: not self.process.alive, limit_s, "the application to end", self.diagnostics)
        return self.process.exit_code

    def get(self, path: str) -> tuple[int, str]:
        """HTTP status and text of a response. The status is 0 without a response."""
        try:
            response = self._http.request("GET", f"{self.url}/{path}")
        except HTTPError as error:
            return 0, str(error)
        return response.status, response.data.decode()

    def api(self, path: str) -> Any:
        """The API's response. Repeats the request, because a busy machine may delay the response."""

        def asked() -> str | None:
            code, text = self.get(f"api/{path}")
            assert not 400 <= code < 500, f"{path}: {code} {text}"
            return text if code == 200 else None

        return json.loads(self.until(f"an answer to {path}", asked))

    def _status(self) -> dict[str, Any] | None:
        code, text = self.get("api/status")
        found: dict[str, Any] | None = json.loads(text) if code == 200 else None
        return found

    def run(self, *words: str) -> CommandResult:
        """Run a command against the application."""
        return command(*words, "--api", self.url)

    def json(self, *words: str) -> Any:
        """The output of a command with -o json."""
        result = self.run(*words, "-o", "json")
        assert result.out, f"trueup {' '.join(words)}: exit code {result.code}, {result.err}"
        return json.loads(result.out)

    def set(self, key: str, value: object) -> None:
        """Run trueup config set."""
        result = self.run("config", "set", key, str(value))
        assert result.code == 0, result

    def wait(self, what: str, condition: Callable[[dict[str, Any]], object], limit_s: float = WAIT_S) -> Any:
        """Wait until the condition holds for the status, and return that status."""

        def look() -> Any:
            status = self._status()
            return status if status is not None and condition(status) else None

        return self.until(what, look, limit_s)

    def until(self, what: str, condition: Callable[[], Any], limit_s: float = WAIT_S) -> Any:
        """Wait for a condition. Fails with diagnostics after the limit, or if the application ends unexpectedly."""

        def look() -> Any:
            ended = self._wanted and not self.process.alive
            assert not ended, f"Trueup ended with {self.process.exit_code} before: {what}\n{self.diagnostics()}"
            return condition()

        return until(look, limit_s, what, self.diagnostics)

    @contextmanager
    def sampled(self, path: str) -> Iterator[list[tuple[float, Any]]]:
        """Repeated API responses for a path with their request times (monotonic), while the application is up."""
        seen: list[tuple[float, Any]] = []
        done = threading.Event()

        def look() -> None:
            while not done.wait(0.05):
                at_s = time.monotonic()
                code, text = self.get(f"api/{path}")
                if code == 200:
                    seen.append((at_s, json.loads(text)))

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield seen
        finally:
            done.set()
            thread.join()

    def findings(self, rule: str | None = None) -> dict[int, dict[str, Any]]:
        """Findings by ledger."""
        rows = self.api("findings?limit=10000")
        return {row["ledger"]: row for row in rows if rule is None or row["rule"] == f"placement.{rule}"}

    def statuses(self) -> dict[str, str]:
        """Status of each bookie."""
        return {row["bookie"]: row["status"] for row in self.api("bookies")}

    def embedded(self, data: Path) -> dict[str, str]:
        """Settings of a client (librdkafka's names) of the embedded journal in this data directory."""
        return {
            "bootstrap.servers": self.source("journal")["detail"],
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": MECHANISM,
            "sasl.username": USER,
            "sasl.password": (data / "journal" / "password").read_text(),
        }

    def source(self, name: str) -> dict[str, Any]:
        """One source of the status."""
        return source_of(self.api("status"), name)

    def metric(self, name: str, **labels: str) -> float:
        """The value of one time series."""
        wanted = {f'{label}="{value}"' for label, value in labels.items()}
        for line in self.get("metrics")[1].splitlines():
            series, _, value = line.rpartition(" ")
            head, _, rest = series.partition("{")
            if head == name and wanted <= set(rest.rstrip("}").split(",")):
                return float(value)
        raise AssertionError(f"no series {name} {labels}")

    def processes(self) -> list[psutil.Process]:
        """The application's process and all its descendants. Empty if it does not run."""
        if self.process.pid is None:  # psutil reads None as this process
            return []
        try:
            root = psutil.Process(self.process.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def jvm(self) -> psutil.Process:
        """Spark's driver. A child has the same command line until its exec, but is listed after it."""
        return next(process for process in self.processes() if "pyspark-shell" in words(process))

    def workers(self) -> list[psutil.Process]:
        """Python workers of Spark that hold leases."""
        daemons = [process for process in self.processes() if "pyspark.daemon" in " ".join(words(process))]
        return [child for child in daemons if child.ppid() in {daemon.pid for daemon in daemons}]

    def diagnostics(self) -> str:
        """Diagnostics for a failed test: status, findings, and the end of the log."""
        status, findings = self.get("api/status")[1], self.get("api/findings?limit=5")[1]
        plan = self.get("api/plan")[1][:2000]
        return f"status {status}\nfindings {findings}\nplan {plan}\nlog\n{self.process.tail(40)}"


def words(process: psutil.Process) -> list[str]:
    """The command line of a process, empty if it ended."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def source_of(status: Mapping[str, Any], name: str) -> dict[str, Any]:
    """One of the sources in a status."""
    found: dict[str, Any] = next(source for source in status["sources"] if source["name"] == name)
    return found


def until(condition: Callable[[], Any], limit_s: float, what: str, diagnostics: Callable[[], str]) -> Any:
    """Wait until the condition is true, and return its value. Fails with the text of ``diagnostics``."""
    deadline = time.monotonic() + limit_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not so after {limit_s:g} s: {what}\n{diagnostics()}"
        time.sleep(LOOK_S)
    return found


class Witness:
    """An independent client of the same ZooKeeper. Reads the current state and counts all created marks."""

    def __init__(self, cluster: SandboxCluster) -> None:
        self._address = cluster.zookeeper.address
        self.client = ZooKeeperClient(self._address, timeout=30.0).open()
        self.paths: BookKeeperPaths = queries.paths_of(self.client, "/ledgers")

    def marks(self) -> dict[int, mark_codec.Mark]:
        """The current marks. Waits for a connection."""
        until(lambda: self.client.connected, WAIT_S, "the witness to be connected", lambda: "")
        found = {
            ledger: self.client.look(self.paths.mark(ledger)) for ledger in queries.marked(self.client, self.paths)
        }
        return {ledger: mark_codec.decode(seen[0]) for ledger, seen in found.items() if seen is not None}

    def votes(self) -> list[str]:
        """Candidates of the Auditor election, lowest first."""
        names = sorted(self.client.get_children(self.paths.election), key=lambda name: int(name.rpartition("_")[2]))
        found = [self.client.look(f"{self.paths.election}/{name}") for name in names]
        return [mark_codec.holder(seen[0]) for seen in found if seen is not None]

    @contextmanager
    def counting(self) -> Iterator[Counter[int]]:
        """Counts the marks of each ledger, with a recursive watch in a separate session."""
        created: Counter[int] = Counter()

        def on_events(events: Events) -> None:
            for _, kind, path in events:
                what, ledger = self.paths.classify(path)
                if kind == NodeEvent.CREATED and what is ZnodeKind.MARK and path.startswith(self.paths.marks):
                    created[ledger] += 1

        watcher = ZooKeeperClient(self._address, timeout=30.0, sink=on_events).open()
        watcher.add_watch(self.paths.replication)
        try:
            yield created
            # A response arrives after all events up to its zxid.
            watcher.settle(self.paths.replication)
            watcher.look(self.paths.replication)
        finally:
            watcher.shut()

    def close(self) -> None:
        """End the session."""
        self.client.shut()
