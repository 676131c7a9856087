"""Adherence compared with a direct implementation of the rule, for every small ensemble."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trueup.state.bookkeeper.ledgers import MANY, Ledgers, concat, row
from trueup.state.bookkeeper.topology import Bookie, Status, Topology
from trueup.state.common.rules import Verdict
from trueup.state.placement.policy.fragments import FragmentJudge, stages
from trueup.state.placement.rules import RULES
from trueup.state.placement.verdicts import ORDER, Verdicts, judge

# Possible members: rack and status. None is the default rack.
KINDS: dict[str, tuple[str | None, Status]] = {
    "a": ("/a", Status.WRITABLE),
    "b": ("/b", Status.WRITABLE),
    "c": ("/c", Status.WRITABLE),
    "d": (None, Status.WRITABLE),
    "r": ("/b", Status.READONLY),
    "l": ("/c", Status.LOST),
}


def topology(size: int, min_racks: int, enforce: bool) -> Topology:
    bookies = [Bookie(f"{k}{n}", *KINDS[k], 0, n + 1) for k in KINDS for n in range(size)]
    return Topology(1, 0, tuple(bookies), min_racks, enforce)


def says(ensemble: Sequence[str], quorum: int, min_racks: int, enforce: bool) -> tuple[bool, int, int]:
    """(fails, fewest racks, fewest copies) over all windows."""
    known = {k: rack or "/default-rack" for k, (rack, status) in KINDS.items() if status is Status.WRITABLE}
    fails, racks, copies = False, len(ensemble), quorum
    for start in range(len(ensemble)):
        window = [ensemble[(start + step) % len(ensemble)] for step in range(quorum)]
        found = {known[k] for k in window if k in known}
        fails |= len(found) < min(quorum, min_racks) or (enforce and "/default-rack" in found)
        racks = min(racks, len(found))
        copies = min(copies, sum(KINDS[k][1] is not Status.LOST for k in window))
    return fails, racks, copies


@pytest.mark.parametrize(("size", "kinds"), [(1, "abcdrl"), (2, "abcdrl"), (3, "abcdrl"), (4, "abcdrl"), (5, "abrl")])
@pytest.mark.parametrize("enforce", [False, True])
def test_every_small_ring(size: int, kinds: str, enforce: bool) -> None:
    rings = list(itertools.product(kinds, repeat=size))
    for quorum, min_racks in itertools.product(range(1, size + 1), range(4)):
        bench = FragmentJudge(topology(size, min_racks, enforce))
        names = tuple(f"{k}{n}" for k in KINDS for n in range(size))
        code = dict(zip(names, bench.classes(names).tolist(), strict=True))
        members = np.array([[code[f"{k}{n}"] for n, k in enumerate(ring)] for ring in rings])
        facts = bench.facts(members, quorum)
        found = list(zip(facts.fails.tolist(), facts.racks.tolist(), facts.copies.tolist(), strict=True))
        assert found == [says(ring, quorum, min_racks, enforce) for ring in rings]


@pytest.mark.parametrize("size", [2, 3, 4])
def test_copies_of_every_small_ring_with_few_entries(size: int) -> None:
    rings = list(itertools.product("al", repeat=size))
    bench = FragmentJudge(topology(size, 1, enforce=False))
    names = tuple(f"{k}{n}" for k in KINDS for n in range(size))
    code = dict(zip(names, bench.classes(names).tolist(), strict=True))
    members = np.array([[code[f"{k}{n}"] for n, k in enumerate(ring)] for ring in rings])
    for quorum, entries in itertools.product(range(1, size + 1), range(1, size + 2)):
        stage = stages(np.full(len(rings), 3), np.full(len(rings), entries, np.uint8), size)
        windows = [[[ring[(k + step) % size] for step in range(quorum)] for k in range(entries)] for ring in rings]
        fewest = [min(window.count("a") for window in each) for each in windows]
        assert bench.facts(members, quorum, stage).copies.tolist() == fewest


BOOKIES = [f"{k}{n}" for k in KINDS for n in range(3)]
ensembles = st.integers(1, 4).flatmap(
    lambda size: st.lists(
        st.lists(st.sampled_from(BOOKIES), min_size=size, max_size=size, unique=True), min_size=1, max_size=3
    )
)


@st.composite
def ledgers(draw: st.DrawFn) -> Ledgers:
    rows = []
    for ledger in range(draw(st.integers(1, 6))):
        members = draw(ensembles)
        rows.append(
            row(
                ledger,
                *members,
                quorum=draw(st.integers(1, len(members[0]))),
                entries=draw(st.sampled_from([0, 1, 2, 3, MANY, MANY])),
                state=draw(st.sampled_from([0, 1, 2, 3, 3, 3, 9])),
            )
        )
    return concat(rows)


topologies = st.builds(topology, st.just(3), st.integers(0, 3), st.booleans())


def columns(verdicts: Verdicts) -> list[list[int]]:
    return [getattr(verdicts, name).tolist() for name in Verdicts.__slots__]


@given(ledgers(), topologies)
def test_a_row_is_judged_alike_alone_and_among_others(many: Ledgers, seen: Topology) -> None:
    alone = [columns(judge(many.take(np.array([at])), seen)) for at in range(len(many))]
    assert columns(judge(many, seen)) == [
        [value for one in alone for value in one[n]] for n in range(len(Verdicts.__slots__))
    ]


@given(ledgers(), topologies)
def test_a_closed_ledger_is_as_bad_as_its_worst_fragment(many: Ledgers, seen: Topology) -> None:
    many = many.take((many.state == 3) & (many.entries == MANY))
    found = judge(many, seen)
    for at in range(len(many)):
        parts = [row(1, one, quorum=int(many.quorum[at])) for one in many.ensembles(at)]
        each = judge(concat(parts), seen)
        rules = [RULES[code].id for code in each.rule.tolist()]
        worst = min(range(len(rules)), key=lambda n: (ORDER.index(rules[n]), n))
        assert (RULES[int(found.rule[at])].id, int(found.fragment[at])) == (rules[worst], worst)
        assert (found.copies[at], found.racks[at]) == (each.copies.min(), each.racks.min())


@given(ledgers(), topologies)
def test_an_open_ledger_never_drifts(many: Ledgers, seen: Topology) -> None:
    verdicts = judge(many, seen).verdict
    assert not ((verdicts == Verdict.DRIFTED) & (many.state != 3)).any()


@given(ledgers(), topologies, st.permutations(["/a", "/b", "/c"]))
@settings(max_examples=50)
def test_the_names_of_racks_do_not_matter(many: Ledgers, seen: Topology, names: list[str]) -> None:
    renamed = dict(zip(["/a", "/b", "/c"], names, strict=True))
    moved = [Bookie(b.id, renamed.get(b.rack or "", b.rack), b.status, 0, b.registered_zxid) for b in seen.bookies]
    after = Topology(1, 0, tuple(moved), seen.min_racks, seen.enforce_min_racks)
    assert columns(judge(many, seen)) == columns(judge(many, after))


@given(ledgers(), topologies)
@settings(max_examples=50)
def test_a_ring_turned_is_the_same_ring(many: Ledgers, seen: Topology) -> None:
    many = many.take(np.isin(many.entries, [0, MANY]))  # entries begin at the first member
    turned = [
        row(
            int(many.ledger[at]),
            *[one[1:] + one[:1] for one in many.ensembles(at)],
            quorum=int(many.quorum[at]),
            state=int(many.state[at]),
            entries=int(many.entries[at]),
        )
        for at in range(len(many))
    ]
    assert columns(judge(many, seen)) == columns(judge(concat(turned), seen))
