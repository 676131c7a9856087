"""The application, `trueup run`, in a separate process with a settings file."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Protocol, Self

import urllib3
import yaml

from trueup.connectors.embedded.processes import Process, free_port, wait_until
from trueup.sandbox.cluster import SandboxCluster

READY_S = 240.0
NO_LIMIT, MARKS_PER_S = 1_000_000_000, 1_000_000


class ApplicationSite(Protocol):
    """The cluster that Trueup watches, and the directory of both."""

    root: Path
    cluster: SandboxCluster


class Application:
    """Trueup on a site, in mode enforce, without grace, hold or limits. Its data directory remains after the exit.
    ``sections``: override these settings; ``ready_s``: maximum time of the start."""

    def __init__(
        self,
        site: ApplicationSite,
        sections: Mapping[str, Mapping[str, object]] = MappingProxyType({}),
        ready_s: float = READY_S,
    ) -> None:
        self._ready_s = ready_s
        self._root = site.root / "trueup"
        self._port = free_port()
        settings: dict[str, Any] = {
            "cluster": {"zookeeper": site.cluster.zookeeper.address, "name": "bench"},
            "racks": {"source": "script", "script": str(site.cluster.rack_script)},
            "placement": {
                "mode": "enforce",
                "grace_s": 0,
                "hold_share": 1.0,
                "max_marks": NO_LIMIT,
                "marks_per_s": MARKS_PER_S,
            },
            "http": {"port": self._port},
            "data_dir": str(self._root / "data"),
        }
        for name, keys in sections.items():
            settings[name] = {**settings.get(name, {}), **keys}
        self._root.mkdir(parents=True, exist_ok=True)
        config = self._root / "trueup.yaml"
        config.write_text(yaml.safe_dump(settings))
        command = [sys.executable, "-m", "trueup.streams.cli.main", "run", "-c", config]
        self._process = Process("trueup", command, self._root / "trueup.log")

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid or 0

    def __enter__(self) -> Self:
        self._process.start()
        self._process.wait_ready(lambda: self._ask("/readyz") is not None, self._ready_s)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.stop(60.0 if kind is None else 0.0)

    def wait_quiet(self, marks: int, limit_s: float) -> None:
        """Wait until the view contains this number of marks and the Auditor is disabled by Trueup's vote."""
        wait_until(lambda: self._sees(marks), limit_s, f"{marks} marks in the view")

    def counts(self) -> Mapping[str, int]:
        """Ledgers by verdict."""
        status = self._ask("/api/status")
        return status["counts"] if status else {}

    def state_bytes(self) -> int:
        """Bytes of the checkpoints."""
        folder = self._root / "data" / "checkpoints"
        return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())

    def _sees(self, marks: int) -> bool:
        status = self._ask("/api/status")
        sources = {row["name"]: row["detail"] for row in status["sources"]} if status else {}
        return status is not None and status["marks"]["outstanding"] == marks and sources["vote"] == "ours"

    def _ask(self, path: str) -> Any:
        """The body of the response, None if the status is not 200."""
        try:
            answer = urllib3.request("GET", f"http://127.0.0.1:{self._port}{path}", timeout=10.0, retries=False)
        except urllib3.exceptions.HTTPError:
            return None
        return json.loads(answer.data) if answer.status == 200 else None
