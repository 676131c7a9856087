"""Python's search for garbage, and freed memory, while records are copied."""

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_YOUNG = 100_000
"""New objects between two searches."""
_TRIM, _MAP = -1, -3
"""M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of mallopt(3)."""
_KEPT_BYTES, _LARGE_BYTES = 64 << 20, 32 << 20


@contextmanager
def few_collections() -> Iterator[None]:
    """Reduces garbage collections: a read creates thousands of short-lived objects, and a search for cycles costs
    a fifth of the CPU and finds none."""
    before = gc.get_threshold()
    gc.set_threshold(_YOUNG, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def keep_memory() -> None:
    """Keeps freed memory of up to 64 MB in this process, for the arrays of the next read: new memory costs a page fault
    for every 4 KB, together a fifth of the CPU of a copy. Without the C library of GNU nothing changes."""
    if "pyarrow" in sys.modules:
        import pyarrow as pa

        pa.set_memory_pool(pa.system_memory_pool())
    if (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(_TRIM, _KEPT_BYTES)
        mallopt(_MAP, _LARGE_BYTES)
