"""Verdicts of unreferenced ledgers in one small owner bucket."""

from typing import Any

import numpy as np
import pytest

from tests.memory_store import MemoryStore
from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.deletion.owned_ledgers import NO_LEDGERS, OWNED, OwnedLedgerTable, Rows, nodes_of
from trueup.state.deletion.owners import Claim, Component, OwnerStatus, Pointers, claim_of, managed_ledger
from trueup.state.deletion.rules import LEAK_RULES
from trueup.state.deletion.verdicts import judge
from trueup.state.deletion.view import OwnerBucket, agreed

ML = "public/default/persistent/orders"
PATH = f"/managed-ledgers/{ML}"


def ledgers(*rows: dict[str, Any]) -> OwnedLedgerTable:
    """Rows of ledgers. Defaults: closed data ledgers of `ML` with ten entries."""
    names: dict[str, int] = {"": 0}
    table: Rows = np.zeros(len(rows), OWNED)
    for at, row in enumerate(rows):
        fields = {
            "state": LedgerState.CLOSED,
            "component": Component.DATA,
            "owner": ML,
            "name": "",
            "last_entry": 9,
            "length": 100,
            "version": 1,
            "mzxid": 5,
            "seen_ms": 1_000,
            **row,
        }
        for name, value in fields.items():
            table[name][at] = names.setdefault(value, len(names)) if isinstance(value, str) else value
    return OwnedLedgerTable(table, tuple(names))


def node(*listed: int, **more: Any) -> Pointers:
    """The znode of the managed ledger, with this ledger list."""
    fields = {"path": PATH, "owner": ML, "name": "", "status": OwnerStatus.READABLE, "version": 3, "mzxid": 7, **more}
    return Pointers(**{"seen_ms": 2_000, "ledgers": listed, **fields})


def cursor(*listed: int, **more: Any) -> Pointers:
    return node(*listed, **{"path": f"{PATH}/sub", "name": "sub", **more})


def rules(table: OwnedLedgerTable, *nodes: Pointers) -> dict[int, str]:
    return {
        int(row["ledger"]): LEAK_RULES[int(row["rule"])].id.removeprefix("deletion.")
        for row in judge(table, nodes_of(nodes))[0]
    }


def test_a_listed_ledger_is_not_forgotten() -> None:
    assert rules(ledgers({"ledger": 4}), node(4, 9), cursor()) == {9: "missing"}


def test_one_that_later_ones_are_listed_without_is() -> None:
    assert rules(ledgers({"ledger": 4}, {"ledger": 9}), node(9)) == {4: "forgotten"}


def test_what_is_missing_is_so_since_its_ledger_went() -> None:
    bucket = OwnerBucket(MemoryStore())
    bucket.step(ledgers({"ledger": 4}), nodes_of([node(4)]))
    found = bucket.step(ledgers({"ledger": 4, "state": LedgerState.GONE, "mzxid": 9, "seen_ms": 70_000}))
    assert found is not None
    assert found.rows["since_ms"].tolist() == [70_000]


def test_an_open_one_that_later_ones_are_listed_without_is_too() -> None:
    assert rules(ledgers({"ledger": 4, "state": LedgerState.OPEN}, {"ledger": 9}), node(9)) == {4: "forgotten"}


def test_an_empty_one_is_distinguished() -> None:
    assert rules(ledgers({"ledger": 4, "last_entry": -1}, {"ledger": 9}), node(9)) == {4: "forgotten-empty"}


def test_the_newest_ledger_may_be_about_to_be_listed() -> None:
    assert rules(ledgers({"ledger": 9}, {"ledger": 4}), node(4)) == {9: "not-superseded"}


def test_one_that_is_being_recovered_is_left_alone() -> None:
    table = ledgers({"ledger": 4, "state": LedgerState.IN_RECOVERY}, {"ledger": 9})
    assert rules(table, node(9)) == {4: "not-superseded"}


def test_a_cursor_that_lists_a_later_ledger_supersedes_no_data() -> None:
    table = ledgers({"ledger": 4}, {"ledger": 9, "component": Component.CURSOR, "name": "sub"})
    assert rules(table, node(), cursor(9)) == {4: "not-superseded"}


