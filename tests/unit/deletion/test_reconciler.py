"""The deletion reconciler: its steps, their order, and the conditions that block it."""

from collections.abc import Sequence

import pytest

from tests.unit.deletion.fake_deletion import MINUTE, NOW, OTHER, Loop, leaks, stages
from trueup.state.common.errors import Retry
from trueup.state.deletion.lifecycle import Deletion, DeletionStage
from trueup.streams.deletion.target import DeletionResult

ONE = {"ledger": 7}
COPIED = {"ledger": 7, "rule": "dropped"}


def test_what_is_forgotten_is_marked_deleted_and_confirmed_in_time() -> None:
    loop = Loop().apply(ONE)
    seen = [loop.reconcile().get(7), loop.reconcile(MINUTE - 1).get(7)]
    loop.reconcile(1)
    assert (seen, [row.outcome for row in loop.deletions.history.rows()]) == (
        [DeletionStage.SUSPECTED, DeletionStage.SUSPECTED],
        ["suspected", "marked", "deleting", "gone-from-metadata", "confirmed"],
    )


def test_every_stage_is_on_the_journal_before_what_it_allows() -> None:
    loop = Loop().marked(7)
    before = len(loop.journal.puts)
    loop.reconcile()
    assert stages(loop.journal)[before:] == [["deleting"], ["gone-from-metadata"], [None]]


def test_each_step_is_counted_with_its_bytes_and_time() -> None:
    loop = Loop().marked(7)
    assert loop.counted == [("suspected", 100, 0.0), ("marked", 100, 60.0)]


@pytest.mark.parametrize("problem", ["owners of ledgers: not synchronized yet", "expected INSTANCEID x; found y"])
def test_a_blocked_reason_stops_everything(problem: str) -> None:
    loop = Loop().marked(7)
    loop.cluster.problem = problem
    loop.reconcile(MINUTE)
    assert (loop.cluster.orders, loop.deletions.blocked_reason) == ([], problem)


def test_in_observe_nothing_is_begun() -> None:
    loop = Loop("observe").apply(ONE)
    assert (loop.reconcile(), loop.reconcile(MINUTE), loop.journal.taken) == ({}, {}, {})


def test_what_was_marked_is_not_deleted_after_a_return_to_observe() -> None:
    loop = Loop().marked(7)
    loop.change(mode="observe")
    assert (loop.reconcile(MINUTE), loop.cluster.orders) == ({7: DeletionStage.MARKED}, [])


def test_what_is_gone_is_confirmed_in_observe_and_while_paused_too() -> None:
    loop = Loop().marked(7)
    loop.cluster.holding = {"a:1": "still serves it"}
    loop.reconcile()
    loop.change(mode="observe", paused=True)
    loop.cluster.holding = {}
    assert loop.reconcile(MINUTE) == {}


def test_in_approve_only_what_was_approved_is_deleted() -> None:
    loop = Loop("approve").marked(7, 8)
    loop.deletions.approve([8])
    loop.reconcile()
    assert loop.cluster.orders == [8]


def test_only_what_is_marked_can_be_approved() -> None:
    loop = Loop("approve").apply(ONE)
    loop.reconcile()
    assert loop.deletions.approve([7]) == []


def test_an_approval_that_the_journal_did_not_take_is_none() -> None:
    loop = Loop("approve").marked(7)
    loop.journal.down = True
    with pytest.raises(Retry):
        loop.deletions.approve([7])
    loop.journal.down = False
    loop.reconcile()
    assert not next(iter(loop.begun().deletions.values())).approved


def test_no_more_are_deleted_than_the_rate_allows() -> None:
    loop = Loop(deletes_per_s=2).marked(*range(10))
    counts = []
    for after_ms in (0, 0, 1000, 500, 10_000):
        loop.reconcile(after_ms)
        counts.append(len(loop.cluster.orders))
    assert counts == [2, 2, 4, 5, 7]


def test_the_longest_forgotten_are_begun_first_and_no_more_than_may_be() -> None:
    loop = Loop(max_deletions=2)
    loop.apply(*({"ledger": 7 + n, "since_ms": NOW - n} for n in range(3)))
    assert set(loop.reconcile()) == {8, 9}


def test_one_that_a_node_of_another_bucket_points_to_is_not_begun() -> None:
    loop = Loop(buckets=2).apply(ONE).apply({"ledger": 7, "rule": "missing", "version": -1, "owner": OTHER}, bucket=1)
    loop.cluster.versions = {7: 3}
    assert (loop.reconcile(MINUTE), list(loop.deletions.forgotten())) == ({}, [])


def test_a_ledger_that_another_topic_referenced_until_now_is_kept_for_the_grace_period() -> None:
    loop = Loop(buckets=2).apply({"ledger": 4, "since_ms": NOW - 10 * MINUTE})
    other = {"ledger": 4, "rule": "missing", "version": -1, "owner": OTHER}
    loop.deletions.apply(1, 5, leaks(other))
    loop.reconcile()
    loop.deletions.apply(1, -1, leaks())
    stages = [loop.reconcile(after_ms).get(4) for after_ms in (0, 1, MINUTE - 2, 1)]
    assert (stages[:3], loop.cluster.orders) == ([DeletionStage.SUSPECTED] * 3, [4])


def test_a_ledger_that_a_topic_of_its_bucket_referenced_until_now_is_kept_for_the_grace_period() -> None:
    loop = Loop().apply()
    loop.reconcile()
    loop.apply({"ledger": 4, "since_ms": NOW - 10 * MINUTE})
    stages = [loop.reconcile(after_ms).get(4) for after_ms in (0, 1, MINUTE - 2, 1)]
    assert (stages[:3], loop.cluster.orders) == ([DeletionStage.SUSPECTED] * 3, [4])


def test_what_is_unreferenced_in_the_first_complete_view_keeps_its_time() -> None:
    loop = Loop(buckets=2).apply(bucket=0).apply({"ledger": 4, "since_ms": NOW - 10 * MINUTE}, bucket=1)
    loop.reconcile()
    loop.reconcile(1)
    assert loop.cluster.orders == [4]


def test_after_a_loss_of_the_view_the_times_of_the_next_complete_one_count() -> None:
    loop = Loop().apply()
    loop.reconcile()
    loop.deletions.lose_view()
    loop.apply({"ledger": 4, "since_ms": NOW - 10 * MINUTE}).reconcile()
    loop.reconcile(1)
    assert loop.cluster.orders == [4]


def test_a_ledger_that_was_referenced_while_deletions_were_blocked_is_kept_for_the_grace_period() -> None:
    loop = Loop().marked(7)
    loop.cluster.problem = "not synchronized yet"
    loop.reconcile()
    loop.apply().apply(ONE)
    loop.cluster.problem = ""
    for after_ms in (1, 1, MINUTE - 3):
        loop.reconcile(after_ms)
    assert (loop.deletions.deletions[7].stage, loop.cluster.orders) == (DeletionStage.SUSPECTED, [])


def test_a_ledger_is_listed_as_unreferenced_since_it_entered_the_view() -> None:
    loop = Loop().apply()
    loop.reconcile(MINUTE)
    loop.apply({"ledger": 4, "since_ms": NOW - 10 * MINUTE})
    assert [row["since_ms"] for row in loop.report.rows(1)] == [NOW + MINUTE]


def test_an_unknown_state_of_the_cluster_is_a_blocked_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost() -> str:
        raise Retry("a response from ZooKeeper", "none", "again")

    loop = Loop().marked(7)
    monkeypatch.setattr(loop.cluster, "blocked_reason", lost)
    loop.reconcile()
    assert (loop.deletions.blocked_reason, loop.cluster.orders) == (
        "expected a response from ZooKeeper; found none; again",
        [],
    )


def test_what_is_only_reported_is_never_begun() -> None:
    loop = Loop().apply({"ledger": 7, "rule": "owner-gone"}, {"ledger": 8, "rule": "not-superseded"})
    assert loop.reconcile(MINUTE) == {}


def test_one_that_changed_since_the_view_saw_it_is_not_begun() -> None:
    loop = Loop().apply(ONE)
    loop.cluster.versions[7] = 4
    assert loop.reconcile() == {}


def test_one_that_is_pointed_to_again_is_let_go() -> None:
    loop = Loop().marked(7).apply()
    assert (loop.reconcile(), stages(loop.journal)[-1], loop.cluster.orders) == ({}, [None], [])


