"""File descriptors for tests: as in a process that has many of them open."""

import gc
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

SELECTABLE = 1024
"""`select.select` refuses descriptors from this one on (FD_SETSIZE)."""


@contextmanager
def taken(count: int = SELECTABLE + 76) -> Iterator[None]:
    """The first ``count`` descriptors are in use, so that new ones are behind them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2 * count)), hard))
    gc.collect()  # sockets of earlier tests must not be closed, and their descriptors free again, in the meantime
    held = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while held[-1] < count:
            held.append(os.dup(held[0]))
        yield
    finally:
        for each in held:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
