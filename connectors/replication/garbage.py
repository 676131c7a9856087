"""Python's search for garbage, while records are copied."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_YOUNG = 100_000
"""New objects between two searches."""


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
