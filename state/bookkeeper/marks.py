"""Under-replication marks and the workers' locks on them, as columns."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

MarkRows = NDArray[Any]
MARK = np.dtype([("ledger", "<i8"), ("ctime_ms", "<i8"), ("version", "<i4"), ("locked", "u1")])
"""The mark of one ledger and the lock on it. ``ctime_ms``: the time in the mark, ms since the epoch, -1: it has none.
``version``: the version of its znode, -1: no mark, `HIDDEN`: it may not be read. ``locked``: whether a worker holds the
lock."""
NO_MARKS: MarkRows = np.zeros(0, MARK)
HIDDEN = 2**31 - 1
"""The version of a mark that exists and may not be read: it counts as a mark, and no write is made for this version."""


def with_marks(marks: MarkRows, read: MarkRows) -> MarkRows:
    """The marks and locks after some were read, ordered by ledger. ``marks``: ordered by ledger; ``read``: one row for
    each ledger that was read, also for those with neither."""
    at = np.searchsorted(marks["ledger"], read["ledger"])
    again = at < len(marks)
    again[again] = marks["ledger"][at[again]] == read["ledger"][again]
    others = np.delete(marks, at[again])
    there = read[(read["version"] >= 0) | (read["locked"] > 0)]
    there = there[np.argsort(there["ledger"], kind="stable")]
    # One sort of all marks takes four times as long, and changes arrive some hundred times a second.
    return np.insert(others, np.searchsorted(others["ledger"], there["ledger"]), there)
