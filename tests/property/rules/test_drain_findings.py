"""A ledger that names a draining bookie always has a finding: what is left on the bookie is counted among them."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from trueup.state.bookkeeper.ledgers import Ledgers, row
from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.bookkeeper.topology import Bookie, PlacementPolicy, Status, Topology
from trueup.state.common.rules import Verdict
from trueup.state.placement.verdicts import judge

NAMES = [f"b{n}" for n in range(6)]
LOCATIONS = ["/a", "/b", "/r/a", "/r/b", "?", None]
STATES = [LedgerState.OPEN, LedgerState.IN_RECOVERY, LedgerState.CLOSED]


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Bookies of any status and location, under any policy."""
    bookies = tuple(
        Bookie(
            name,
            draw(st.sampled_from(LOCATIONS)),
            draw(st.sampled_from(Status)),
            0,
            at + 1,
            groups=draw(st.sampled_from([None, (), ("blue",), ("green",)])),
        )
        for at, name in enumerate(NAMES)
    )
    policy = PlacementPolicy(
        kind=draw(st.sampled_from(["rack", "region", "zone", "isolation"])),
        groups=draw(st.sampled_from([(), ("blue",)])),
        leave_isolation=draw(st.booleans()),
        workers_isolate=draw(st.booleans()),
        copies=draw(st.booleans()),
        drain=tuple(draw(st.sets(st.sampled_from(NAMES), min_size=1))),
    )
    return Topology(1, 0, bookies, draw(st.integers(0, 3)), draw(st.booleans()), policy=policy)


@st.composite
def rows(draw: st.DrawFn) -> Ledgers:
    """A ledger with one or two fragments of bookies that have registered."""
    size = draw(st.integers(1, 4))
    rings = [draw(st.permutations(NAMES))[:size] for _ in range(draw(st.integers(1, 2)))]
    entries = draw(st.integers(0, 9))
    return row(1, *rings, quorum=draw(st.integers(1, size)), state=draw(st.sampled_from(STATES)), entries=entries)


@given(topologies(), rows())
@settings(max_examples=500)
def test_a_ledger_on_a_draining_bookie_is_never_true(seen: Topology, ledger: Ledgers) -> None:
    named = {ledger.names[code] for code in ledger.members.tolist()}
    if named & {*seen.policy.drain}:
        assert judge(ledger, seen).verdict[0] != Verdict.TRUE


@given(topologies(), rows())
@settings(max_examples=300)
def test_a_drain_changes_no_verdict_on_other_ledgers(seen: Topology, ledger: Ledgers) -> None:
    named = {ledger.names[code] for code in ledger.members.tolist()}
    without = replace(seen, policy=replace(seen.policy, drain=()))
    if not named & {*seen.policy.drain}:
        assert judge(ledger, seen).rule[0] == judge(ledger, without).rule[0]
