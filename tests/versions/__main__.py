"""`python -m tests.versions kafka-2.8.2 rocketmq-4.9.7`: runs the suite of each of these versions, by default of all,
and writes docs/versions.md."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.versions import page, results
from tests.versions.given import VARIABLE
from tests.versions.matrix import names, split, suites

HERE = Path(__file__).parent
OPTIONS = ("--override-ini=junit_family=xunit1", "-p", "no:cacheprovider")


def tried(name: str, only: str = "") -> dict[str, results.Result]:
    """The results of one version; none if the suite did not run. ``only``: the tests to run (an expression of pytest's
    option -k), by default all."""
    system, version = split(name)
    with tempfile.TemporaryDirectory() as work:
        report = Path(work) / "report.xml"
        own = (
            [*suites(name), "-p", f"tests.versions.{system}"]
            if suites(name)
            else [*map(str, sorted(HERE.glob(f"{system}*.py")))]
        )
        command = [sys.executable, "-m", "pytest", "-q", *own, f"--junitxml={report}"]
        subprocess.run(
            [*command, "-k", only, f"--basetemp={work}/servers", *OPTIONS],
            env={**os.environ, VARIABLE: version},
            cwd=HERE.parents[1],
            check=False,
        )
        return results.parsed(report.read_text()) if report.exists() else {}


def main(asked: Sequence[str]) -> int:
    """The exit code: 1 if something does not work."""
    if unknown := [name for name in asked if name not in names()]:
        print(f"expected versions of {', '.join(names())}; found {', '.join(unknown)}")
        return 2
    failed = []
    for name in asked or names():
        print(f"== {name}", flush=True)
        found = tried(name)
        failed += [name] if not found or any(result["failed"] for result in found.values()) else []
        results.keep({**results.kept(), name: found})
        page.PLACE.write_text(page.rendered(results.kept()))
    print(f"wrote {page.PLACE.name}" + (f"; not all of it works: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
