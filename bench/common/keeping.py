"""Common steps of a benchmark on real servers: a temporary directory, a table, and a results file."""

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.common import rows
from bench.common.measure import Failed, load, machine, tell
from bench.common.rows import Row
from trueup.state.common.errors import TrueupError


def keep(measure: Callable[[Path], list[Row]], results: Path | None, output: str, part: bool = False) -> int:
    """Measure in a new directory, write ``results`` if there is a path, and print. ``part``: only some figures are
    measured; those that ``results`` has of the others stay. Returns the exit code."""
    root, before = Path(tempfile.mkdtemp(prefix="trueup-bench-")), load()
    try:
        found = measure(root)
    except (Failed, TrueupError) as error:
        tell(f"could not measure; the servers' logs are in {root}")
        print(f"error: {error}", file=sys.stderr)
        return 1
    shutil.rmtree(root, ignore_errors=True)
    if results is not None:
        found = rows.beside_earlier(results, found) if part else found
        rows.write(results, found)
    if output == "json":
        print(rows.text(found), end="")
    else:
        rows.show(found, f"{machine()}; load average {before:.1f} at the start, {load():.1f} at the end; medians")
    return 0
