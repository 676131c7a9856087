import numpy as np
import pytest

from trueup.state.bookkeeper.ledgers import Ledgers, concat, row
from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.bookkeeper.topology import Bookie, Status, Topology
from trueup.state.common.errors import BadBytes
from trueup.state.placement.policy.fencing import AWAY_MS, NEVER, NO_FORMER, REFUSES_MS, SLACK_MS, FormerMembers, joined

COLLECT_MS = 1_000
HERE, AWAY = Status.WRITABLE, Status.LOST


def seen(status: Status = HERE, begun: int = 1, at_ms: int = 0, restarted: int = 0, bookie: str = "b") -> Topology:
    one = Bookie(bookie, "/r", status, 0, begun, begun_zxid=begun)
    return Topology(1, at_ms, (one,), collect_ms=COLLECT_MS, restarted=restarted)


def moved(ledger: int, before: tuple[str, ...], after: tuple[str, ...], zxid: int, now_ms: int = 5):
    newest = row(ledger, after, quorum=2, mzxid=zxid, seen_ms=now_ms)
    return row(ledger, before, quorum=2), newest


def repaired(ledger: int = 1, zxid: int = 10, now_ms: int = 5, known: Topology | None = None) -> FormerMembers:
    return NO_FORMER.merge(*moved(ledger, ("a", "b"), ("a", "c"), zxid, now_ms), known or seen())


def refusing(former: FormerMembers, now_ms: int) -> frozenset[str]:
    return former.at(now_ms).of(1)


def test_a_former_member_may_refuse_from_then_on():
    assert refusing(repaired(now_ms=5), 5) == {"b"}


def test_no_bookie_is_remembered_for_another_ledger():
    assert repaired().of(2) == frozenset()


def test_a_bookie_of_another_fragment_still_holds_the_ledger():
    before = row(1, ["a", "b"], ["a", "c"], quorum=2)
    assert NO_FORMER.merge(before, row(1, ["a", "c"], ["a", "b"], quorum=2, mzxid=2), seen()) is NO_FORMER


def test_a_bookie_that_is_a_member_again_is_forgotten():
    assert repaired().merge(*moved(1, ("a", "c"), ("a", "b"), 20), seen()).of(1) == {"c"}


def test_a_deleted_ledger_is_forgotten():
    gone = row(1, quorum=0, mzxid=20, state=LedgerState.GONE)
    assert len(repaired().merge(row(1, ["a", "c"], quorum=2), gone, seen())) == 0


def test_the_first_time_counts():
    first = repaired(now_ms=5)
    assert first.merge(*moved(1, ("a", "b"), ("a", "c"), 20, 50), seen()) is first


def test_all_versions_of_a_ledger_count():
    """A bookie that a version in the middle dropped is in neither the first nor the last ensemble."""
    steps = concat([row(1, ["a", "x"], quorum=2, mzxid=1), row(1, ["a", "b"], quorum=2, mzxid=2)])
    assert NO_FORMER.merge(steps, row(1, ["a", "c"], quorum=2, mzxid=3), seen()).of(1) == {"b", "x"}


def test_rows_may_come_in_any_order():
    before = concat([row(2, ["a", "b"], quorum=2), row(1, ["a", "b"], quorum=2)])
    after = concat([row(1, ["a", "c"], quorum=2, mzxid=7), row(2, ["a", "d"], quorum=2, mzxid=8)])
    found = NO_FORMER.merge(before, after, seen())
    assert list(zip(found.ledger.tolist(), found.dropped_zxid.tolist(), strict=True)) == [(1, 7), (2, 8)]


def test_nothing_new_changes_nothing():
    former = repaired()
    assert former.merge(concat([]), concat([]), seen()) is former


def test_a_ledger_seen_for_the_first_time_has_no_former_member():
    assert NO_FORMER.merge(concat([]), row(1, ["a", "b"], quorum=2), seen()) is NO_FORMER


def test_collection_and_seven_days_let_go():
    end = 5 + COLLECT_MS + SLACK_MS + REFUSES_MS
    assert [refusing(repaired(now_ms=5), at) for at in (end - 1, end)] == [{"b"}, frozenset()]


def test_what_is_over_is_forgotten():
    end = 5 + COLLECT_MS + SLACK_MS + REFUSES_MS
    assert len(repaired(now_ms=5).settle(seen(at_ms=end), seen())) == 0


def test_a_new_registration_is_no_proof_of_a_restart():
    """After a mere session expiry the process continues and keeps its memory."""
    again = seen(begun=11, at_ms=6)
    assert refusing(repaired(zxid=10).settle(again, seen()), 6) == {"b"}


