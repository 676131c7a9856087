"""Report of unreferenced ledgers: rows, plan, approvals, status."""

from typing import Any

import pytest

from tests.unit.deletion.fake_deletion import MINUTE, NOW, OTHER, OWNER, Loop, node
from trueup.state.deletion.owners import NO_CLAIM, Claim, Component, OwnerStatus
from trueup.streams.deletion.signs import UnreferencedLedgers
from trueup.streams.runtime.approvals import waiting
from trueup.streams.runtime.stream import Filter

FORGOTTEN = {"ledger": 7, "since_ms": NOW - MINUTE}
REPORTED = {"ledger": 9, "rule": "owner-gone", "owner": OTHER, "since_ms": NOW - 2 * MINUTE, "length": 50}
DATA = Claim(Component.DATA, OWNER)


def stages(rows: list[dict[str, Any]]) -> dict[int, str]:
    return {row["ledger"]: row["stage"] for row in rows}


def planned(loop: Loop) -> dict[int, str]:
    return {row.about["ledger"]: row.stage for row in loop.report.plan()}


def test_the_longest_forgotten_stand_first() -> None:
    report = Loop("observe").apply(FORGOTTEN, REPORTED).report
    assert ([row["ledger"] for row in report.rows(10)], [row["ledger"] for row in report.rows(1)]) == ([9, 7], [9])


@pytest.mark.parametrize(("namespace", "chosen"), [("public/default", [7]), ("public/billing", [9]), ("public/x", [])])
def test_unreferenced_ledgers_are_selected_by_namespace(namespace: str, chosen: list[int]) -> None:
    rows = Loop("observe").apply(FORGOTTEN, REPORTED).report.rows(10, namespace)
    assert ([row["ledger"] for row in rows], rows.total) == (chosen, len(chosen))


def test_findings_are_selected_by_namespace_before_the_limit() -> None:
    found, total = (
        Loop("observe").apply(FORGOTTEN, REPORTED).report.findings(Filter(limit=1, namespace="public/default"))
    )
    assert ([one.about["ledger"] for one in found], total) == ([7], 1)


def test_deletions_are_selected_by_namespace() -> None:
    report = Loop("approve").marked(7).report
    assert [len(report.deletions(namespace)) for namespace in ("public/default", "public/billing")] == [1, 0]


def test_a_row_has_owner_rule_and_size() -> None:
    row = Loop("observe").apply(FORGOTTEN).report.rows(10)[0]
    report = ("owner", "rule", "verdict", "component", "state", "bytes", "stage")
    assert [row[name] for name in report] == [
        OWNER,
        "deletion.forgotten",
        "drifted",
        "data",
        "closed",
        100,
        "suspected",
    ]


def test_what_is_only_reported_has_no_stage_and_what_is_missing_no_state() -> None:
    loop = Loop(missing_s=0).lacking(7)
    loop.reconcile()
    row = loop.report.rows(10)[0]
    assert (row["stage"], row["state"]) == ("", "")


@pytest.mark.parametrize("rule", ["missing", "copy-lost"])
def test_a_missing_ledger_is_reported_after_a_delay(rule: str) -> None:
    loop = Loop(missing_s=60).lacking(7, rule=rule)
    loop.reconcile()
    early = loop.report.rows(10), loop.report.status().unreferenced
    loop.reconcile(MINUTE)
    assert (early, [row["rule"] for row in loop.report.rows(10)]) == (([], 0), [f"deletion.{rule}"])


def test_nodes_that_cannot_be_read_are_a_problem() -> None:
    loop = Loop("observe")
    loop.cluster.unread = ["expected permission to read all znodes; found none for 3"]
    assert loop.report.stopped() == loop.cluster.unread


def test_rows_have_the_stage_of_their_deletion() -> None:
    assert stages(Loop("approve").marked(7).report.rows(10)) == {7: "marked"}


def test_in_observe_the_plan_is_what_would_be_begun() -> None:
    loop = Loop("observe").apply(FORGOTTEN, REPORTED)
    assert [(row.id, row.stage) for row in loop.report.plan()] == [("delete-7-v3", "suspected")]


@pytest.mark.parametrize(("mode", "stage"), [("approve", "awaiting approval"), ("enforce", "marked")])
def test_what_is_marked_waits_for_an_operator_where_one_is_asked(mode: str, stage: str) -> None:
    assert planned(Loop(mode).marked(7)) == {7: stage}


def test_deletions_within_the_grace_do_not_wait_for_approval() -> None:
    loop = Loop("approve").apply(FORGOTTEN | {"since_ms": NOW})
    loop.reconcile()
    assert planned(loop) == {7: "suspected"}


def test_what_is_gone_from_metadata_is_in_no_plan_but_among_the_deletions() -> None:
    loop = Loop().marked(7)
    loop.cluster.holding = {"a:1": "no answer"}
    loop.reconcile()
    assert (loop.report.plan(), stages(loop.report.deletions())) == ([], {7: "gone-from-metadata"})


def test_a_plan_names_what_it_was_decided_on() -> None:
    row = Loop("approve").marked(7).report.plan()[0]
    assert (row.kind, row.requirements, row.evidence["owner"], row.reason.split(":")[0]) == (
        "delete",
        {"version": 3},
        OWNER,
        f"100 bytes of {OWNER}",
    )


@pytest.mark.parametrize(
    ("ids", "given"), [(None, [7, 8]), (["delete-8-v3"], [8]), (["delete-8-v2", "repair-7-v3"], []), ([], [])]
)
def test_approvals(ids: list[str] | None, given: list[int]) -> None:
    loop = Loop("approve").marked(7, 8)
    report = [row.about["ledger"] for row in loop.report.approve(waiting(loop.report.plan(), ids))]
    assert (report, [m.ledger for m in loop.deletions.deletions.values() if m.approved]) == (given, given)


def test_what_was_approved_waits_no_more() -> None:
    loop = Loop("approve").marked(7)
    loop.report.approve(waiting(loop.report.plan()))
    assert (planned(loop), waiting(loop.report.plan())) == ({7: "marked"}, [])


def test_the_status_counts_by_namespace_and_rule() -> None:
    loop = Loop("observe").apply(FORGOTTEN, FORGOTTEN | {"ledger": 8}, REPORTED)
    status = loop.report.status()
    assert (status.unreferenced, status.bytes, status.forgotten) == (
        3,
        250,
        [
            UnreferencedLedgers("public/billing", "deletion.owner-gone", 1, 50),
            UnreferencedLedgers("public/default", "deletion.forgotten", 2, 200),
        ],
    )


def test_the_status_counts_in_all_buckets() -> None:
    loop = Loop("observe", buckets=2).apply(FORGOTTEN).apply(FORGOTTEN | {"ledger": 8}, bucket=1)
    assert [(row.ledgers, row.bytes) for row in loop.report.status().forgotten] == [(2, 200)]


def test_a_schema_belongs_to_its_namespace_and_unowned_ledgers_to_none() -> None:
    loop = Loop("observe").apply(
        REPORTED | {"owner": "schema:public/default/x", "rule": "schema"},
        REPORTED | {"ledger": 8, "owner": "", "rule": "unknown-owner"},
    )
    assert [row.namespace for row in loop.report.status().forgotten] == ["", "public/default"]


def test_the_status_counts_deletions_by_stage_with_the_age_of_the_oldest() -> None:
    status = Loop("approve").marked(7, 8).report.status()
    assert (status.deletions, status.oldest_ms, status.complete) == ({"marked": 2}, MINUTE, True)


def test_a_deletion_that_waits_for_approval_is_not_executed() -> None:
    assert Loop("approve").marked(7).report.status().executing_ms is None


def test_a_deletion_is_executed_since_its_metadata_are_gone() -> None:
    loop = Loop().marked(7)
    loop.cluster.holding = {"a:1": "no answer"}
    loop.reconcile()
    loop.reconcile(2 * MINUTE)
    assert loop.report.status().executing_ms == 2 * MINUTE


def test_without_any_there_is_no_oldest() -> None:
    status = Loop().apply().report.status()
    assert (status.oldest_ms, status.forgotten, status.unreferenced) == (None, [], 0)


def test_a_ledger_that_is_forgotten_with_the_nodes_that_do_not_have_it() -> None:
    loop = Loop("approve").marked(7)
    loop.cluster.pointers = [
        node(8, 9),
        node(path="p/sub", name="sub", status=OwnerStatus.UNREADABLE, error="p/sub: byte 3"),
    ]
    report = loop.report.ledger(7, DATA)
    nodes = [(n["status"], n["points"], n["highest"], n["error"]) for n in report["nodes"]]
    assert (report["rule"], report["since_ms"], report["deletion"]["stage"], nodes) == (
        "deletion.forgotten",
        NOW,
        "marked",
        [("readable", False, 9, ""), ("unreadable", False, None, "p/sub: byte 3")],
    )


def test_a_ledger_that_is_in_use_with_the_node_that_points_to_it() -> None:
    loop = Loop().apply()
    loop.cluster.pointers = [node(7, 8)]
    report = loop.report.ledger(7, DATA)
    assert (report["rule"], report["since_ms"], report["deletion"], report["nodes"][0]["points"]) == (
        "",
        None,
        None,
        True,
    )


def test_for_a_ledger_without_an_owner_no_node_is_read() -> None:
    loop = Loop().apply()
    loop.cluster.pointers = [node(owner="")]
    assert loop.report.ledger(7, NO_CLAIM)["nodes"] == []


@pytest.mark.parametrize(
    ("synced", "problem", "epoch", "says"),
    [
        (True, "", 5, []),
        (True, "", 4, ["the deletion view is not complete yet"]),
        (False, "", 5, ["owners of ledgers: not all read yet"]),
        (False, "no right", 4, ["owners of ledgers: no right"]),
    ],
)
def test_the_reasons_for_not_being_ready(synced: bool, problem: str, epoch: int, says: list[str]) -> None:
    loop = Loop().apply(epoch=epoch)
    loop.cluster.synced, loop.cluster.problem = synced, problem
    assert loop.report.not_ready() == says


@pytest.mark.parametrize(("mode", "says"), [("observe", []), ("enforce", ["deletions are blocked: no INSTANCEID"])])
def test_why_nothing_is_deleted_though_it_should_be(mode: str, says: list[str]) -> None:
    loop = Loop(mode).apply()
    loop.cluster.problem = "no INSTANCEID"
    loop.reconcile()
    assert loop.report.stopped() == says


@pytest.mark.parametrize(
    ("synced", "problem", "after_ms", "state"),
    [(True, "", 0, "up"), (True, "", 5_000, "slow"), (False, "", 0, "slow"), (False, "no right", 0, "down")],
)
def test_the_state_of_the_source_owners(synced: bool, problem: str, after_ms: int, state: str) -> None:
    loop = Loop()
    loop.cluster.synced, loop.cluster.problem = synced, problem
    assert [(one.name, one.state) for one in loop.report.sources(NOW + after_ms)] == [("owners", state)]
