"""The effect of a loss, against a ledger's entries one by one."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trueup.state.bookkeeper.ledgers import MANY, concat, row
from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.placement.what_if import NAMED, FailureEffect, WhatIf

BOOKIES = [f"b{number}" for number in range(6)]


class One(NamedTuple):
    """A ledger: bookies and first entry of each fragment; ``last`` of an open one is its last entry so far."""

    fragments: list[tuple[int, list[str]]]
    quorum: int
    last: int
    open: bool


@st.composite
def ledgers(draw: st.DrawFn) -> One:
    ensemble = draw(st.integers(1, 4))
    rings = draw(st.lists(st.permutations(BOOKIES).map(lambda all_of: list(all_of[:ensemble])), min_size=1, max_size=3))
    firsts = sorted(draw(st.sets(st.integers(1, 12), min_size=len(rings) - 1, max_size=len(rings) - 1)))
    last = draw(st.integers((firsts or [0])[-1] - 1, 16))
    return One(list(zip([0, *firsts], rings, strict=True)), draw(st.integers(1, ensemble)), last, draw(st.booleans()))


def windows(one: One) -> list[tuple[list[str], set[str]]]:
    """Ring and bookies of every entry; of an open fragment, those of every entry that it may have."""
    found = []
    ends = [first for first, _ in one.fragments[1:]]
    for (first, ring), end in zip(one.fragments, [*ends, one.last + 1], strict=True):
        writing = one.open and first == one.fragments[-1][0]
        entries = range(first, first + len(ring) if writing else end)
        found.extend((ring, {ring[(entry + k) % len(ring)] for k in range(one.quorum)}) for entry in entries)
    return found


def folded(found: list[One], dead: set[str], missing: set[str], writable: set[str]) -> FailureEffect:
    rows = concat(
        [
            row(
                number,
                *[ring for _, ring in one.fragments],
                quorum=one.quorum,
                entries=MANY,
                state=LedgerState.OPEN if one.open else LedgerState.CLOSED,
            )
            for number, one in enumerate(found)
        ]
    )
    last = np.array([-1 if one.open else one.last for one in found])
    length = np.array([0 if one.open else 100 * (one.last + 1) for one in found])
    what = WhatIf({"loss": dead}, set(BOOKIES), set(BOOKIES) - missing, writable)
    what.add(rows, last, length, np.array([first for one in found for first, _ in one.fragments]))
    return what.losses["loss"]


@settings(max_examples=1_000)
@given(
    st.lists(ledgers(), min_size=1, max_size=5), st.sets(st.sampled_from(BOOKIES)), st.sets(st.sampled_from(BOOKIES))
)
def test_copies_are_those_of_the_weakest_entry_of_a_touched_fragment(
    found: list[One], dead: set[str], missing: set[str]
) -> None:
    left = {
        number: min(held)
        for number, one in enumerate(found)
        if (held := [len(window - dead - missing) for ring, window in windows(one) if dead & set(ring)])
    }
    lost = [number for number, copies in left.items() if copies == 0]
    one = [number for number, copies in left.items() if copies == 1 < found[number].quorum]
    fewer = [number for number, copies in left.items() if 1 < copies < found[number].quorum]
    loss = folded(found, dead, missing, set(BOOKIES))
    assert (loss.ledgers, loss.lost, loss.one_copy, loss.fewer, loss.named) == (
        len(left),
        len(lost),
        len(one),
        len(fewer),
        lost[:NAMED],
    )


@given(st.lists(ledgers(), min_size=1, max_size=5), st.sampled_from(BOOKIES))
def test_bytes_to_copy_are_those_of_all_entries_of_the_fragments_of_one_bookie(found: list[One], dead: str) -> None:
    expected, found = 0.0, [one for one in found if one.quorum > 1]
    for one in found:
        if one.open:
            continue
        ends = [first for first, _ in one.fragments[1:]]
        for (first, ring), end in zip(one.fragments, [*ends, one.last + 1], strict=True):
            if dead in ring:
                expected += 100 * max(0, end - first)
    loss = folded(found, {dead}, set(), set(BOOKIES))
    assert loss.to_copy == pytest.approx(expected)
