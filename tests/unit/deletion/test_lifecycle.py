"""State transitions of a deletion by observation, time and result."""

import pytest

from trueup.state.common.errors import Refused
from trueup.state.common.lifecycle import diagram
from trueup.state.deletion.lifecycle import (
    ENDS,
    TRANSITIONS,
    Deletion,
    DeletionEvent,
    DeletionEvidence,
    DeletionStage,
    advance,
    again,
    answered,
    due,
    executing_since,
    observed,
    unconfirmed,
)

GRACE, RETRY = 10_000, 1_000
RULE = "deletion.forgotten"
OWNER = "t/n/persistent/x"
STILL = DeletionEvidence(True, RULE, 3, OWNER)


def deletion(stage: DeletionStage = DeletionStage.SUSPECTED, **more: object) -> Deletion:
    made = Deletion(7, RULE, OWNER, 3, 1, 100, 50_000, stage, 50_000, bookies=("a:1", "b:1"))
    return made._replace(**more)  # type: ignore[arg-type]


def after(found: Deletion, seen: DeletionEvidence, now_ms: int) -> DeletionStage:
    return observed(found, seen, GRACE, RETRY, now_ms).stage


def test_it_is_marked_when_the_grace_is_over() -> None:
    assert [after(deletion(), STILL, at) for at in (59_999, 60_000)] == [DeletionStage.SUSPECTED, DeletionStage.MARKED]


def test_however_short_the_grace_there_is_a_second_look() -> None:
    found = [observed(deletion(), STILL, 0, RETRY, at).stage for at in (50_000, 50_001)]
    assert found == [DeletionStage.SUSPECTED, DeletionStage.MARKED]


@pytest.mark.parametrize("stage", [DeletionStage.SUSPECTED, DeletionStage.MARKED, DeletionStage.BLOCKED])
@pytest.mark.parametrize(
    "seen",
    [
        DeletionEvidence(True),
        STILL._replace(version=4),
        STILL._replace(rule="deletion.dropped"),
        STILL._replace(owner="t/n/persistent/y"),
    ],
)
def test_what_is_pointed_to_again_or_was_changed_is_let_go(stage: DeletionStage, seen: DeletionEvidence) -> None:
    assert after(deletion(stage), seen, 60_000) is DeletionStage.WITHDRAWN


def test_what_changed_while_it_was_being_deleted_is_blocked() -> None:
    assert after(deletion(DeletionStage.DELETING), DeletionEvidence(True), 60_000) is DeletionStage.BLOCKED


@pytest.mark.parametrize("stage", [s for s in DeletionStage if s not in ENDS])
def test_a_missing_ledger_is_gone_whatever_deleted_it(stage: DeletionStage) -> None:
    assert after(deletion(stage), DeletionEvidence(False), 60_000) is DeletionStage.GONE


def test_an_order_with_an_unknown_outcome_is_retried() -> None:
    found = deletion(DeletionStage.DELETING)
    assert [after(found, STILL, at) for at in (79_999, 80_000)] == [DeletionStage.DELETING, DeletionStage.MARKED]


def test_an_order_that_failed_waits_longer_each_time() -> None:
    once = again(deletion(DeletionStage.MARKED), 0, RETRY)
    assert [again(once, 0, RETRY).next_ms, again(again(once, 0, RETRY), 0, RETRY).next_ms] == [2_000, 4_000]


def test_it_never_waits_longer_than_an_hour() -> None:
    assert again(deletion(attempts=40), 0, RETRY).next_ms == 3_600_000


def test_what_is_gone_has_all_its_bookies_to_ask() -> None:
    assert advance(deletion(DeletionStage.DELETING), DeletionEvent.DONE, 1).pending == ("a:1", "b:1")


def test_it_is_confirmed_when_no_bookie_is_left() -> None:
    gone = deletion(DeletionStage.GONE, pending=("a:1", "b:1"))
    assert [answered(gone, left, 0, 1).stage for left in (("a:1",), ())] == [
        DeletionStage.GONE,
        DeletionStage.CONFIRMED,
    ]


def test_only_bookies_that_are_left_are_asked_again() -> None:
    assert answered(deletion(DeletionStage.GONE, pending=("a:1", "b:1")), ("b:1",), 0, 1).pending == ("b:1",)


def test_a_deleted_ledger_that_is_back_is_blocked() -> None:
    assert after(deletion(DeletionStage.GONE), STILL, 80_000) is DeletionStage.BLOCKED


@pytest.mark.parametrize(("mode", "ledgers"), [("observe", []), ("approve", [8]), ("enforce", [7, 8])])
def test_the_mode_decides_what_is_due(mode: str, ledgers: list[int]) -> None:
    marked = [deletion(DeletionStage.MARKED), deletion(DeletionStage.MARKED, ledger=8, approved=True)]
    assert [m.ledger for m in due(marked, mode, 10, 60_000)] == ledgers


def test_the_longest_forgotten_goes_first() -> None:
    marked = [deletion(DeletionStage.MARKED, ledger=8), deletion(DeletionStage.MARKED, ledger=9, since_ms=1)]
    assert [m.ledger for m in due(marked, "enforce", 1, 60_000)] == [9]


@pytest.mark.parametrize("stage", [s for s in DeletionStage if s is not DeletionStage.MARKED])
def test_nothing_else_is_ever_due(stage: DeletionStage) -> None:
    assert due([deletion(stage, approved=True)], "enforce", 10, 60_000) == []


def test_what_waits_is_neither_deleted_nor_asked_for() -> None:
    waiting = [deletion(stage, next_ms=60_001) for stage in (DeletionStage.MARKED, DeletionStage.GONE)]
    assert (due(waiting, "enforce", 10, 60_000), unconfirmed(waiting, 60_000)) == ([], [])


def test_an_event_that_a_stage_does_not_know_is_refused() -> None:
    with pytest.raises(Refused, match="expected an event permitted in stage suspected; found confirm"):
        advance(deletion(), DeletionEvent.CONFIRM, 1)


def test_every_stage_is_reached_and_every_end_ends() -> None:
    reached = set(TRANSITIONS.values()) | {DeletionStage.SUSPECTED}
    assert (reached, {before for before, _ in TRANSITIONS} & ENDS) == (set(DeletionStage), set())


def test_the_diagram_names_every_step() -> None:
    assert diagram(TRANSITIONS, ENDS, DeletionStage.SUSPECTED).count("-->") == len(TRANSITIONS) + len(ENDS) + 1


S = DeletionStage


@pytest.mark.parametrize(
    ("stage", "more", "since_ms"),
    [
        (S.SUSPECTED, {}, None),
        (S.MARKED, {}, None),
        (S.MARKED, {"attempts": 1, "next_ms": 70_000}, None),  # its retry waits for an approval or its turn
        (S.MARKED, {"attempts": 1, "next_ms": 70_001}, 50_000),
        (S.DELETING, {}, 50_000),
        (S.BLOCKED, {}, 50_000),
        (S.BLOCKED, {"attempts": 3}, 47_000),  # it waited for one second and for two between its attempts
        (S.GONE, {"attempts": 9}, 50_000),  # bookies are queried again without a transition
    ],
)
def test_a_deletion_is_executed_since_its_first_failure_or_since_its_metadata_are_gone(
    stage: DeletionStage, more: dict[str, int], since_ms: int | None
) -> None:
    assert executing_since(deletion(stage, **more), RETRY, 70_000) == since_ms
