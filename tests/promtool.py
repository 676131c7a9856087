"""promtool of Prometheus, which `make tools` installs, as tests call it."""

import shutil
import subprocess
from pathlib import Path

_FOLDER = Path(__file__).parents[1] / ".venv" / "tools"


def promtool(*arguments: str | Path, given: str = "") -> tuple[int, str]:
    """Exit code and output of ``promtool ARGUMENTS``, with ``given`` as its input. Raises `AssertionError` if it is not
    installed."""
    found = shutil.which("promtool", path=_FOLDER) or shutil.which("promtool")
    assert found, "promtool is missing; run: make tools"
    done = subprocess.run([found, *arguments], input=given, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr
