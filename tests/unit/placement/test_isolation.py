"""Ledgers of Pulsar namespaces with isolation groups: members outside them, and repairs that would leave them."""

from dataclasses import replace

import pytest

from trueup.state.bookkeeper.isolation import BROKEN, isolation_text, namespace_text
from trueup.state.bookkeeper.ledgers import Ledgers, concat, row
from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.bookkeeper.topology import Bookie, NamespaceGroups, PlacementPolicy, Status, Topology
from trueup.state.placement.rules import RULES
from trueup.state.placement.verdicts import evidence, judge

ISOLATION = PlacementPolicy("isolation")
BOOKIES = {
    "a1": ("/r1", "a"),
    "a2": ("/r2", "a"),
    "a3": ("/r1", "a"),
    "b1": ("/r1", "b"),
    "b2": ("/r2", "b"),
    "n1": ("/r2", ""),
}
A, AB = isolation_text(["a"]), isolation_text(["a"], ["b"])


def topology(*gone: str, policy: PlacementPolicy = ISOLATION, without: str = "") -> Topology:
    bookies = (
        Bookie(name, rack, Status.LOST if name in gone else Status.WRITABLE, 0, groups=(group,) if group else ())
        for name, (rack, group) in BOOKIES.items()
        if name not in without.split()
    )
    return Topology(1, 0, tuple(bookies), policy=policy)


def rules(ledgers: Ledgers, seen: Topology) -> list[str]:
    return [RULES[code].id.removeprefix("placement.") for code in judge(ledgers, seen).rule.tolist()]


def closed(*members: str, isolation: str = A) -> Ledgers:
    return row(1, list(members), quorum=2, isolation=isolation)


def test_a_ledger_in_its_group_is_true() -> None:
    assert rules(closed("a1", "a2"), topology()) == ["adheres"]


@pytest.mark.parametrize("state", [LedgerState.OPEN, LedgerState.CLOSED])
def test_a_member_of_another_group_is_outside(state: LedgerState) -> None:
    ledger = row(1, ["a1", "b2"], quorum=2, isolation=A, state=state)
    assert rules(ledger, topology()) == ["outside-isolation-group"]


def test_a_member_of_no_group_is_outside() -> None:
    assert rules(closed("a1", "n1"), topology()) == ["outside-isolation-group"]


def test_the_first_fragment_with_a_member_outside_is_the_worst() -> None:
    ledger = row(1, ["a1", "a2"], ["a1", "b2"], ["b1", "b2"], quorum=2, isolation=A)
    assert judge(ledger, topology()).fragment.tolist() == [1]


def test_secondary_groups_are_allowed_only_while_the_primary_ones_are_too_small() -> None:
    ledger = closed("a1", "b2", isolation=AB)
    assert rules(ledger, topology()) == ["outside-isolation-group"]
    assert rules(ledger, topology(without="a2 a3")) == ["adheres"]


def test_bookies_of_no_group_are_allowed_while_both_are_too_small() -> None:
    ledger = row(1, ["a1", "b2", "n1"], quorum=3, isolation=AB)
    assert rules(ledger, topology(without="a2 a3")) == ["outside-isolation-group"]
    assert rules(ledger, topology(without="a2 a3 b1")) == ["adheres"]


def test_a_ledger_without_groups_has_those_of_the_settings() -> None:
    ledger = closed("a1", "b2", isolation="")
    assert rules(ledger, topology()) == ["adheres"]
    assert rules(ledger, topology(policy=replace(ISOLATION, groups=("a",)))) == ["outside-isolation-group"]


OF_NAMESPACE = namespace_text("public/orders")


def test_a_ledger_without_groups_has_those_of_its_namespace() -> None:
    ledgers = concat([closed("a1", "b2", isolation=text) for text in (OF_NAMESPACE, namespace_text("public/other"))])
    seen = replace(topology(), namespaces=(NamespaceGroups("public/orders", ("a",)),))
    assert rules(ledgers, seen) == ["outside-isolation-group", "adheres"]


def test_a_ledger_of_a_namespace_is_unknown_until_its_policies_were_read() -> None:
    unreadable = (NamespaceGroups("public/orders", (), readable=False),)
    ledger = closed("a1", "a2", isolation=OF_NAMESPACE)
    assert [rules(ledger, replace(topology(), namespaces=read)) for read in (None, unreadable, ())] == [
        ["unknown-isolation-group"],
        ["unknown-isolation-group"],
        ["adheres"],
    ]


def test_namespaces_matter_only_under_isolation() -> None:
    assert rules(closed("a1", "a2", isolation=OF_NAMESPACE), topology(policy=PlacementPolicy())) == ["adheres"]


def test_metadata_without_any_group_allow_only_bookies_of_no_group() -> None:
    ledgers = concat([closed("a1", "n1", isolation=isolation_text([])), closed("a1", "n1", isolation="")])
    assert rules(ledgers, topology()) == ["outside-isolation-group", "adheres"]


def test_a_group_of_all_isolates_nothing() -> None:
    assert rules(closed("a1", "b2", isolation=isolation_text(["*"])), topology()) == ["adheres"]


def test_a_loss_is_not_marked_if_a_worker_could_leave_the_group() -> None:
    assert rules(closed("a1", "a2"), topology("a2")) == ["leaves-isolation-group"]


