"""A data directory without free space."""

import errno
import os
from pathlib import Path

import pytest

from trueup.state.common.errors import Retry, Stop
from trueup.streams.runtime.process import disk as module
from trueup.streams.runtime.process.disk import LEAST_BYTES, LOW_BYTES, Disk, writable


@pytest.fixture(params=[0])
def disk(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """A file system with this number of free bytes."""
    usage = type("Usage", (), {"free": request.param})
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: usage)
    return Disk(tmp_path)


@pytest.mark.parametrize(
    ("disk", "told", "starts"),
    [
        (LEAST_BYTES - 1, "nothing can be written to journal, checkpoints and logs", False),
        (LEAST_BYTES, "it fills up", True),
        (LOW_BYTES - 1, "it fills up", True),
        (LOW_BYTES, "", True),
    ],
    indirect=["disk"],
)
def test_little_room_is_a_problem_and_less_prevents_a_start(disk: Disk, told: str, starts: bool) -> None:
    assert (told in disk.problem(), bool(told)) == (True, bool(disk.problem()))
    try:
        disk.check()
    except Retry:
        assert not starts
    else:
        assert starts


def test_a_directory_that_cannot_be_asked_has_no_room(tmp_path: Path) -> None:
    assert "0 B free" in Disk(tmp_path / "gone").problem()


def test_the_error_of_a_full_disk_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Stop, match=r"lock: No space left on device; free space"), writable(tmp_path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path / "lock"))


def test_another_error_of_the_system_is_not_taken_for_it(tmp_path: Path) -> None:
    with pytest.raises(ConnectionRefusedError), writable(tmp_path):
        raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")
