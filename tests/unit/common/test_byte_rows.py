"""Columns of bytes."""

import numpy as np
import pytest

from trueup.connectors.byte_rows import column_of, joined, optional_slices, ranges, rows_of, split, whole

DATA = bytes(range(200, 216))


def test_ranges_without_a_start_have_no_bytes() -> None:
    starts, ends = np.array([-1, 1, -1, 3, -1]), np.array([-1, 3, -1, 4, -1])
    column = ranges(DATA, starts, ends)
    assert column.to_pylist() == [part or b"" for part in optional_slices(memoryview(DATA), starts, ends)]


def test_rows_are_joined_part_by_part() -> None:
    numbers = rows_of(np.array([[1, 2], [3, 4]], ">i2"))
    columns = numbers, split(b"abc", np.array([0, 1, 3])), column_of([None, b"-"])
    assert joined(columns) == b"\0\1\0\2a\0\3\0\4bc-"


def test_the_bytes_of_some_rows_are_those_between_them() -> None:
    column = ranges(DATA, np.array([0, 5, 9]), np.array([2, 7, 12]))
    assert whole(column[1:]) == DATA[5:7] + DATA[9:12]


@pytest.mark.parametrize(
    ("starts", "ends"), [([0, 1], [2, 3]), ([4, 0], [5, 1]), ([3], [2]), ([10], [17]), ([0, 20], [1, 21])]
)
def test_ranges_that_are_not_in_the_data_in_order_are_refused(starts: list[int], ends: list[int]) -> None:
    with pytest.raises(ValueError, match="within the data"):
        ranges(DATA, np.array(starts), np.array(ends))


def test_no_rows_have_no_bytes() -> None:
    assert whole(ranges(DATA, np.array([], np.int64), np.array([], np.int64))) == b""
