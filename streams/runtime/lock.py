"""The lock of a data directory: two applications in one directory would overwrite each other's checkpoints."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from trueup.state.common.errors import BadSettings


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


@contextmanager
def alone(data: Path) -> Iterator[Lock]:
    """Lock the directory for this process. Raises `BadSettings` if another process holds the lock."""
    with (data / "lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            found = f"data_dir: expected {data} to be used by one process; found another Trueup that uses it"
            raise BadSettings([f"{found}; stop the other process, or set a different data_dir"]) from error
        file.seek(0)
        yield Lock(file)
