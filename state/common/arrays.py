"""Functions on numpy arrays that several subjects use."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def spans(starts: Array, ends: Array) -> Array:
    """The positions start .. end - 1 of each pair, concatenated: int64."""
    sizes = ends - starts
    jump = np.repeat(starts - np.concatenate([[0], np.cumsum(sizes)[:-1]]), sizes)
    return jump + np.arange(int(sizes.sum()))
