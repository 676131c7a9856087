"""The data directory of one application: no other user reads it, and no second application uses it, which would
overwrite the checkpoints of the first."""

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from trueup.connectors.embedded.processes import ours_alone
from trueup.state.common.errors import BadSettings

log = logging.getLogger(__name__)


class Lock:
    """A locked data directory. ``before``: the run that locked it last, empty if unknown."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.before = file.read(100).strip()

    def note(self, run: str) -> None:
        """Write the name of the present run."""
        self._file.seek(0)
        self._file.truncate()
        self._file.write(run)
        self._file.flush()


def make_private(data: Path) -> None:
    """Create the directory. From now on, only this user can open what this process and its children create.

    A directory that this user owns is also closed to others. One of another user, like a volume of Kubernetes, keeps
    its mode: only the files in it are private. Raises `OSError`.
    """
    os.umask(0o077)
    data.mkdir(parents=True, exist_ok=True)
    status = data.stat()
    if status.st_uid == os.geteuid() and status.st_mode & 0o077:
        log.warning(
            "permissions of other users on data_dir removed",
            extra={"data_dir": str(data), "mode": f"{status.st_mode & 0o7777:o}"},
        )
        data.chmod(0o700)


@contextmanager
def alone(data: Path) -> Iterator[Lock]:
    """Lock the directory for this process. Raises `BadSettings` if another process holds the lock."""
    with open(data / "lock", "a+", opener=ours_alone) as file:  # who can open a file can lock it
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            problem = f"data_dir: expected {data} to be used by one process; found another Trueup that uses it"
            raise BadSettings([f"{problem}; stop the other process, or set a different data_dir"]) from error
        file.seek(0)
        yield Lock(file)
