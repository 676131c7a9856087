"""`make tools` does nothing if the tools are there, and says which one it cannot install."""

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools.sh"
NEEDED = ("bash", "dirname", "id")


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with what the script needs, and neither a tool nor apt-get."""
    for name in NEEDED:
        (tmp_path / name).symlink_to(shutil.which(name) or name)
    return tmp_path


def done(programs: Path) -> tuple[int, str]:
    found = subprocess.run(
        [programs / "bash", SCRIPT], env={"PATH": str(programs)}, capture_output=True, text=True, check=False
    )
    return found.returncode, found.stdout + found.stderr


def test_it_does_nothing_if_all_are_there(programs: Path) -> None:
    for name in ("chromium", "promtool"):
        (programs / name).touch(mode=0o755)
    assert done(programs) == (0, "")


def test_it_names_a_tool_that_it_cannot_install(programs: Path) -> None:
    assert done(programs) == (
        1,
        "make tools: chromium is missing, and there is no apt-get to install it: put it in the PATH\n",
    )