def test_an_operator_confirms_a_restart():
    assert len(repaired(zxid=10).settle(seen(begun=11, at_ms=6, restarted=1), seen())) == 0


def test_a_confirmed_restart_applies_to_bookies_that_registered_since():
    assert refusing(repaired(zxid=10).settle(seen(begun=9, at_ms=6, restarted=1), seen()), 6) == {"b"}


def test_a_confirmed_restart_applies_to_earlier_drops():
    reported = seen(begun=11, restarted=1)
    later = NO_FORMER.merge(*moved(1, ("a", "b"), ("a", "c"), 20), reported)
    assert refusing(later.settle(reported, reported), 5) == {"b"}


def test_a_bookie_that_was_away_cannot_have_collected_anything():
    away = repaired(known=seen(AWAY))
    assert (refusing(away, 5), away.from_ms.tolist()) == (frozenset(), [NEVER])


def test_a_bookie_that_returned_takes_its_copies_back_at_first():
    back = repaired(known=seen(AWAY)).settle(seen(begun=11, at_ms=100), seen(AWAY))
    assert refusing(back, 100 + COLLECT_MS - 1) == frozenset()


def test_a_bookie_that_returned_refuses_what_it_collects_later():
    back = repaired(known=seen(AWAY)).settle(seen(begun=11, at_ms=100), seen(AWAY))
    end = 100 + COLLECT_MS + SLACK_MS + REFUSES_MS
    assert [refusing(back, at) for at in (100 + COLLECT_MS, end - 1, end)] == [{"b"}, {"b"}, frozenset()]


def test_a_return_counts_once():
    back = repaired(known=seen(AWAY)).settle(seen(begun=11, at_ms=100), seen(AWAY))
    assert back.settle(seen(begun=11, at_ms=200), seen(begun=11)) is back


def test_a_bookie_that_registered_before_its_drop_was_observed_had_been_absent():
    late = repaired(zxid=10, now_ms=5, known=seen(begun=11))
    assert [refusing(late, at) for at in (5, 5 + COLLECT_MS)] == [frozenset(), {"b"}]


def test_before_anything_is_known_of_the_bookies_the_worst_is_taken():
    assert refusing(NO_FORMER.merge(*moved(1, ("a", "b"), ("a", "c"), 10, 5), None), 5) == {"b"}


def test_a_bookie_that_stays_away_is_forgotten_at_last():
    away = repaired(now_ms=5, known=seen(AWAY))
    assert [len(away.settle(seen(AWAY, at_ms=at), seen(AWAY))) for at in (4 + AWAY_MS, 5 + AWAY_MS)] == [1, 0]


def test_an_empty_memory_settles_into_itself():
    assert NO_FORMER.settle(seen(), None) is NO_FORMER


def test_when_to_look_again():
    back = repaired(known=seen(AWAY)).settle(seen(begun=11, at_ms=100), seen(AWAY))
    begins, ends = 100 + COLLECT_MS, 100 + COLLECT_MS + SLACK_MS + REFUSES_MS
    assert [back.next_ms(at) for at in (100, begins, ends)] == [begins, ends, NEVER]


def test_a_bookie_that_is_away_is_nothing_to_look_again_for():
    assert repaired(known=seen(AWAY)).next_ms(5) == NEVER


def test_only_what_is_asked_for():
    both = joined([repaired(1), repaired(2)])
    assert both.about(np.array([2])).ledger.tolist() == [2]


def test_parts_are_joined_by_name():
    other = NO_FORMER.merge(*moved(2, ("a", "d"), ("a", "c"), 10), seen())
    both = joined([repaired(1), NO_FORMER, other])
    assert (both.of(1), both.of(2)) == ({"b"}, {"d"})


def mixed() -> FormerMembers:
    steps: tuple[Ledgers, Ledgers] = moved(1, ("é", "b"), ("a", "b"), 4, 6)
    return repaired(2).merge(*steps, seen())


def test_bytes_hold_everything():
    back = FormerMembers.from_bytes(mixed().to_bytes())
    assert (back.of(1), back.of(2), back.to_bytes()) == ({"é"}, {"b"}, mixed().to_bytes())


def test_bytes_of_some_pairs_hold_no_other_names():
    assert FormerMembers.from_bytes(mixed().about(np.array([2])).to_bytes()).names == ("b",)


def test_an_empty_memory_has_bytes():
    assert len(FormerMembers.from_bytes(NO_FORMER.to_bytes())) == 0


@pytest.mark.parametrize(
    "blob", [b"", b"nonsense that is long enough", repaired().to_bytes()[:-1], repaired().to_bytes() + b"x"]
)
def test_other_bytes_are_refused(blob):
    with pytest.raises(BadBytes):
        FormerMembers.from_bytes(blob)