def test_a_loss_is_marked_if_all_other_bookies_are_in_the_group() -> None:
    assert rules(closed("a1", "a2"), topology("a2", without="b1 b2 n1")) == ["lost-member"]


def test_a_loss_is_marked_if_workers_respect_groups() -> None:
    policy = replace(ISOLATION, workers_isolate=True)
    assert rules(closed("a2", "a3"), topology("a3", policy=policy)) == ["lost-member"]


def test_a_loss_is_not_marked_if_workers_would_then_leave_the_group_for_racks() -> None:
    policy = replace(ISOLATION, workers_isolate=True)
    assert rules(closed("a1", "a2"), topology("a2", policy=policy)) == ["leaves-isolation-group"]
    assert rules(closed("a1", "a2"), replace(topology("a2", policy=policy), min_racks=1)) == ["lost-member"]


def test_workers_do_not_know_the_groups_of_namespaces() -> None:
    policy = replace(ISOLATION, workers_isolate=True, groups=("b",))
    seen = replace(topology("a3", policy=policy), namespaces=(NamespaceGroups("public/orders", ("a",)),))
    ledgers = concat([closed("a2", "a3", isolation=text) for text in (OF_NAMESPACE, A)])
    assert rules(ledgers, seen) == ["leaves-isolation-group", "lost-member"]


def test_one_fragment_that_workers_can_repair_in_the_groups_is_enough() -> None:
    policy = replace(ISOLATION, workers_isolate=True)
    ledgers = [row(1, ["a1", "a2", "a3"], *more, quorum=3, isolation=A) for more in ([], [["a3", "b1", "b2"]])]
    assert rules(concat(ledgers), topology("a3", policy=policy, without="n1")) == ["too-few-bookies", "lost-member"]


def test_a_fragment_that_needs_no_repair_leaves_no_group() -> None:
    ledger = row(1, ["a3", "n1"], ["a1", "a2"], quorum=2, isolation=A)
    assert rules(ledger, topology("a3", without="b1 b2")) == ["lost-member"]


def test_workers_that_respect_groups_need_a_bookie_there() -> None:
    policy = replace(ISOLATION, workers_isolate=True)
    ledger = row(1, ["b1", "b2"], quorum=2, isolation=isolation_text(["b"], ["a"]))
    assert rules(ledger, topology("b2", policy=policy, without="a1 a2 a3")) == ["lost-member"]  # n1 is allowed
    assert rules(ledger, topology("b2", policy=policy, without="a1 a2 a3 n1")) == ["too-few-bookies"]


def test_workers_that_respect_groups_ignore_them_for_racks() -> None:
    policy = replace(ISOLATION, workers_isolate=True)
    assert rules(closed("a1", "a3"), topology(policy=policy)) == ["leaves-isolation-group"]


def test_a_loss_is_not_marked_if_another_fragment_needs_racks() -> None:
    policy = replace(ISOLATION, workers_isolate=True)
    ledgers = [
        row(1, ["a2", "a3"], [other, "a1"], quorum=2, isolation=isolation_text(["a"], ["b"])) for other in ("b1", "n1")
    ]
    assert rules(concat(ledgers), topology("a3", policy=policy)) == ["leaves-isolation-group", "lost-member"]


def test_an_operator_may_put_replicas_before_groups() -> None:
    policy = replace(ISOLATION, leave_isolation=True)
    assert rules(closed("a1", "a2"), topology("a2", policy=policy)) == ["lost-member"]


@pytest.mark.parametrize("lost", ["", "a2"])
def test_a_ledger_with_groups_is_unknown_under_another_policy(lost: str) -> None:
    assert rules(closed("a1", "a2"), topology(lost, policy=PlacementPolicy())) == ["unknown-isolation-group"]


def test_a_ledger_is_unknown_until_the_groups_were_read() -> None:
    seen = topology()
    unread = replace(seen, bookies=tuple(replace(bookie, groups=None) for bookie in seen.bookies))
    assert rules(closed("a1", "a2"), unread) == ["unknown-isolation-group"]


def test_a_ledger_whose_groups_pulsar_cannot_read_is_unknown() -> None:
    assert rules(closed("a1", "a2", isolation=BROKEN), topology()) == ["unknown-isolation-group"]


def test_no_data_come_before_groups() -> None:
    assert rules(closed("a1", "a2"), topology("a1", "a2")) == ["all-copies-lost"]


def test_the_evidence_names_groups_and_members_outside() -> None:
    shown = evidence(closed("a1", "b2", isolation=AB), 0, topology())
    assert shown["rule"] == "placement.outside-isolation-group"
    assert shown["isolation"] == {"primary": ["a"], "secondary": ["b"], "outside": ["b2"], "source": "its metadata"}
    assert shown["changes"][0] == "b2 in a of the rack map"
    assert shown["fragments"][0]["rule"] == shown["rule"]


def test_rows_with_groups_survive_their_bytes() -> None:
    ledgers = concat([closed("a1", "b2"), closed("a1", "a2", isolation=""), closed("b1", "b2", isolation=AB)])
    assert rules(Ledgers.from_bytes(ledgers.to_bytes()), topology()) == rules(ledgers, topology())