def test_one_that_somebody_else_deleted_is_confirmed_too() -> None:
    loop = Loop("approve").marked(7).apply()
    loop.cluster.versions.clear()
    loop.reconcile()
    assert loop.cluster.asked == [{7: ("a:1", "b:1")}]


def test_only_bookies_without_confirmation_are_queried_again() -> None:
    loop = Loop().marked(7)
    loop.cluster.holding = {"b:1": "no answer"}
    loop.reconcile()
    pending = loop.deletions.deletions[7]
    loop.reconcile(MINUTE)
    assert (pending.pending, pending.detail, loop.cluster.asked[1]) == (("b:1",), "b:1: no answer", {7: ("b:1",)})


@pytest.mark.parametrize(
    ("outcome", "stage"),
    [
        ("gone", None),
        ("refused", DeletionStage.BLOCKED),
        ("retry", DeletionStage.MARKED),
        ("unknown", DeletionStage.DELETING),
    ],
)
def test_what_an_answer_means(outcome: str, stage: DeletionStage | None) -> None:
    loop = Loop().marked(7)
    loop.cluster.outcome = outcome
    assert loop.reconcile().get(7) is stage


@pytest.mark.parametrize("outcome", ["retry", "refused"])
def test_each_wait_after_a_deletion_in_vain_is_twice_the_one_before(outcome: str) -> None:
    loop, orders = Loop(retry_s=1).marked(7), list[int]()
    loop.cluster.outcome, begun_ms = outcome, loop.now_ms
    for _ in range(20):
        before = len(loop.cluster.orders)
        loop.reconcile()
        orders += [(loop.now_ms - begun_ms) // 1000] * (len(loop.cluster.orders) - before)
        loop.now_ms += 1000
    assert orders == [0, 1, 3, 7, 15]


def test_an_order_whose_answer_was_lost_is_looked_at_before_it_is_tried_again() -> None:
    loop = Loop().marked(7)
    loop.cluster.outcome = "unknown"
    stages = [loop.reconcile(after_ms).get(7) for after_ms in (0, 29_999, 1)]
    assert (stages, loop.cluster.orders) == (
        [DeletionStage.DELETING, DeletionStage.DELETING, DeletionStage.MARKED],
        [7],
    )


def test_a_journal_that_takes_nothing_stops_it_before_the_order() -> None:
    loop = Loop().marked(7)
    loop.journal.down = True
    assert (loop.reconcile(), loop.cluster.orders) == ({7: DeletionStage.MARKED}, [])
    assert loop.deletions.blocked_reason.startswith("expected acknowledged records")


def test_after_a_restart_it_goes_on_from_the_journal() -> None:
    loop = Loop().marked(7, 8)
    again = loop.begun()
    assert again.deletions == loop.deletions.deletions


@pytest.mark.parametrize(("first_epoch", "epochs"), [(None, [5, 5]), (5, [5]), (5, [5, 4]), (5, [5, -1])])
def test_until_every_bucket_answered_in_this_run_nothing_is_done(first_epoch: int | None, epochs: list[int]) -> None:
    loop = Loop(buckets=2)
    loop.first_epoch = first_epoch
    for bucket, epoch in enumerate(epochs):
        loop.apply({"ledger": bucket}, bucket=bucket, epoch=epoch)
    assert (loop.reconcile(), loop.deletions.complete, loop.deletions.blocked_reason) == (
        {},
        False,
        "the view is not complete yet",
    )


def test_an_unrequested_report_of_a_bucket_does_not_retract_its_answer() -> None:
    loop = Loop().apply(ONE)
    assert loop.apply(ONE, epoch=-1).deletions.complete


def test_the_history_forgets_nothing_of_what_goes_on() -> None:
    loop = Loop().marked(7)
    assert [(row.id, row.kind, row.outcome) for row in loop.deletions.history.rows()] == [
        ("delete-7-v3", "deletion", "suspected"),
        ("delete-7-v3", "deletion", "marked"),
    ]


def test_what_rests_on_a_copy_is_marked_once_that_is_verified() -> None:
    loop = Loop("approve").apply(COPIED)
    first = loop.reconcile(), list(loop.cluster.checked)
    assert (first, loop.reconcile(MINUTE), loop.cluster.checked) == (
        ({7: DeletionStage.SUSPECTED}, []),
        {7: DeletionStage.MARKED},
        [7],
    )


def test_what_rests_on_no_copy_is_not_looked_at_before() -> None:
    assert Loop("approve").marked(7).cluster.checked == []


@pytest.mark.parametrize("result", ["refused", "retry"])
def test_an_unverified_offload_blocks_with_a_reason_and_is_retried_with_back_off(result: str) -> None:
    loop, looks = Loop(retry_s=1).apply(COPIED), list[int]()
    loop.cluster.checks[7] = result
    loop.reconcile()
    for second in range(20):
        before = len(loop.cluster.checked)
        loop.reconcile(MINUTE if not second else 1000)
        looks += [second] * (len(loop.cluster.checked) - before)
    deletion = loop.deletions.deletions[7]
    assert (looks, deletion.stage, deletion.detail, loop.cluster.orders) == (
        [0, 1, 3, 7, 15],
        DeletionStage.BLOCKED,
        "so it is",
        [],
    )


def test_once_the_copy_is_there_what_was_blocked_goes() -> None:
    loop = Loop().apply(COPIED)
    loop.cluster.checks[7] = "refused"
    loop.reconcile()
    loop.reconcile(MINUTE)
    loop.cluster.checks.clear()
    loop.reconcile(MINUTE)
    assert loop.cluster.orders == [7]


def test_one_that_is_gone_when_it_is_looked_at_is_left_to_the_view() -> None:
    loop = Loop().apply(COPIED)
    loop.cluster.checks[7] = "gone"
    loop.reconcile()
    assert (loop.reconcile(MINUTE), loop.cluster.orders) == ({7: DeletionStage.SUSPECTED}, [])


def test_the_offloads_verified_in_a_pass_are_limited() -> None:
    loop = Loop("approve").apply(*({**COPIED, "ledger": ledger} for ledger in range(30)))
    loop.reconcile()
    counts = []
    for _ in range(2):
        loop.reconcile(MINUTE)
        counts.append(len(loop.cluster.checked))
    assert counts == [20, 30]


def test_a_long_pass_leaves_the_other_offloads_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop("approve")

    def slow(deletions: Sequence[Deletion]) -> list[DeletionResult]:
        loop.now_ms += 6_000
        return [DeletionResult(deletion.ledger, "ready", "") for deletion in deletions]

    monkeypatch.setattr(loop.deletions, "_check", slow)
    loop.apply(COPIED, {**COPIED, "ledger": 8})
    loop.reconcile()
    assert [sorted(loop.reconcile(MINUTE).values()) for _ in range(2)] == [
        ["marked", "suspected"],
        ["marked", "marked"],
    ]


def test_one_that_its_owner_took_off_the_list_meanwhile_is_begun_anew_for_that_reason() -> None:
    loop = Loop("approve").apply(COPIED)
    loop.reconcile()
    loop.apply(ONE)
    loop.reconcile(MINUTE)
    loop.reconcile()
    assert {deletion.rule for deletion in loop.deletions.deletions.values()} == {"deletion.forgotten"}


def test_owners_without_a_node_are_sought_once() -> None:
    loop = Loop().apply({"ledger": 7, "rule": "owner-gone", "owner": OTHER}, {"ledger": 8, "rule": "forgotten"})
    loop.reconcile()
    loop.reconcile()
    assert loop.cluster.sought == [OTHER]


def test_an_owner_is_sought_although_deletions_are_blocked() -> None:
    loop = Loop().apply({"ledger": 7, "rule": "owner-gone", "owner": OTHER})
    loop.cluster.problem = "not exclusive"
    loop.reconcile()
    assert loop.cluster.sought == [OTHER]


def test_a_missing_ledger_that_exists_and_cannot_be_read_is_no_finding_until_it_is_absent() -> None:
    loop = Loop(missing_s=0).lacking(7)
    loop.cluster.versions = {7: 3}
    loop.reconcile()
    early = [row["ledger"] for row, *_ in loop.deletions.forgotten()]
    loop.cluster.versions = {}
    loop.reconcile(MINUTE)
    assert (early, [row["ledger"] for row, *_ in loop.deletions.forgotten()]) == ([], [7])
