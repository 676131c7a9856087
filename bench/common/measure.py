"""Helpers for measurements: CPU seconds of process trees, load of the machine, progress on stderr."""

import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

import psutil

STARTED = time.monotonic()


class Failed(Exception):  # noqa: N818 - the name states the outcome
    """A figure could not be measured. The message states the reason."""


def cpu_s(*roots: int) -> float:
    """User and system CPU seconds of these processes, their descendants, and the children that these waited for."""
    total = 0.0
    for process in _trees(roots):
        with suppress(psutil.NoSuchProcess):
            spent = process.cpu_times()
            total += spent.user + spent.system + spent.children_user + spent.children_system
    return total


def _trees(roots: tuple[int, ...]) -> Iterator[psutil.Process]:
    for root in roots:
        with suppress(psutil.NoSuchProcess):
            yield psutil.Process(root)
            yield from psutil.Process(root).children(recursive=True)


def load() -> float:
    """Load average of the last minute."""
    return os.getloadavg()[0]


def tell(message: str) -> None:
    """Print progress to stderr."""
    spent = int(time.monotonic() - STARTED)
    print(f"{spent // 60:3d}:{spent % 60:02d}  load {load():4.1f}  {message}", file=sys.stderr, flush=True)


def machine() -> str:
    """A description of the machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    return f"{os.cpu_count()} cores, {memory} GB, Linux {platform.release()}"
