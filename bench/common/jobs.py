"""Drivers of a benchmark in separate processes. A driver reads a job file and prints one line for each result."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.common.measure import Failed, tell
from trueup.connectors.embedded.processes import Process, wait_until
from trueup.state.common.errors import Retry


def run(
    module: str, job: Mapping[str, object], root: Path, limit_s: float, environment: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """Run `python -m module` on a job; see `watched`."""
    return watched(driver(module, job, root, environment), limit_s)


def watched(process: Process, limit_s: float) -> list[dict[str, Any]]:
    """Run a driver, print its results to stderr as they arrive, and return them. Raises `Failed`."""
    results: list[dict[str, Any]] = []

    def ended() -> bool:
        alive = process.alive
        lines = [
            json.loads(line) for line in process.output().rpartition("\n")[0].splitlines() if line.startswith('{"what"')
        ]
        for line in lines[len(results) :]:
            tell("  ".join(f"{k} {v:.2f}" if isinstance(v, float) else f"{k} {v}" for k, v in line.items()))
        results.extend(lines[len(results) :])
        return not alive

    process.start()
    try:
        wait_until(ended, limit_s, f"{process.name} to end")
    except Retry as error:
        raise Failed(str(error)) from error
    finally:
        process.kill()
    if process.exit_code:
        raise Failed(f"{process.name}: exit code {process.exit_code}; it wrote\n{process.tail()}")
    return results


def driver(module: str, job: Mapping[str, object], root: Path, environment: Mapping[str, str] | None = None) -> Process:
    """The process, not started, with these variables beside those of this process."""
    root.mkdir(parents=True, exist_ok=True)
    path = root / "job.json"
    path.write_text(json.dumps(job))
    return Process(module, [sys.executable, "-m", module, path], root / "driver.log", environment)
