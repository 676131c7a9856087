"""Bookies that are drained: verdicts, moves, and what is left on them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.unit.placement.test_copies_loop import record
from tests.unit.placement.test_verdicts import RACKS, closed, opened, rule_of, topology
from trueup.state.bookkeeper.ledgers import EMPTY, Ledgers, concat, row
from trueup.state.bookkeeper.observations import LedgerRecord, LedgerState
from trueup.state.bookkeeper.topology import PlacementPolicy, Status, Topology
from trueup.state.common.rules import Verdict
from trueup.state.placement.copies.targets import LedgerMoves, MovePlanner
from trueup.state.placement.policy.declared import declared
from trueup.state.placement.settings import PlacementSettings
from trueup.state.placement.verdicts import evidence, judge
from trueup.streams.placement.drains import MOST_OPEN, drains
from trueup.streams.rows import Row


def draining(*bookies: str, racks: Any = RACKS, copies: bool = True, **more: Any) -> Topology:
    return topology(racks, policy=PlacementPolicy(drain=bookies, copies=copies), **more)


@pytest.mark.parametrize(
    ("ledger", "expected"),
    [
        (closed("a1", "b1"), "draining-member"),
        (closed("a1", "b1", "a2"), "draining-member"),
        (closed("a1", "a2"), "too-few-racks"),
        (closed("a2", "b1"), "adheres"),
        (opened(["a1", "b1"]), "open-draining-member"),
        (opened(["a1", "b1"], ["a2", "b1"]), "open-draining-member"),
        (opened(["a1", "a2"]), "open-draining-member"),
        (opened(["a2", "a3"]), "open-not-adhering"),
    ],
)
def test_a_ledger_on_a_draining_bookie_has_a_finding(ledger: Ledgers, expected: str) -> None:
    assert rule_of(ledger, draining("a1")) == expected


def test_a_lost_member_comes_before_a_draining_one() -> None:
    assert rule_of(closed("a1", "b1"), draining("a1", lost=["b1"])) == "lost-member"


def test_a_draining_bookie_that_is_lost_is_lost() -> None:
    assert rule_of(closed("a1", "b1"), draining("a1", lost=["a1"])) == "lost-member"


def test_one_draining_member_in_any_fragment_is_a_finding() -> None:
    several = row(1, ["a2", "b1"], ["a1", "b1"], quorum=2)
    assert rule_of(several, draining("a1")) == "draining-member"


@pytest.mark.parametrize(("copies", "verdict"), [(True, Verdict.DRIFTED), (False, Verdict.BLOCKED)])
def test_what_only_a_copy_repairs_is_drifted_where_ledgers_are_copied(copies: bool, verdict: Verdict) -> None:
    seen = draining("a1", copies=copies)
    ledger = closed("a1", "b1")
    assert (judge(ledger, seen).verdict[0], evidence(ledger, 0, seen)["verdict"]) == (verdict, verdict.name.lower())


def test_the_evidence_names_the_command_that_ends_the_drain() -> None:
    assert evidence(closed("a1", "b1"), 0, draining("a1"))["changes"][0] == "`trueup undrain a1`"


def test_the_settings_declare_it() -> None:
    policy = declared(PlacementSettings(drain=["b", "a", "b"], executor="copy", copy_enabled=True))
    assert (policy.drain, policy.copies) == (("a", "b"), True)


def named(ledger: int, *members: str, state: LedgerState = LedgerState.CLOSED) -> Ledgers:
    return row(ledger, [*members], quorum=2, state=state)


def moves(seen: Topology, *members: str, **changes: Any) -> LedgerMoves:
    size = {"ensemble": len(members), "quorum": 2, "ack_quorum": 2}
    fragments = [{"first_entry": 0, "bookies": [*members]}]
    return MovePlanner(seen, {}).moves(record(1, **{**size, "fragments": fragments, **changes}))


def pairs(found: LedgerMoves) -> list[tuple[str, str]]:
    return [(move.before, move.after) for move in found.moves]


def test_the_replica_of_a_draining_bookie_moves_within_its_rack() -> None:
    assert pairs(moves(draining("a1"), "a1", "b1")) == [("a1", "a2")]


def test_a_draining_bookie_gets_no_replica() -> None:
    assert pairs(moves(draining("a1", "a2"), "a1", "b1")) == [("a1", "a3")]


def test_a_ledger_keeps_its_racks_rather_than_leaving_the_bookie() -> None:
    found = moves(draining("b1", racks={"a1": "/a", "a2": "/a", "b1": "/b"}), "a1", "b1")
    assert (found.moves, found.stuck) == ((), (0,))


def test_a_ledger_keeps_the_rack_of_a_read_only_bookie() -> None:
    seen = draining("b1", racks={"a1": "/a", "a2": "/a", "b1": "/b"}, readonly=["b1"])
    assert moves(seen, "a1", "b1").moves == ()


def test_a_ledger_that_cannot_adhere_leaves_the_bookie_if_it_is_placed_no_worse() -> None:
    racks = {"a1": "/a", "a2": "/a", "a3": "/a"}
    assert pairs(moves(draining("a1", racks=racks), "a1", "a2")) == [("a1", "a3")]


def test_a_ledger_leaves_one_of_two_bookies_if_there_is_one_to_take_its_place() -> None:
    racks = {"a1": "/a", "a2": "/a", "b1": "/b", "b2": "/b"}
    found = moves(draining("a1", "b1", racks={**racks, "b2": "/b"}, readonly=["a2"]), "a1", "b1")
    assert pairs(found) == [("b1", "b2")]


def test_a_lost_member_is_replaced_although_the_draining_one_cannot_be() -> None:
    racks = {"a1": "/a", "a2": "/a", "b1": "/b"}
    assert pairs(moves(draining("b1", racks=racks, lost=["a1"]), "a1", "b1")) == [("a1", "a2")]


class Cluster:
    """The ledgers of these rows; ``owners``: the ledger of each owner."""

    def __init__(self, *rows: Ledgers) -> None:
        self.rows = concat([EMPTY, *rows])

    def readable(self, ledgers: list[int]) -> Ledgers:
        return self.rows.take(np.isin(self.rows.ledger, ledgers))

    def record(self, ledger: int) -> LedgerRecord | None:
        return None if ledger == DELETED else record(ledger, custom={})


DELETED = 99
COPYING = PlacementSettings(drain=["a1"], executor="copy", copy_enabled=True, mode="enforce")


def shown(
    *rows: Ledgers, policy: PlacementSettings = COPYING, status: Sequence[str] = ("a1",), problem: str = ""
) -> Row:
    cluster = Cluster(*rows)
    seen = draining(*policy.drain, readonly=status)
    (only,) = drains(cluster, policy, seen, lambda: cluster.rows.ledger, lambda: problem)
    return only


def test_ledgers_that_name_the_bookie_are_counted() -> None:
    several = named(1, "a1", "b1"), named(2, "a2", "b1"), named(3, "b1", "a1", state=LedgerState.OPEN)
    only = shown(*several)
    assert (only["ledgers"], only["closed"], only["open"], only["removable"]) == (2, 1, 1, False)


def test_open_ledgers_are_named_up_to_a_limit() -> None:
    several = [named(ledger, "a1", "b1", state=LedgerState.OPEN) for ledger in range(MOST_OPEN + 5)]
    only = shown(*several)
    assert (only["open"], len(only["open_ledgers"])) == (MOST_OPEN + 5, MOST_OPEN)


def test_a_ledger_that_is_deleted_meanwhile_is_not_named() -> None:
    assert shown(named(DELETED, "a1", "b1", state=LedgerState.OPEN))["open_ledgers"] == []


def test_a_bookie_that_no_ledger_names_can_be_removed() -> None:
    only = shown(named(2, "a2", "b1"))
    assert (only["removable"], only["waits_for"]) == (True, "")


@pytest.mark.parametrize(
    ("arguments", "waits"),
    [
        ({"status": ()}, "the bookie to be read-only: it is still selected for new ledgers"),
        ({"problem": "the verdict on 3 ledgers"}, "the verdict on 3 ledgers"),
    ],
)
def test_a_bookie_that_could_be_named_cannot_be_removed(arguments: dict[str, Any], waits: str) -> None:
    only = shown(**arguments)
    assert (only["removable"], only["waits_for"]) == (False, waits)


@pytest.mark.parametrize(
    ("policy", "waits"),
    [
        ({}, "copies of 1 ledger"),
        ({"mode": "approve"}, "copies of 1 ledger; placement.mode is approve"),
        ({"paused": True}, "copies of 1 ledger; placement.paused is set"),
        ({"executor": "workers"}, "placement.executor copy: the workers move no replicas off a live bookie"),
    ],
)
def test_it_is_shown_what_closed_ledgers_wait_for(policy: dict[str, Any], waits: str) -> None:
    settings: dict[str, Any] = {"drain": ["a1"], "executor": "copy", "copy_enabled": True, "mode": "enforce", **policy}
    assert shown(named(1, "a1", "b1"), policy=PlacementSettings(**settings))["waits_for"] == waits


def test_an_open_ledger_waits_for_its_writer() -> None:
    assert shown(opened(["a1", "b1"]))["waits_for"] == "the writers of 1 ledger to close them"


def test_without_a_drain_nothing_is_read() -> None:
    assert drains(Cluster(), PlacementSettings(), None, lambda: pytest.fail("read"), lambda: "") == []


def test_the_status_of_a_bookie_that_never_registered_is_unknown() -> None:
    policy = PlacementSettings(drain=["z9"])
    assert shown(policy=policy)["status"] == "unknown"


def test_statuses_of_the_topology_are_shown() -> None:
    assert [shown(status=some)["status"] for some in (("a1",), ())] == [
        Status.READONLY.name.lower(),
        Status.WRITABLE.name.lower(),
    ]
