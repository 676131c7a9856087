"""`trueup run` as a process of its own, the command line beside it, and what ZooKeeper says to somebody else."""

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import urllib3
from urllib3.exceptions import HTTPError

from connectors.bookkeeper import marks, reading
from connectors.bookkeeper.layout import Kind, Paths
from connectors.sandbox.cluster import Cluster
from connectors.sandbox.processes import Process, free_port
from connectors.zookeeper.client import Client, Event

WAIT_S = 180.0
LOOK_S = 0.2
SETTINGS = {
    # A worker idles this long after a repair that did not lead to an adhering ensemble (5 s by default).
    "rwRereplicateBackoffMs": 100,
}
TRUEUP = [sys.executable, "-m", "streams.cli.main"]


@dataclass(frozen=True, slots=True)
class Said:
    """What one command came to."""

    code: int
    out: str
    err: str


def command(*words: str) -> Said:
    """Run `trueup` with these words."""
    done = subprocess.run([*TRUEUP, *words], capture_output=True, text=True, timeout=120, check=False)
    return Said(done.returncode, done.stdout, done.stderr)


class Trueup:
    """One application on a sandbox cluster. ``sections`` go over the settings that fit the cluster."""

    def __init__(self, cluster: Cluster, root: Path, **sections: Mapping[str, object]) -> None:
        self.port = free_port()
        fitting: dict[str, dict[str, object]] = {
            "cluster": {"zookeeper": cluster.zookeeper.address, "name": "e2e", "session_timeout_ms": 4_000},
            "racks": {"source": "script", "script": str(cluster.rack_script)},
            "placement": {"grace_s": 1.0},
            "spark": {"buckets": 8, "memory": "768m"},
            "http": {"port": self.port},
        }
        settings = {name: {**fitting.get(name, {}), **sections.get(name, {})} for name in {**fitting, **sections}}
        root.mkdir(parents=True, exist_ok=True)
        self.data, self.file = root / "data", root / "trueup.yaml"
        self.file.write_text(json.dumps({**settings, "data_dir": str(self.data)}, indent=2))  # JSON is YAML too
        self.process = Process("trueup", [*TRUEUP, "run", "-c", self.file], root / "trueup.log")
        self._http = urllib3.PoolManager(timeout=10.0, retries=False)
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until its view is complete."""
        self.process.start()
        self.wait("ready", lambda status: status["ready"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def kill(self) -> None:
        """SIGKILL Python and Spark's JVM; an embedded journal dies with them."""
        self.process.kill()

    def end(self, limit_s: float = 60.0) -> int | None:
        """SIGTERM; its exit code."""
        self.process.terminate()
        until(lambda: not self.process.alive, limit_s, "the application to end", self.told)
        return self.process.exit_code

    def get(self, path: str) -> tuple[int, str]:
        """HTTP status and text of an address; 0 if nobody answers."""
        try:
            response = self._http.request("GET", f"{self.url}/{path}")
        except HTTPError as error:
            return 0, str(error)
        return response.status, response.data.decode()

    def api(self, path: str) -> Any:
        """What the API says, None while it says nothing."""
        code, text = self.get(f"api/{path}")
        return json.loads(text) if code == 200 else None

    def run(self, *words: str) -> Said:
        """Run a command against it."""
        return command(*words, "--api", self.url)

    def json(self, *words: str) -> Any:
        """What a command says with -o json."""
        said = self.run(*words, "-o", "json")
        assert said.out, f"trueup {' '.join(words)}: exit code {said.code}, {said.err}"
        return json.loads(said.out)

    def set(self, key: str, value: object) -> None:
        """trueup config set."""
        said = self.run("config", "set", key, str(value))
        assert said.code == 0, said

    def wait(self, what: str, condition: Callable[[dict[str, Any]], object], limit_s: float = WAIT_S) -> Any:
        """Wait until this holds of its status; the status then."""

        def look() -> Any:
            assert self.process.alive, f"Trueup ended with {self.process.exit_code}\n{self.told()}"
            status = self.api("status")
            return status if status is not None and condition(status) else None

        return until(look, limit_s, what, self.told)

    def until(self, what: str, condition: Callable[[], Any], limit_s: float = WAIT_S) -> Any:
        """Wait for anything; when it does not come, say what this application was about."""
        return until(condition, limit_s, what, self.told)

    def findings(self, rule: str | None = None) -> dict[int, dict[str, Any]]:
        """Findings by ledger."""
        rows = self.api("findings?limit=10000") or []
        return {row["ledger"]: row for row in rows if rule is None or row["rule"] == f"placement.{rule}"}

    def statuses(self) -> dict[str, str]:
        """Status of each bookie."""
        return {row["bookie"]: row["status"] for row in self.api("bookies") or []}

    def source(self, name: str) -> dict[str, Any]:
        """One of its sources."""
        status = self.api("status")
        assert status is not None, self.told()
        return next(source for source in status["sources"] if source["name"] == name)

    def metric(self, name: str, **labels: str) -> float:
        """The value of one series."""
        wanted = {f'{label}="{value}"' for label, value in labels.items()}
        for line in self.get("metrics")[1].splitlines():
            series, _, value = line.rpartition(" ")
            head, _, rest = series.partition("{")
            if head == name and wanted <= set(rest.rstrip("}").split(",")):
                return float(value)
        raise AssertionError(f"no series {name} {labels}")

    def told(self) -> str:
        """What helps when a test fails: status, findings, and the end of the log."""
        status, findings = self.get("api/status")[1], self.get("api/findings?limit=5")[1]
        plan = self.get("api/plan")[1][:2000]
        return f"status {status}\nfindings {findings}\nplan {plan}\nlog\n{self.process.tail(40)}"