def test_an_owner_without_a_node_proves_nothing() -> None:
    assert rules(ledgers({"ledger": 4})) == {4: "owner-gone"}


def test_a_node_that_cannot_be_read_blinds_its_whole_owner() -> None:
    table = ledgers({"ledger": 4}, {"ledger": 9})
    assert rules(table, node(9), cursor(status=OwnerStatus.UNREADABLE)) == {4: "owner-unreadable"}


def test_an_unreadable_node_affects_no_other_owner() -> None:
    other = cursor(path="/managed-ledgers/other/sub", owner="other", status=OwnerStatus.UNREADABLE)
    assert rules(ledgers({"ledger": 4}, {"ledger": 9}), node(9), other) == {4: "forgotten"}


def test_a_shadow_topic_as_the_owner_proves_nothing() -> None:
    assert rules(ledgers({"ledger": 4}, {"ledger": 9}), node(status=OwnerStatus.SHADOW)) == dict.fromkeys(
        (4, 9), "not-superseded"
    )


@pytest.mark.parametrize("component", ["CURSOR", "COMPACTED", "DELAYED"])
def test_what_is_no_data_is_only_reported(component: str) -> None:
    table = ledgers({"ledger": 4, "component": Component[component]}, {"ledger": 9})
    assert rules(table, node(9)) == {4: component.lower()}


def test_a_schema_has_an_owner_of_its_own() -> None:
    table = ledgers(
        {"ledger": 4, "component": Component.SCHEMA, "owner": "schema:x"},
        {"ledger": 5, "component": Component.SCHEMA, "owner": "schema:x"},
    )
    assert rules(table, node(5, path="/schemas/x", owner="schema:x")) == {4: "schema"}


def test_an_unknown_owner_is_only_reported() -> None:
    assert rules(ledgers({"ledger": 4, "component": Component.UNKNOWN, "owner": ""})) == {4: "unknown-owner"}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("batches", [1, 2])
def test_the_owner_of_a_ledger_that_cannot_be_read_is_that_of_an_earlier_row(order: Any, batches: int) -> None:
    blind = {"component": Component.UNKNOWN, "owner": "", "state": LedgerState.UNREADABLE, "mzxid": 6}
    rows = [{"ledger": 4}, {"ledger": 4, **blind}]
    store, steps = MemoryStore(), [rows[at] for at in order]
    for at in range(batches):
        OwnerBucket(store).step(ledgers(*steps[at::batches]), nodes_of([node(9)]))
    found = OwnerBucket(store).step(asked=True)
    assert found is not None
    assert [
        (found.names[row["owner"]], LEAK_RULES[int(row["rule"])].id) for row in found.rows if row["version"] > 0
    ] == [(ML, "deletion.not-superseded")]


def test_of_a_ledger_that_was_deleted_in_between_no_owner_is_known() -> None:
    gone = {"ledger": 4, "component": Component.UNKNOWN, "owner": "", "state": LedgerState.GONE, "mzxid": 6}
    table = ledgers({"ledger": 4}, gone, {**gone, "state": LedgerState.UNREADABLE, "mzxid": 7})
    found = OwnerBucket(MemoryStore()).step(table)
    assert found is not None
    assert [LEAK_RULES[int(row["rule"])].id for row in found.rows] == ["deletion.unknown-owner"]


def test_one_that_counts_as_deleted_and_cannot_be_read_is_not_deleted() -> None:
    table = ledgers({"ledger": 4, "state": LedgerState.UNREADABLE}, {"ledger": 9})
    assert rules(table, node(4, 9, dropped=(4,))) == {4: "not-superseded"}


def test_a_ledger_that_counts_as_deleted_and_exists_is_reported() -> None:
    assert rules(ledgers({"ledger": 4}, {"ledger": 9}), node(4, 9, dropped=(4,))) == {4: "dropped"}


