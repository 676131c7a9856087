"""promtool of Prometheus, which `make tools` installs, as tests call it."""

import shutil
import subprocess
from pathlib import Path

_FOLDER = Path(__file__).parents[1] / ".venv" / "tools"


def promtool(*arguments: str | Path) -> tuple[int, str]:
    """Exit code and output of ``promtool ARGUMENTS``. Raises `AssertionError` if there is no promtool."""
    found = shutil.which("promtool", path=_FOLDER) or shutil.which("promtool")
    assert found, "promtool is missing; run: make tools"
    done = subprocess.run([found, *arguments], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr
