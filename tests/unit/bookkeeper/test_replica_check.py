"""Which entries of a reported range are read from a bookie."""

from typing import Any

import pytest

from trueup.connectors.bookkeeper.bookie.replica_check import MOST_READ, sampled
from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.placement.damage import ReplicaRange

HIGHEST = (1 << 63) - 1


def ledger(state: LedgerState = LedgerState.CLOSED, last: int = 9, quorum: int = 2, **fragments: list[str]) -> Any:
    made = [{"first_entry": int(first[1:]), "bookies": bookies} for first, bookies in fragments.items()]
    return {"ledger": 7, "state": state, "last_entry": last, "quorum": quorum, "fragments": made}


PAIR = ledger(f0=["a", "b"])
STRIPED = ledger(f0=["a", "b", "c"])


def of(bookie: str, first: int = 0, last: int = HIGHEST) -> ReplicaRange:
    return ReplicaRange(7, bookie, first, last)


def test_entries_up_to_the_last_one_of_the_ledger():
    assert sampled(PAIR, of("a", 3)) == [3, 4, 5, 6, 7, 8, 9]


def test_entries_of_the_bookie_only():
    assert sampled(STRIPED, of("a")) == [0, 2, 3, 5, 6, 8, 9]


@pytest.mark.parametrize("replica", [of("x"), of("a", 10), of("a", HIGHEST)])
def test_a_bookie_that_should_not_hold_the_entries(replica: ReplicaRange):
    assert sampled(PAIR, replica) == []


def test_a_bookie_that_was_replaced_in_the_fragment_of_the_entries():
    record = ledger(f0=["a", "b"], f5=["c", "b"])
    assert (sampled(record, of("a")), sampled(record, of("c"))) == ([0, 1, 2, 3, 4], [5, 6, 7, 8, 9])


def test_few_entries_of_a_long_range_with_its_ends():
    record = ledger(LedgerState.OPEN, -1, f0=["a", "b"])
    found = sampled(record, of("a", 1))
    assert (len(found), found[0], found[-1]) == (MOST_READ, 1, HIGHEST)
