"""Runs Trueup in a separate process, as an operator would, and queries its API."""

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from trueup.connectors.embedded.processes import free_port
from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.demo.waiting import LINES, STILL_S, Say, machine, silent, wait_for
from trueup.state.common.errors import Retry, Stop, TrueupError
from trueup.streams.terminal.client import Api

END_S = 60.0


class DemoApplication:
    """`trueup run` with its own settings file below ``root``. ``say``: prints what it waits for."""

    def __init__(self, settings: Mapping[str, object], root: Path, say: Say = silent) -> None:
        port, self.say = free_port(), say
        root.mkdir(parents=True, exist_ok=True)
        self._file, self.log = root / "trueup.yaml", root / "trueup.log"
        whole = {**settings, "http": {"port": port}, "data_dir": str(root / "data")}
        self._file.write_text(json.dumps(whole, indent=2))  # JSON is valid YAML
        self._api = Api(f"http://127.0.0.1:{port}", read_s=5.0)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Its process id; 0 if it is not running."""
        return self._process.pid if self._process is not None else 0

    def __enter__(self) -> Self:
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "trueup.streams.cli.main", "run", "-c", str(self._file)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            ending = self._process
            ending.terminate()
            try:
                wait_for("Trueup to end", lambda: ending.poll() is not None, self.say, still_s=END_S)
            except Retry as late:
                self.say(str(late))
                ending.kill()
                ending.wait()

    def wait_until(self, what: str, condition: Any, still_s: float = STILL_S) -> None:
        """Wait until the status meets a condition; see `wait_for`."""
        shown = "no response"

        def look() -> bool:
            nonlocal shown
            status = self.status()
            shown = "no response" if status is None else _shown(status)
            return status is not None and condition(status)

        wait_for(what, look, self.say, lambda: f"Trueup: {shown}", still_s)

    def _last(self) -> str:
        """The last lines of the log, which is deleted with the demo."""
        return " / ".join(self.log.read_text(errors="replace").splitlines()[-LINES:])

    def set(self, key: str, value: object) -> None:
        """Change a live key."""
        self._api.put(f"config/{key}", {"value": value})

    def link(self, name: str) -> dict[str, Any]:
        """All details of a link."""
        details: dict[str, Any] = self._api.get(f"links/{name}")
        return details

    def refill(self, link: str) -> list[dict[str, Any]]:
        """Refill of a link's target, if it can begin now."""
        rows: list[dict[str, Any]] = self._api.post(f"links/{link}/refill", {"certain": True})
        return rows

    def status(self) -> dict[str, Any] | None:
        """Its status, None while it does not respond. Raises `Stop` if it ended."""
        if self._process is not None and self._process.poll() is not None:
            ended = f"exit code {self._process.returncode}, and last in its log: {self._last()}"
            raise Stop("Trueup to run", ended, f"run the demo again alone; {machine()}")
        try:
            status: dict[str, Any] = self._api.get("status")
            return status
        except Retry:
            return None


def _shown(status: Mapping[str, Any]) -> str:
    """What a status says about readiness, sources that are not up, and links."""
    sources = [f"{row['name']}: {row['detail'] or row['state']}" for row in status["sources"] if row["state"] != "up"]
    links = [f"link {row['link']} {row['state']}" for row in status["links"]]
    return ", ".join(["ready" if status["ready"] else "starting", *sources, *links])


class Trueup(DemoApplication):
    """Trueup on a sandbox cluster, with placement in mode `enforce`."""

    def __init__(self, cluster: SandboxCluster, root: Path, say: Say = silent) -> None:
        settings = {
            "cluster": {"zookeeper": str(cluster.zookeeper.address), "name": "drill", "session_timeout_ms": 4_000},
            "racks": {"source": "script", "script": str(cluster.rack_script)},
            # The drill kills half of its bookies: this must not cause a hold, and a short grace saves time.
            "placement": {"mode": "enforce", "grace_s": 1.0, "hold_share": 0.6, "decline_retry_s": 10.0},
            "journal": {"bootstrap": cluster.kafka.bootstrap},
            "spark": {"buckets": 16, "memory": "1g"},
        }
        super().__init__(settings, root, say)
        self.drifted: dict[int, int] = {}
        self.safe_ms: dict[int, int] = {}
        self.blocked: dict[int, str] = {}
        self._begun_ms = 0

    def begin(self) -> None:
        """Start measuring times to safe."""
        self.safe_ms.clear()
        self._begun_ms = time.time_ns() // 1_000_000

    def riskiest(self, count: int) -> list[dict[str, Any]]:
        """The findings with the highest risk."""
        rows: list[dict[str, Any]] = self._api.get("findings", verdict="drifted", limit=count)
        return rows

    def look(self) -> dict[str, Any] | None:
        """Get the status and record which ledgers are drifted, safe or blocked."""
        status = self.status()
        if status is None or not status["ready"]:
            return None
        try:
            findings = self._api.get("findings", limit=10_000)
        except TrueupError:
            return None
        now_ms, rows = time.time_ns() // 1_000_000, findings
        now = {row["ledger"]: row for row in rows if row["verdict"] == "drifted"}
        for ledger in set(self.drifted) - set(now):
            self.safe_ms[ledger] = now_ms - max(self.drifted.pop(ledger), self._begun_ms)
        for ledger, row in now.items():
            self.drifted.setdefault(ledger, row["since_ms"])
        self.blocked = {row["ledger"]: row["reason"] for row in rows if row["verdict"] == "blocked"}
        return status

    def story(self, ledger: int) -> str:
        """Findings and actions of a ledger, as text."""
        try:
            details = self._api.get(f"ledgers/{ledger}")
        except TrueupError as error:
            return str(error)
        mark, now_ms = details["mark"], time.time_ns() // 1_000_000
        holder = mark and mark["locked_by"]
        marked = f"its mark is held by {holder}" if holder else "its mark exists" if mark else "it has no mark"
        past = (f"{event['event']} {(now_ms - event['at_ms']) // 1000} s ago" for event in details["history"])
        return f"{details['verdict']}, {marked}; {', '.join(past) or 'no actions'}"

    def actions(self) -> list[dict[str, Any]]:
        """Executed actions, newest first."""
        rows: list[dict[str, Any]] = self._api.get("actions", limit=10_000)
        return rows
