"""The marks after some were read, as a dictionary by ledger has them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trueup.state.bookkeeper.marks import HIDDEN, MARK, NO_MARKS, with_marks

reads = st.lists(
    st.dictionaries(
        st.integers(0, 12), st.tuples(st.integers(-1, 3), st.sampled_from([-1, 0, 7, HIDDEN]), st.integers(0, 1))
    ),
    max_size=6,
)


@given(reads)
def test_a_mark_is_what_was_read_of_its_ledger_last(several: list[dict[int, tuple[int, int, int]]]) -> None:
    marks, expected = NO_MARKS, {}
    for read in several:
        marks = with_marks(marks, np.array([(ledger, *row) for ledger, row in read.items()], MARK))
        expected |= read
    there = {ledger: row for ledger, row in expected.items() if row[1] >= 0 or row[2]}
    assert marks.tolist() == [(ledger, *row) for ledger, row in sorted(there.items())]