@pytest.mark.parametrize(
    "nodes",
    [
        [node(4, 9, dropped=(4,), status=OwnerStatus.UNREADABLE)],
        [node(4, 9, dropped=(4,)), cursor(status=OwnerStatus.UNREADABLE)],
    ],
)
def test_one_that_counts_as_deleted_is_left_alone_while_its_owner_is_unreadable(nodes: list[Pointers]) -> None:
    assert rules(ledgers({"ledger": 4}, {"ledger": 9}), *nodes) == {4: "owner-unreadable"}


def test_one_that_counts_as_deleted_and_is_gone_is_not_missing() -> None:
    assert rules(ledgers({"ledger": 9}), node(4, 9, dropped=(4,))) == {}


def test_a_listed_ledger_that_is_not_there_is_missing() -> None:
    assert rules(NO_LEDGERS, node(4)) == {4: "missing"}


def test_it_is_forgotten_since_the_later_of_both_sides_was_seen() -> None:
    found, _ = judge(ledgers({"ledger": 4, "seen_ms": 1_500}, {"ledger": 9}), nodes_of([node(9, seen_ms=2_500)]))
    assert found["since_ms"].tolist() == [2_500]


@pytest.mark.parametrize(
    ("custom", "claim"),
    [
        ({}, Claim(Component.UNKNOWN)),
        (
            {"application": b"pulsar", "component": b"managed-ledger", "pulsar/managed-ledger": ML.encode()},
            Claim(Component.DATA, ML),
        ),
        (
            {
                "application": b"pulsar",
                "component": b"managed-ledger",
                "pulsar/managed-ledger": ML.encode(),
                "pulsar/cursor": b"a%2Fb",
            },
            Claim(Component.CURSOR, ML, "a%2Fb"),
        ),
        (
            {
                "application": b"pulsar",
                "component": b"compacted-ledger",
                "pulsar/compactedTo": b"\xff",
                "pulsar/compactedTopic": b"persistent://public/default/orders",
            },
            Claim(Component.COMPACTED, ML),
        ),
        (
            {"application": b"pulsar", "component": b"schema", "pulsar/schemaId": b"public/default/orders"},
            Claim(Component.SCHEMA, "schema:public/default/orders"),
        ),
        ({"application": b"pulsar", "component": b"something-new"}, Claim(Component.UNKNOWN)),
        ({"application": b"pulsar", "component": b"managed-ledger"}, Claim(Component.UNKNOWN)),
        (
            {"application": b"pulsar", "component": b"managed-ledger", "pulsar/managed-ledger": b"\xff"},
            Claim(Component.UNKNOWN),
        ),
        (
            {"application": b"pulsar", "component": b"managed-ledger", "pulsar/managed-ledger": b"a\nb"},
            Claim(Component.UNKNOWN),
        ),
    ],
)
def test_custom_metadata_name_the_owner(custom: dict[str, bytes], claim: Claim) -> None:
    assert claim_of(custom) == claim


def test_a_topic_is_encoded_as_java_does() -> None:
    assert managed_ledger("persistent://t/n/a b:c~*") == "t/n/persistent/a+b%3Ac%7E*"


@pytest.mark.parametrize(
    "other", [cursor(4), node(4, path="/schemas/x", owner="schema:x"), node(4, 12)], ids=["cursor", "schema", "list"]
)
@pytest.mark.parametrize("own_bucket", [True, False])
def test_a_ledger_that_a_node_of_another_owner_references_is_no_finding(other: Pointers, own_bucket: bool) -> None:
    foreign = other if other.owner != ML else other._replace(owner="other", path=other.path.replace(ML, "other"))
    here, there = ledgers({"ledger": 4}, {"ledger": 9}), ledgers({"ledger": 12, "owner": "other"})
    mine, others = OwnerBucket(MemoryStore()), OwnerBucket(MemoryStore())
    own = mine.step(here, nodes_of([node(9), *([foreign] if own_bucket else [])]))
    parts = [own, others.step(there, nodes_of([] if own_bucket else [foreign]), asked=True)]
    assert 4 not in [row["ledger"] for part in agreed([part for part in parts if part]) for row in part.rows]


