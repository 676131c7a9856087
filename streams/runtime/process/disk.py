"""Free space of the data directory: journal, checkpoints and logs need it."""

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trueup.state.common.errors import Retry, Stop
from trueup.streams.runtime.format import size

LEAST_BYTES, LOW_BYTES = 32 << 20, 256 << 20
"""Below the first nothing is started; below the second an operator is told."""
_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO}


class Disk:
    """The file system of a directory."""

    def __init__(self, data: Path) -> None:
        self._data = data

    def problem(self) -> str:
        """What an operator should know; empty if there is room."""
        free = self._free()
        if free >= LOW_BYTES:
            return ""
        what = "nothing can be written to journal, checkpoints and logs" if free < LEAST_BYTES else "it fills up"
        return f"data_dir {self._data}: {size(free)} free, {what}: free at least {size(LOW_BYTES)}"

    def check(self) -> None:
        """Raises `Retry` if a server could not be started here."""
        if (free := self._free()) < LEAST_BYTES:
            raise Retry(
                f"{size(LEAST_BYTES)} free in data_dir {self._data}",
                f"{size(free)} free",
                "free some space; Trueup goes on by itself",
            )

    def _free(self) -> int:
        try:
            return shutil.disk_usage(self._data).free
        except OSError:
            return 0


@contextmanager
def writable(data: Path) -> Iterator[None]:
    """Raises `Stop` in place of the error of a full or failed disk."""
    try:
        yield
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        where = error.filename or data
        raise Stop(
            f"data_dir {data} to be writable", f"{where}: {error.strerror}", "free space, then start again"
        ) from error
