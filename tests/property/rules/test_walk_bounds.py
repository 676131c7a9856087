"""Invariants of the walk for any ensemble: it never promises more than is possible, and does not depend on names."""

import itertools
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from trueup.state.placement.policy.replacement import Certainty, colourable, reach, reachable, refill, windows

RACKS = ["/a", "/b", "/c", None]
members = st.lists(st.sampled_from(RACKS), min_size=1, max_size=6)
stock = st.dictionaries(st.sampled_from(RACKS), st.integers(0, 4))


def _adheres(ring, quorum, min_racks, enforce):
    need = min(quorum, min_racks)
    seen = [{ring[at] for at in window} for window in windows(len(ring), quorum)]
    return all(len(racks) >= need and not (enforce and None in racks) for racks in seen)


def _any_ring(size, quorum, bookies, min_racks, enforce):
    return any(
        all(n <= bookies.get(rack, 0) for rack, n in Counter(ring).items())
        and _adheres(ring, quorum, min_racks, enforce)
        for ring in itertools.product(RACKS, repeat=size)
    )


sizes = st.integers(1, 5).flatmap(lambda size: st.tuples(st.just(size), st.integers(1, size)))


@given(sizes, stock, st.integers(0, 4), st.booleans())
def test_colourable_agrees_with_trying_every_ring(sizes, bookies, min_racks, enforce):
    size, quorum = sizes
    assert colourable(size, quorum, bookies, min_racks, enforce) == _any_ring(size, quorum, bookies, min_racks, enforce)


@st.composite
def tasks(draw):
    ring = draw(members)
    unknown = draw(st.sets(st.integers(0, len(ring) - 1)))
    policy = (draw(st.integers(0, 4)), draw(st.booleans()))
    return ring, draw(st.integers(1, len(ring))), draw(stock), policy, unknown


@given(tasks())
def test_the_walk_reaches_nothing_that_does_not_exist(task):
    ring, quorum, spares, policy, unknown = task
    known = Counter(rack for at, rack in enumerate(ring) if at not in unknown)
    found = reach(ring, quorum, spares, *policy, unknown=unknown)
    assert not found.moves or colourable(len(ring), quorum, known + Counter(spares), *policy)


@given(tasks())
def test_the_short_answer_agrees_with_the_long_one(task):
    ring, quorum, spares, policy, unknown = task
    long = reach(ring, quorum, spares, *policy, unknown=unknown)
    assert reachable(ring, quorum, spares, *policy, unknown=unknown) == bool(long)


@given(tasks(), st.integers(0, 5))
def test_where_the_ring_begins_does_not_matter(task, turn):
    ring, quorum, spares, policy, unknown = task
    turn %= len(ring)
    turned = {(at - turn) % len(ring) for at in unknown}
    assert reach(ring, quorum, spares, *policy, unknown=unknown) == reach(
        ring[turn:] + ring[:turn], quorum, spares, *policy, unknown=turned
    )


@given(tasks(), stock)
def test_refusing_targets_never_help(task, refusing):
    ring, quorum, spares, policy, unknown = task
    without = reach(ring, quorum, spares, *policy, unknown=unknown)
    assert reach(ring, quorum, spares, *policy, unknown=unknown, refusing=refusing).sure <= without.sure


@given(tasks())
def test_targets_that_all_refuse_leave_moves_among_the_members(task):
    ring, quorum, spares, policy, unknown = task
    found = reach(ring, quorum, spares, *policy, unknown=unknown, refusing=spares)
    assert not (found.moves and unknown)


@given(members, st.data(), stock, st.booleans(), stock)
def test_a_replacement_needs_a_bookie_for_each(ring, data, spares, enforce, refusing):
    lost = data.draw(st.sets(st.integers(0, len(ring) - 1), min_size=1))
    usable = sum(n for rack, n in spares.items() if not (enforce and rack is None))
    found = refill(ring, lost, spares, enforce, refusing=refusing)
    assert found.sure is Certainty.NEVER or (usable >= len(lost) and found.moves == len(lost))
    if not enforce and not refusing:
        assert bool(found) == (usable >= len(lost))