def test_a_ledger_that_another_owner_counts_as_deleted_and_its_own_lists_is_no_finding() -> None:
    other = node(4, dropped=(4,), owner="other", path="/managed-ledgers/other")
    assert rules(ledgers({"ledger": 4}, {"ledger": 9}), node(4, 9), other) == {}


@pytest.mark.parametrize("own_bucket", [True, False])
@pytest.mark.parametrize("own", [node(9), node(4, 9, dropped=(4,))], ids=["forgotten", "dropped"])
def test_what_another_owner_counts_as_deleted_is_no_finding(own: Pointers, own_bucket: bool) -> None:
    other = node(4, dropped=(4,), owner="other", path="/managed-ledgers/other")
    mine, others = OwnerBucket(MemoryStore()), OwnerBucket(MemoryStore())
    found = [
        mine.step(ledgers({"ledger": 4}, {"ledger": 9}), nodes_of([own, *([other] if own_bucket else [])]), asked=True),
        others.step(nodes=nodes_of([] if own_bucket else [other]), asked=True),
    ]
    assert [len(part.rows) for part in agreed([part for part in found if part])] == [0, 0]


def test_a_ledger_that_its_owner_counts_as_deleted_and_another_lists_is_no_finding() -> None:
    other = node(4, owner="other", path="/managed-ledgers/other")
    assert rules(ledgers({"ledger": 4}, {"ledger": 9}), node(4, 9, dropped=(4,)), other) == {}


@pytest.mark.parametrize("batches", [1, 2])
def test_the_references_of_a_node_protect_after_it_became_unreadable(batches: int) -> None:
    other = cursor(4, path="/managed-ledgers/other/sub", owner="other")
    damaged = [other._replace(status=OwnerStatus.UNREADABLE, ledgers=(), mzxid=mzxid) for mzxid in (8, 9)]
    bucket, steps = OwnerBucket(MemoryStore()), [node(9), other, *damaged]
    bucket.step(ledgers({"ledger": 4}, {"ledger": 9}))
    for at in range(batches):
        found = bucket.step(nodes=nodes_of(steps[at::batches]), asked=True)
    assert found is not None
    assert len(found.rows) == 0


def test_what_a_deleted_node_referenced_does_not_protect() -> None:
    other = cursor(4, path="/managed-ledgers/other/sub", owner="other")
    later = [
        other._replace(status=status, ledgers=(), mzxid=mzxid)
        for status, mzxid in ((OwnerStatus.GONE, 8), (OwnerStatus.UNREADABLE, 9))
    ]
    assert rules(ledgers({"ledger": 4}, {"ledger": 9}), node(9), *later) == {4: "forgotten"}


@pytest.mark.parametrize("directory", ["public", "public/default", "public/default/persistent"])
def test_an_owner_in_a_directory_that_may_not_be_read_is_unreadable_and_not_gone(directory: str) -> None:
    closed = node(path=f"/managed-ledgers/{directory}", owner=directory, status=OwnerStatus.UNREADABLE, version=-1)
    other = {"ledger": 5, "owner": f"{directory}s/persistent/orders"}
    assert rules(ledgers({"ledger": 4}, other), closed) == {4: "owner-unreadable", 5: "owner-gone"}


def test_an_owner_that_is_known_in_such_a_directory_is_judged() -> None:
    closed = node(path="/managed-ledgers/public", owner="public", status=OwnerStatus.UNREADABLE, version=-1)
    assert rules(ledgers({"ledger": 4}, {"ledger": 9}), node(9), closed) == {4: "forgotten"}


def test_data_in_a_directory_hide_no_owner() -> None:
    odd = node(path="/managed-ledgers/public", owner="public", status=OwnerStatus.UNREADABLE, version=0)
    assert rules(ledgers({"ledger": 4}), odd) == {4: "owner-gone"}


def test_what_a_node_without_permission_lists_is_not_missing() -> None:
    closed = node(4, status=OwnerStatus.UNREADABLE, version=-1)
    assert rules(NO_LEDGERS, closed) == {}