def until(condition: Callable[[], Any], limit_s: float, what: str, told: Callable[[], str]) -> Any:
    """Wait until this is true, and give it back; fails with what ``told`` says."""
    deadline = time.monotonic() + limit_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not so after {limit_s:g} s: {what}\n{told()}"
        time.sleep(LOOK_S)
    return found


class Witness:
    """Another client of the same ZooKeeper: what stands there, and every mark that was ever created."""

    def __init__(self, cluster: Cluster) -> None:
        self._address = cluster.zookeeper.address
        self.client = Client(self._address, timeout=30.0).open()
        self.paths: Paths = reading.paths_of(self.client, "/ledgers")

    def marks(self) -> dict[int, marks.Mark]:
        """Marks that stand now. Waits for a connection."""
        until(lambda: self.client.connected, WAIT_S, "the witness to be connected", lambda: "")
        found = {
            ledger: self.client.look(self.paths.mark(ledger)) for ledger in reading.marked(self.client, self.paths)
        }
        return {ledger: marks.decode(seen[0]) for ledger, seen in found.items() if seen is not None}

    def votes(self) -> list[str]:
        """Who votes for the Auditor's place, lowest first."""
        names = sorted(self.client.get_children(self.paths.election), key=lambda name: int(name.rpartition("_")[2]))
        found = [self.client.look(f"{self.paths.election}/{name}") for name in names]
        return [marks.holder(seen[0]) for seen in found if seen is not None]

    @contextmanager
    def counting(self) -> Iterator[Counter[int]]:
        """Counts how often each ledger was marked, with a recursive watch of a session of its own."""
        created: Counter[int] = Counter()

        def heard(_zxid: int, kind: int, path: str) -> None:
            what, ledger = self.paths.classify(path)
            if kind == Event.CREATED and what is Kind.MARK and path.startswith(self.paths.marks):
                created[ledger] += 1

        watcher = Client(self._address, timeout=30.0, sink=heard).open()
        watcher.add_watch(self.paths.replication)
        try:
            yield created
            # An answer comes after all events up to its zxid.
            watcher.settle(self.paths.replication)
            watcher.look(self.paths.replication)
        finally:
            watcher.shut()

    def close(self) -> None:
        """End the session."""
        self.client.shut()
