import pytest

from state.errors import BadBytes
from state.former import KEEP_MS, NO_FORMER, Former
from state.ledgers import concat, row
from state.observations import LedgerState
from state.topology import Bookie, Status, Topology


def repaired(ledger: int = 1, before=("a", "b"), after=("a", "c"), zxid: int = 10, now_ms: int = 5) -> Former:
    return NO_FORMER.merge(row(ledger, before, quorum=2), row(ledger, after, quorum=2, mzxid=zxid), now_ms)


def seen(bookie: str, zxid: int) -> Topology:
    return Topology(1, 0, (Bookie(bookie, "/r", Status.WRITABLE, 0, zxid),))


def test_who_leaves_the_metadata_is_remembered():
    assert repaired().of(1) == {"b"}


def test_nobody_is_remembered_for_another_ledger():
    assert repaired().of(2) == frozenset()


def test_a_bookie_of_another_fragment_still_holds_the_ledger():
    before = row(1, ["a", "b"], ["a", "c"], quorum=2)
    assert NO_FORMER.merge(before, row(1, ["a", "c"], ["a", "b"], quorum=2, mzxid=2), 0) is NO_FORMER


def test_a_bookie_that_is_a_member_again_is_forgotten():
    back = repaired().merge(row(1, ["a", "c"], quorum=2), row(1, ["a", "b"], quorum=2, mzxid=20), 9)
    assert back.of(1) == {"c"}


def test_a_deleted_ledger_is_forgotten():
    gone = repaired().merge(row(1, ["a", "c"], quorum=2), row(1, quorum=0, mzxid=20, state=LedgerState.GONE), 9)
    assert len(gone) == 0


def test_the_first_time_counts():
    first = repaired(now_ms=5)
    again = first.merge(row(1, ["a", "b"], quorum=2), row(1, ["a", "c"], quorum=2, mzxid=20), 50)
    assert again is first


def test_rows_may_come_in_any_order():
    before = concat([row(2, ["a", "b"], quorum=2), row(1, ["a", "b"], quorum=2)])
    after = concat([row(1, ["a", "c"], quorum=2, mzxid=7), row(2, ["a", "d"], quorum=2, mzxid=8)])
    found = NO_FORMER.merge(before, after, 3)
    assert list(zip(found.ledger.tolist(), found.dropped_zxid.tolist(), strict=True)) == [(1, 7), (2, 8)]


def test_nothing_new_changes_nothing():
    former = repaired()
    assert former.merge(concat([]), concat([]), 9) is former


def test_a_ledger_seen_for_the_first_time_dropped_nobody():
    assert NO_FORMER.merge(concat([]), row(1, ["a", "b"], quorum=2), 9) is NO_FORMER


def test_time_lets_go():
    former = repaired(now_ms=5)
    assert former.forget(seen("b", 1), 5 + KEEP_MS - 1) is former
    assert len(former.forget(seen("b", 1), 5 + KEEP_MS)) == 0


def test_a_bookie_that_registered_since_has_forgotten_too():
    former = repaired(zxid=10)
    assert former.forget(seen("b", 10), 6) is former
    assert len(former.forget(seen("b", 11), 6)) == 0


def test_an_empty_memory_forgets_nothing():
    assert NO_FORMER.forget(seen("b", 1), 1) is NO_FORMER


def test_bytes_hold_everything():
    former = repaired(2).merge(row(1, ["é", "b"], quorum=2), row(1, ["a", "b"], quorum=2, mzxid=4), 6)
    back = Former.from_bytes(former.to_bytes())
    assert (back.of(1), back.of(2), back.to_bytes()) == ({"é"}, {"b"}, former.to_bytes())


def test_an_empty_memory_has_bytes():
    assert len(Former.from_bytes(NO_FORMER.to_bytes())) == 0


@pytest.mark.parametrize(
    "blob", [b"", b"nonsense that is long enough", repaired().to_bytes()[:-1], repaired().to_bytes() + b"x"]
)
def test_other_bytes_are_refused(blob):
    with pytest.raises(BadBytes):
        Former.from_bytes(blob)
