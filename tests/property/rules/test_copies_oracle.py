"""Moves of replicas compared with all other ensembles that bookies outside of the ledger could form."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from trueup.state.bookkeeper.observations import LedgerRecord, LedgerState
from trueup.state.bookkeeper.topology import Bookie, Status, Topology
from trueup.state.placement.copies.targets import LedgerMoves, MovePlanner

RACKS = ["/a", "/b", "/c"]
W, R, L = Status.WRITABLE, Status.READONLY, Status.LOST


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Up to 7 bookies on up to 3 racks."""
    count = draw(st.integers(2, 7))
    bookies = [
        Bookie(f"b{n}", draw(st.sampled_from(RACKS)), draw(st.sampled_from([W, W, W, R, L])), 0, n + 1)
        for n in range(count)
    ]
    return Topology(1, 0, tuple(bookies), draw(st.integers(1, 3)))


@st.composite
def records(draw: st.DrawFn, seen: Topology) -> LedgerRecord:
    names = [bookie.id for bookie in seen.bookies]
    size = draw(st.integers(1, min(4, len(names))))
    quorum = draw(st.integers(1, size))
    fragments = draw(st.integers(1, 2))
    firsts = [0, draw(st.integers(1, 9))][:fragments]
    return {
        "ledger": 7,
        "mzxid": 1,
        "version": 1,
        "ctime_ms": 0,
        "seen_ms": 0,
        "state": int(LedgerState.CLOSED),
        "ensemble": size,
        "quorum": quorum,
        "ack_quorum": quorum,
        "last_entry": draw(st.integers(firsts[-1] - 1, 20)),
        "length": 0,
        "fragments": [{"first_entry": first, "bookies": draw(st.permutations(names))[:size]} for first in firsts],
        "custom": {},
        "error": "",
    }


def spread(ring: Sequence[str], quorum: int, seen: Topology) -> int:
    """The fewest racks of writable bookies in a write quorum."""
    rack = {bookie.id: bookie.rack for bookie in seen.bookies if bookie.status is W}
    windows = [[ring[(at + k) % len(ring)] for k in range(quorum)] for at in range(len(ring))]
    return min(len({rack[one] for one in window if one in rack}) for window in windows)


def adheres(ring: Sequence[str], quorum: int, seen: Topology) -> bool:
    return spread(ring, quorum, seen) >= min(quorum, seen.min_racks)


def exchanged(bookies: Sequence[str], places: Sequence[int], some: Sequence[str]) -> list[str]:
    """The ensemble with other bookies at these places."""
    ring = list(bookies)
    for place, bookie in zip(places, some, strict=True):
        ring[place] = bookie
    return ring


def entries_at(place: int, first: int, last: int, size: int, quorum: int) -> int:
    return sum((place - entry) % size < quorum for entry in range(first, last + 1))


def ranges(record: LedgerRecord) -> list[tuple[int, int, list[str]]]:
    firsts = [fragment["first_entry"] for fragment in record["fragments"]]
    ends = [*(first - 1 for first in firsts[1:]), record["last_entry"]]
    return [(a, b, fragment["bookies"]) for a, b, fragment in zip(firsts, ends, record["fragments"], strict=True)]


def after(found: LedgerMoves, first: int, bookies: list[str]) -> list[str]:
    ring = list(bookies)
    for move in found.moves:
        if move.first_entry == first:
            assert ring[move.place] == move.before
            ring[move.place] = move.after
    return ring


def others(record: LedgerRecord, seen: Topology) -> list[str]:
    """Writable bookies that are in no fragment."""
    members = {bookie for fragment in record["fragments"] for bookie in fragment["bookies"]}
    return [bookie.id for bookie in seen.bookies if bookie.status is W and bookie.id not in members]


def possible(bookies: list[str], joining: list[str], seen: Topology, quorum: int) -> list[tuple[int, ...]]:
    """The sets of places that other bookies can take so that the fragment adheres and has no lost member."""
    lost = {bookie.id for bookie in seen.bookies if bookie.status is L}
    found = []
    for places in itertools.chain.from_iterable(
        itertools.combinations(range(len(bookies)), count) for count in range(len(bookies) + 1)
    ):
        if {at for at, bookie in enumerate(bookies) if bookie in lost} <= set(places):
            for some in itertools.permutations(joining, len(places)):
                if adheres(exchanged(bookies, places, some), quorum, seen):
                    found.append(places)
                    break
    return found


class Planned(NamedTuple):
    """A ledger, the bookies that may join it, and the moves that were planned for it."""

    seen: Topology
    record: LedgerRecord
    joining: list[str]
    found: LedgerMoves


@st.composite
def plans(draw: st.DrawFn) -> Planned:
    seen = draw(topologies())
    record = draw(records(seen))
    return Planned(seen, record, others(record, seen), MovePlanner(seen, {}).moves(record))


@given(plans())
@settings(max_examples=300)
def test_the_moves_of_each_fragment_are_the_cheapest_that_make_it_adhere(planned: Planned) -> None:
    seen, record, joining, found = planned
    for first, last, bookies in ranges(record):
        sets = possible(bookies, joining, seen, record["quorum"])
        costs = [sum(entries_at(at, first, last, len(bookies), record["quorum"]) for at in places) for places in sets]
        moved = [move for move in found.moves if move.first_entry == first]
        ring = after(found, first, bookies)
        if sets:
            assert adheres(ring, record["quorum"], seen)
            assert sum(move.entries for move in moved) == min(costs)
        else:
            assert first in found.stuck + found.unadhering


@given(plans())
@settings(max_examples=300)
def test_no_other_bookies_in_these_places_span_more_racks(planned: Planned) -> None:
    seen, record, joining, found = planned
    for first, _, bookies in ranges(record):
        ring = after(found, first, bookies)
        places = [move.place for move in found.moves if move.first_entry == first]
        for some in itertools.permutations(joining, len(places)):
            other = exchanged(bookies, places, some)
            assert spread(other, record["quorum"], seen) <= spread(ring, record["quorum"], seen)


@given(plans())
@settings(max_examples=300)
def test_no_bookie_joins_twice_and_none_that_was_a_member(planned: Planned) -> None:
    _, record, joining, found = planned
    for first, _, bookies in ranges(record):
        ring = after(found, first, bookies)
        assert len({*ring}) == len(ring)
    assert {move.after for move in found.moves} <= {*joining}


@given(plans())
@settings(max_examples=200)
def test_no_lost_member_stays_where_enough_bookies_are_left(planned: Planned) -> None:
    seen, record, joining, found = planned
    lost = {bookie.id for bookie in seen.bookies if bookie.status is L}
    for first, _, bookies in ranges(record):
        if len(lost & {*bookies}) <= len(joining):
            assert not lost & {*after(found, first, bookies)}
        else:
            assert first in found.stuck


@given(plans())
@settings(max_examples=200)
def test_entries_of_a_move_are_those_of_its_place(planned: Planned) -> None:
    for move in planned.found.moves:
        first, last, bookies = next(one for one in ranges(planned.record) if one[0] == move.first_entry)
        assert move.entries == entries_at(move.place, first, last, len(bookies), planned.record["quorum"])
