"""The data directory belongs to one user and one process."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trueup.state.common.errors import BadSettings
from trueup.streams.runtime.process.lock import alone, make_private


@pytest.fixture(autouse=True)
def mask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_only_its_user_opens_a_new_data_directory(tmp_path: Path) -> None:
    make_private(tmp_path / "above" / "data")
    assert mode(tmp_path / "above" / "data") == 0o700


def test_a_directory_that_others_may_read_is_closed_to_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "data").mkdir(mode=0o755)
    make_private(tmp_path / "data")
    assert mode(tmp_path / "data") == 0o700
    assert "permissions of other users on data_dir removed" in caplog.text


def test_files_of_this_process_and_its_children_are_of_its_user_alone(tmp_path: Path) -> None:
    make_private(tmp_path)
    (tmp_path / "own").touch()
    subprocess.run(
        [sys.executable, "-c", "open('child', 'w'); import os; os.mkdir('folder')"], cwd=tmp_path, check=True
    )
    assert [mode(tmp_path / name) for name in ("own", "child", "folder")] == [0o600, 0o600, 0o700]


def test_who_may_read_the_directory_cannot_open_the_lock(tmp_path: Path) -> None:
    """Every user who can open a file can lock it (flock(2))."""
    (tmp_path / "lock").touch(mode=0o644)
    with alone(tmp_path):
        assert mode(tmp_path / "lock") == 0o600


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    with alone(tmp_path), pytest.raises(BadSettings, match="another Trueup"), alone(tmp_path):
        pass
