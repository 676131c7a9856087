"""The lock of a data directory: two applications on one would undo each other's checkpoints."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trueup.state.common.errors import BadSettings


@contextmanager
def alone(data: Path) -> Iterator[None]:
    """Hold the directory for this process. Raises `BadSettings` while another has it."""
    with (data / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            found = f"data_dir: expected {data} for this process alone; found another Trueup that uses it"
            raise BadSettings([f"{found}; stop that one, or set another data_dir"]) from error
        lock.write(str(os.getpid()))
        lock.flush()
        yield
