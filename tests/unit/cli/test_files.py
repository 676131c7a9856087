"""`trueup files`, and the files for operators in the wheel."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from trueup.streams.cli.commands.installation import FILES, paths
from trueup.streams.cli.main import invoke

ROOT = Path(__file__).parents[3]
COPIED = (
    "conf",
    "connectors",
    "docs",
    "sandbox",
    "state",
    "streams",
    "trueup",
    "pyproject.toml",
    "README.md",
    "LICENSE",
)


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names of files in a wheel, built without a network from links, so that nothing is written beside the sources."""
    source, wheels = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheels")
    for name in COPIED:
        (source / name).symlink_to(ROOT / name) if name != "trueup" else _links(source / name)
    command = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index", "--quiet"]
    subprocess.run([*command, "--wheel-dir", wheels, source], check=True, capture_output=True)
    (wheel,) = wheels.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


def _links(package: Path) -> None:
    package.mkdir()
    for path in (ROOT / "trueup").iterdir():
        if path.name != "__pycache__":
            (package / path.name).symlink_to(path.resolve())


def test_the_wheel_contains_the_files_for_operators(names: set[str]) -> None:
    wanted = {
        f"trueup/{path.relative_to(ROOT)}"
        for pattern in ("conf/**/*.json", "conf/**/*.yaml", "conf/**/*.yml", "conf/**/*.service", "docs/*.md")
        for path in ROOT.glob(pattern)
    }
    assert (len(wanted) > 30, sorted(wanted - names)) == (True, [])


def test_the_wheel_contains_the_code_and_no_tests(names: set[str]) -> None:
    assert {"trueup/streams/cli/main.py", "trueup/state/placement/rules.py"} <= names
    assert sorted({name.partition("/")[0] for name in names if ".dist-info/" not in name}) == ["trueup"]


def test_paths_exist() -> None:
    assert [name for name, path in paths().items() if not path.exists()] == []


def test_a_name_is_answered_with_its_path_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert (invoke(["files", "alerts"]), capsys.readouterr().out) == (0, f"{paths()['alerts']}\n")


def test_all_are_listed_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["files", "-o", "json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == set(FILES)
