"""The lock of a data directory: two applications in one directory would overwrite each other's checkpoints."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trueup.state.common.errors import BadSettings


@contextmanager
def alone(data: Path) -> Iterator[None]:
    """Lock the directory for this process. Raises `BadSettings` if another process holds the lock."""
    with (data / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            found = f"data_dir: expected {data} to be used by one process; found another Trueup that uses it"
            raise BadSettings([f"{found}; stop the other process, or set a different data_dir"]) from error
        lock.write(str(os.getpid()))
        lock.flush()
        yield
