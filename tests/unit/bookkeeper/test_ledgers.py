import numpy as np
import pytest

from trueup.state.bookkeeper.ledgers import EMPTY, Ledgers, concat, row
from trueup.state.common.errors import BadBytes


def test_newest_row_of_a_ledger_wins_whatever_the_order():
    old, new = row(5, ["a", "b"], quorum=2, mzxid=3), row(5, ["a", "c"], quorum=2, mzxid=9)
    assert concat([new, old]).latest().ensembles(0) == [["a", "c"]]


def test_latest_is_in_the_order_of_ids():
    rows = concat([row(7, ["a"], quorum=1), row(2, ["b"], quorum=1), row(4, ["c"], quorum=1)])
    assert rows.latest().ledger.tolist() == [2, 4, 7]


def test_ensembles_keep_the_order_of_the_ring_over_fragments():
    ledger = row(1, ["x", "y", "z"], ["x", "w", "z"], quorum=2)
    assert ledger.ensembles(0) == [["x", "y", "z"], ["x", "w", "z"]]


def test_rows_of_different_shapes_stand_together():
    rows = concat([row(1, ["a", "b", "c"], quorum=2), row(2, ["d"], quorum=1), row(3, quorum=2)])
    assert [rows.ensembles(i) for i in range(3)] == [[["a", "b", "c"]], [["d"]], []]


def test_rows_that_name_a_bookie_are_found_among_rows_without_members():
    rows = concat(
        [
            row(1, quorum=2),
            row(2, ["a", "b"], ["a", "c"], quorum=2),
            row(3, quorum=2),
            row(4, ["b", "a"], quorum=2),
            row(5, ["c"], quorum=1),
            row(6, quorum=2),
        ]
    )
    named = {"b": [2, 4], "c": [2, 5], "z": []}
    assert {bookie: rows.ledger[rows.naming({bookie})].tolist() for bookie in named} == named


def test_find_returns_the_row_of_an_id_or_minus_one():
    rows = concat([row(2, ["a"], quorum=1), row(4, ["a"], quorum=1)])
    assert rows.find(np.array([4, 3, 2, 9])).tolist() == [1, -1, 0, -1]


def test_empty_rows_survive_a_round_trip():
    assert len(Ledgers.from_bytes(EMPTY.to_bytes())) == 0


def test_bytes_of_another_form_are_refused_with_their_place():
    with pytest.raises(BadBytes, match="a block of ledgers of form 3 at byte 0 of the state"):
        Ledgers.from_bytes(b"TL\x09" + EMPTY.to_bytes()[3:])
