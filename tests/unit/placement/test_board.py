from dataclasses import replace

import numpy as np
import pytest

from trueup.state.bookkeeper.marks import HIDDEN, MARK, NO_MARKS
from trueup.state.common.rules import Verdict
from trueup.state.placement.board import LOCKED_MS, Board, FindingAges, plan, riskiest
from trueup.state.placement.lifecycle import Repair, RepairEvent, RepairStage, advance
from trueup.state.placement.repairs import SETTLE_MS, observe, unseen
from trueup.state.placement.rules import RULES
from trueup.state.placement.settings import PlacementSettings
from trueup.state.placement.view import FINDING, NO_FINDINGS, BucketAnswer, Rows

ENFORCE = PlacementSettings(mode="enforce", max_marks=10)
NOW = 1_000_000


def finding(
    ledger: int, rule: str = "placement.too-few-racks", copies: int = 2, racks: int = 1, ctime: int = 0, held: int = 0
) -> Rows:
    code = RULES.code(rule)
    row = (ledger, 1, NOW - 5_000, ctime, 3, 0, copies, racks, RULES[code].verdict, code, held)
    return np.array([row], FINDING)


def board(*findings: Rows, marks: Rows = NO_MARKS) -> Board:
    made = Board()
    made.apply(0, BucketAnswer(1, True, 9, np.concatenate([NO_FINDINGS, *findings])))
    made.marks = marks
    return made


def mark(ledger: int, ctime: int = 77, locked: int = 0) -> Rows:
    return np.array([(ledger, ctime, 0, locked)], MARK)


def marked(ledger: int, ctime: int = 77) -> Repair:
    ordered = advance(Repair(ledger, "r", 3, 0, mark_ctime_ms=ctime), RepairEvent.ORDER, NOW)
    return advance(ordered, RepairEvent.APPEAR, NOW)


def chosen(rows: Rows) -> list[int]:
    return [int(i) for i in rows["ledger"]]


def test_fewest_surviving_copies_go_first_then_racks_then_age():
    rows = np.concatenate(
        [
            finding(1, copies=2, racks=2),
            finding(2, copies=1, racks=2),
            finding(3, copies=1, racks=1, ctime=9),
            finding(4, copies=1, racks=1, ctime=5),
        ]
    )
    assert chosen(riskiest(rows)) == [4, 3, 2, 1]


def resting(ledger: int, rule: str = "placement.too-few-racks", attempts: int = 9) -> Repair:
    """A repair that workers declined, and that waits for a day."""
    return Repair(ledger, rule, 3, 0, RepairStage.DECLINED, NOW, 77, attempts, NOW + 86_400_000)


@pytest.mark.parametrize(
    ("before", "now", "orders"),
    [
        ("placement.too-few-racks", "placement.lost-member", [1]),
        ("placement.lost-member", "placement.lost-member", []),
        ("placement.too-few-racks", "placement.read-only-member", []),
        ("placement.lost-member", "placement.too-few-racks", []),
    ],
)
def test_only_a_member_that_was_lost_later_ends_the_wait_of_a_declined_repair(before: str, now: str, orders: list[int]):
    assert chosen(plan(board(finding(1, now)), {1: resting(1, before)}, ENFORCE, NOW, 99).marks) == orders


def test_of_ledgers_that_workers_failed_to_repair_at_most_every_second_is_ordered():
    tried = {ledger: resting(ledger)._replace(next_ms=NOW) for ledger in (1, 2)}
    drifted = board(finding(1, copies=1), finding(2, copies=1), finding(3), finding(4))
    assert chosen(plan(drifted, tried, replace(ENFORCE, max_marks=3), NOW, 99).marks) == [1, 3, 2]


@pytest.mark.parametrize(
    ("before", "left"),
    [("placement.lost-member", "placement.too-few-racks"), ("placement.too-few-racks", "placement.lost-member")],
)
def test_a_repair_is_declined_for_the_racks_that_are_left_and_not_for_a_member_lost_meanwhile(before: str, left: str):
    repairs = {1: resting(1, before)._replace(stage=RepairStage.STUCK)}
    observe(board(finding(1, left)), repairs, ENFORCE, NOW)
    assert (repairs[1].stage, repairs[1].rule) == (RepairStage.DECLINED, "placement.too-few-racks")


def test_observe_orders_nothing():
    assert len(plan(board(finding(1)), {}, PlacementSettings(), NOW, 99).marks) == 0


def test_enforce_orders_what_drifted():
    assert chosen(plan(board(finding(1)), {}, ENFORCE, NOW, 99).marks) == [1]


def test_blocked_ledgers_are_never_ordered():
    assert chosen(plan(board(finding(1, "placement.cannot-adhere")), {}, ENFORCE, NOW, 99).marks) == []


def test_workers_before_bp_54_get_only_ledgers_that_lost_a_bookie():
    due = plan(board(finding(1, "placement.lost-member"), finding(2)), {}, ENFORCE, NOW, 99, old_workers=True)
    assert (chosen(due.marks), due.waiting) == ([1], {"AutoRecovery of BookKeeper 4.16 or later": 1})


def test_a_held_ledger_waits_for_the_release_and_others_do_not():
    due = plan(board(finding(1, "placement.lost-member", held=1), finding(2)), {}, ENFORCE, NOW, 99)
    assert (chosen(due.marks), due.waiting) == ([2], {"the release of the hold": 1})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (RepairStage.APPROVED, RepairStage.DROPPED),
        (RepairStage.MARKED, RepairStage.LEAVING),
        (RepairStage.WORKING, RepairStage.LEAVING),
        (RepairStage.STUCK, RepairStage.LEAVING),
    ],
)
def test_what_was_under_way_is_taken_back_when_its_ledger_is_held(before: RepairStage, after: RepairStage):
    repair = marked(1)._replace(stage=before, mark_ctime_ms=0 if before is RepairStage.APPROVED else 77)
    seen = board(
        finding(1, "placement.lost-member", held=1), marks=NO_MARKS if before is RepairStage.APPROVED else mark(1)
    )
    assert [(r.stage, r.detail) for r in observe(seen, {1: repair}, ENFORCE, NOW)] == [(after, "a mass loss is held")]


def test_a_marked_ledger_is_not_marked_twice():
    assert chosen(plan(board(finding(1), marks=mark(1)), {}, ENFORCE, NOW, 99).marks) == []


def hidden(ledger: int) -> Rows:
    return np.array([(ledger, -1, HIDDEN, 0)], MARK)


def test_a_ledger_whose_mark_may_not_be_read_is_not_marked():
    assert chosen(plan(board(finding(1), marks=hidden(1)), {}, ENFORCE, NOW, 99).marks) == []


@pytest.mark.parametrize("stage", [RepairStage.MARKED, RepairStage.WORKING, RepairStage.LEAVING, RepairStage.STUCK])
@pytest.mark.parametrize("rows", [[finding(1)], []], ids=["drifted", "true"])
def test_a_repair_whose_mark_may_not_be_read_goes_on(stage: RepairStage, rows: list[Rows]):
    repair = marked(1)._replace(stage=stage)
    assert observe(board(*rows, marks=hidden(1)), {1: repair}, ENFORCE, NOW) == []


def test_a_mark_that_may_not_be_read_is_not_withdrawn():
    repair = marked(1)._replace(stage=RepairStage.LEAVING)
    assert plan(board(finding(1), marks=hidden(1)), {1: repair}, ENFORCE, NOW, 99).withdrawals == ()


def test_a_ledger_that_may_not_be_read_any_more_is_not_marked():
    reported = board(finding(1), finding(2))
    reported.outdated = np.array([1])
    assert chosen(plan(reported, {}, ENFORCE, NOW, 99).marks) == [2]


def others(*rules: str) -> list[Rows]:
    """Findings of these rules, for ledgers 91, 92, ..."""
    return [finding(91 + at, rule) for at, rule in enumerate(rules)]


def ordered_beside(*marked_by_others: Rows, cap: int) -> int:
    """Number of five drifted ledgers that are ordered while other clients have marked these ledgers."""
    mine = [finding(i) for i in range(1, 6)]
    marks = np.concatenate([NO_MARKS, *(mark(int(row["ledger"][0]), ctime=5) for row in marked_by_others)])
    reported = board(*mine, *marked_by_others, marks=marks)
    return len(plan(reported, {}, replace(ENFORCE, max_marks=cap), NOW, 99).marks)


DRIFTED, HOPELESS, BLIND = "placement.too-few-racks", "placement.cannot-adhere", "placement.unreadable"


def test_marks_of_others_count_against_the_cap():
    assert ordered_beside(*others(DRIFTED), cap=4) == 3


def test_marks_of_others_whose_ledger_cannot_be_judged_count():
    assert ordered_beside(*others(BLIND), cap=4) == 3


def test_marks_of_others_take_half_of_the_room_at_most():
    assert ordered_beside(*others(DRIFTED, DRIFTED, DRIFTED), cap=4) == 2


def test_a_mark_of_another_never_starves_a_cap_of_one():
    assert ordered_beside(*others(DRIFTED), cap=1) == 1


def test_marks_that_no_worker_can_satisfy_take_no_room():
    assert ordered_beside(*others(HOPELESS, HOPELESS), cap=4) == 4


def test_our_own_marks_fill_the_cap():
    reported = board(finding(1), finding(2), finding(3), marks=np.concatenate([mark(2), mark(3)]))
    repairs = {2: marked(2), 3: marked(3)}
    assert len(plan(reported, repairs, replace(ENFORCE, max_marks=2), NOW, 99).marks) == 0


def test_orders_not_yet_seen_count_against_the_cap():
    ordered = advance(Repair(8, "r", 3, 0), RepairEvent.ORDER, NOW)
    drifted = board(finding(1), finding(8))
    assert chosen(plan(drifted, {8: ordered}, replace(ENFORCE, max_marks=1), NOW, 99).marks) == []


def test_the_mark_of_a_ledger_that_is_true_again_takes_no_room():
    ordered = advance(Repair(8, "r", 3, 0), RepairEvent.ORDER, NOW)
    assert chosen(plan(board(finding(1)), {8: ordered}, replace(ENFORCE, max_marks=1), NOW, 99).marks) == [1]


def test_an_order_is_not_over_before_its_mark_could_be_seen():
    repairs = {1: advance(Repair(1, "r", 3, 0), RepairEvent.ORDER, NOW)}
    observe(board(), repairs, ENFORCE, NOW + SETTLE_MS - 1)
    assert repairs[1].stage is RepairStage.ORDERED


def test_an_order_that_was_given_up_is_remembered_while_nothing_can_be_done():
    repairs = {1: Repair(1, "r", 3, 0)._replace(stage=RepairStage.DECLINED, mark_ctime_ms=77)}
    blocked = finding(1, "placement.cannot-adhere")
    observe(board(blocked), repairs, ENFORCE, NOW)
    observe(board(blocked, marks=mark(1)), repairs, ENFORCE, NOW)
    assert repairs[1].stage is RepairStage.LEAVING


def test_the_rate_limits_what_is_ordered_at_once():
    due = plan(board(finding(1), finding(2)), {}, ENFORCE, NOW, 1)
    assert (chosen(due.marks), due.waiting) == ([1], {"rate": 1})


def test_approve_waits_for_an_operator():
    due = plan(board(finding(1)), {}, replace(ENFORCE, mode="approve"), NOW, 99)
    assert (chosen(due.marks), due.waiting) == ([], {"approval": 1})


def test_an_approved_ledger_is_ordered():
    approved = advance(Repair(1, "r", 3, 0), RepairEvent.APPROVE, NOW)
    assert chosen(plan(board(finding(1)), {1: approved}, replace(ENFORCE, mode="approve"), NOW, 99).marks) == [1]


def test_an_approval_of_another_version_does_not_count():
    approved = advance(Repair(1, "r", 2, 0), RepairEvent.APPROVE, NOW)
    assert chosen(plan(board(finding(1)), {1: approved}, replace(ENFORCE, mode="approve"), NOW, 99).marks) == []


def test_paused_orders_nothing():
    assert chosen(plan(board(finding(1)), {}, replace(ENFORCE, paused=True), NOW, 99).marks) == []


def test_a_declined_ledger_waits_its_time():
    waiting = Repair(1, "r", 3, 0)._replace(stage=RepairStage.DECLINED, next_ms=NOW + 1)
    assert chosen(plan(board(finding(1)), {1: waiting}, ENFORCE, NOW, 99).marks) == []


@pytest.mark.parametrize(
    ("findings", "marks", "stage"),
    [
        ([finding(1)], mark(1), RepairStage.MARKED),
        ([finding(1)], mark(1, locked=1), RepairStage.WORKING),
        ([finding(1)], NO_MARKS, RepairStage.UNMARKED),
        ([], mark(1), RepairStage.LEAVING),
        ([], NO_MARKS, RepairStage.SAFE),
        ([finding(1, "placement.cannot-adhere")], mark(1), RepairStage.LEAVING),
        ([finding(1, "placement.unreadable")], NO_MARKS, RepairStage.MARKED),
    ],
    ids=["waits", "worker at it", "mark gone", "healed, mark still there", "healed", "no remedy", "blind"],
)
def test_a_marked_repair_becomes(findings: list[Rows], marks: Rows, stage: RepairStage):
    repairs = {1: marked(1)}
    changed = observe(board(*findings, marks=marks), repairs, ENFORCE, NOW)
    assert (changed[-1] if changed else repairs[1]).stage is stage


def copied(ledger: int) -> Rows:
    """A finding that only a copy repairs, where Trueup copies ledgers."""
    found = finding(ledger, "placement.no-walk")
    found["verdict"] = Verdict.DRIFTED
    return found


def test_a_mark_is_withdrawn_where_only_a_copy_helps():
    repairs = {1: marked(1)}
    observe(board(copied(1), marks=mark(1)), repairs, ENFORCE, NOW)
    assert repairs[1].stage is RepairStage.LEAVING


def test_an_approval_of_a_copy_does_not_lapse():
    repairs = {1: advance(Repair(1, "placement.no-walk", 3, 0), RepairEvent.APPROVE, NOW)}
    observe(board(copied(1)), repairs, ENFORCE, NOW)
    assert repairs[1].stage is RepairStage.APPROVED


def test_a_mark_of_somebody_else_is_not_taken_for_ours():
    repairs = {1: marked(1, ctime=77)}
    observe(board(marks=mark(1, ctime=78)), repairs, ENFORCE, NOW)
    assert repairs == {}


FOREIGN = mark(1, ctime=99)
TAKEN_BACK = pytest.mark.parametrize(
    "found",
    [finding(1, "placement.lost-member", held=1), finding(1, "placement.pending-member")],
    ids=["held", "no remedy"],
)


@TAKEN_BACK
def test_a_mark_that_another_writer_changed_is_not_withdrawn(found: Rows):
    repairs, seen = {1: marked(1)}, board(found, marks=FOREIGN)
    observe(seen, repairs, ENFORCE, NOW)
    assert plan(seen, repairs, ENFORCE, NOW, 99).withdrawals == ()


@TAKEN_BACK
def test_a_repair_whose_mark_another_writer_changed_ends(found: Rows):
    repairs, seen = {1: marked(1)}, board(found, marks=FOREIGN)
    observe(seen, repairs, ENFORCE, NOW)
    observe(seen, repairs, ENFORCE, NOW)
    assert repairs == {}


@pytest.mark.parametrize("stage", [RepairStage.LEAVING, RepairStage.STUCK])
@pytest.mark.parametrize(
    "seen", [FOREIGN, np.array([(1, -1, -1, 1)], MARK), NO_MARKS], ids=["of another", "only a lock", "none"]
)
def test_only_a_mark_of_the_repair_is_withdrawn(stage: RepairStage, seen: Rows):
    repair = marked(1)._replace(stage=stage)
    due = plan(board(finding(1, BLIND), marks=seen), {1: repair}, ENFORCE, NOW + LOCKED_MS, 99)
    assert due.withdrawals == ()


def test_an_order_that_was_not_looked_for_is_never_given_up():
    repairs = {1: advance(Repair(1, "r", 3, 0), RepairEvent.ORDER, NOW)}
    observe(board(finding(1)), repairs, ENFORCE, NOW + 100 * SETTLE_MS)
    assert repairs[1].stage is RepairStage.ORDERED


def test_an_order_that_was_looked_for_in_vain_is_given_up():
    repairs = {1: advance(Repair(1, "r", 3, 0), RepairEvent.ORDER, NOW)}
    observe(board(finding(1)), repairs, ENFORCE, NOW + SETTLE_MS, absent=frozenset({1}))
    assert repairs[1].stage is RepairStage.DECLINED


def test_an_order_counts_against_the_cap_until_it_is_given_up():
    ordered = advance(Repair(8, "r", 3, 0), RepairEvent.ORDER, NOW)
    late = NOW + 100 * SETTLE_MS
    assert not len(plan(board(finding(1), finding(8)), {8: ordered}, replace(ENFORCE, max_marks=1), late, 99).marks)


def test_an_order_is_looked_for_once_it_should_have_shown():
    repairs = {1: advance(Repair(1, "r", 3, 0, mark_ctime_ms=77), RepairEvent.ORDER, NOW)}
    drifted = board(finding(1))
    assert [unseen(drifted, repairs, at) for at in (NOW + SETTLE_MS - 1, NOW + SETTLE_MS)] == [[], [1]]


def test_an_order_whose_ledger_is_true_before_its_mark_showed_is_looked_for_at_once():
    repairs = {1: advance(Repair(1, "r", 3, 0, mark_ctime_ms=77), RepairEvent.ORDER, NOW)}
    assert unseen(board(finding(2)), repairs, NOW) == [1]


def test_a_ledger_that_is_true_and_has_no_mark_is_safe_though_its_mark_never_showed():
    repairs = {1: advance(Repair(1, "r", 3, 0, mark_ctime_ms=77), RepairEvent.ORDER, NOW)}
    assert [r.stage for r in observe(board(), repairs, ENFORCE, NOW, absent=frozenset({1}))] == [RepairStage.SAFE]


def test_an_order_that_shows_is_not_looked_for():
    repairs = {1: advance(Repair(1, "r", 3, 0, mark_ctime_ms=77), RepairEvent.ORDER, NOW)}
    assert unseen(board(marks=mark(1)), repairs, NOW + SETTLE_MS) == []


GIVE_UP_MS = int(ENFORCE.give_up_s * 1000)


def tried(*moments: tuple[int, int]) -> Repair:
    """A marked repair whose mark was observed at these times, locked or not."""
    repairs = {1: marked(1)}
    for at, locked in moments:
        observe(board(finding(1), marks=mark(1, locked=locked)), repairs, ENFORCE, at)
    return repairs[1]


def test_a_mark_that_workers_tried_in_vain_for_long_is_stuck():
    assert [tried((NOW, 1), (NOW + wait, 1)).stage for wait in (GIVE_UP_MS - 1, GIVE_UP_MS)] == [
        RepairStage.WORKING,
        RepairStage.STUCK,
    ]


def test_a_worker_that_lets_go_and_begins_again_does_not_begin_anew():
    assert tried((NOW, 1), (NOW + 9_000, 0), (NOW + 9_400, 1), (NOW + GIVE_UP_MS, 0)).stage is RepairStage.STUCK


def test_a_mark_that_waits_for_a_worker_is_not_stuck():
    assert tried((NOW + 100 * GIVE_UP_MS, 0)).stage is RepairStage.MARKED


def test_a_mark_that_is_stuck_is_withdrawn():
    stuck = tried((NOW, 1), (NOW + GIVE_UP_MS, 0))
    held = board(finding(1), marks=mark(1))
    assert plan(held, {1: stuck}, ENFORCE, NOW + GIVE_UP_MS, 99).withdrawals == (stuck,)


def test_a_stuck_ledger_is_tried_again_later():
    repairs = {1: tried((NOW, 1), (NOW + GIVE_UP_MS, 0))}
    observe(board(finding(1)), repairs, ENFORCE, NOW + GIVE_UP_MS)
    wait_ms = int(ENFORCE.decline_retry_s * 1000)
    assert (repairs[1].stage, repairs[1].next_ms) == (RepairStage.DECLINED, NOW + GIVE_UP_MS + wait_ms)


def test_a_new_order_has_its_own_time():
    again = advance(tried((NOW, 1), (NOW + GIVE_UP_MS, 0))._replace(stage=RepairStage.DECLINED), RepairEvent.ORDER, NOW)
    assert again.next_ms == 0


def test_a_mark_that_is_gone_is_given_time_for_the_metadata_to_show():
    repairs = {1: advance(marked(1), RepairEvent.VANISH, NOW)}
    observe(board(finding(1)), repairs, ENFORCE, NOW + SETTLE_MS - 1)
    early = repairs[1].stage
    observe(board(finding(1)), repairs, ENFORCE, NOW + SETTLE_MS)
    assert (early, repairs[1].stage) == (RepairStage.UNMARKED, RepairStage.DECLINED)


def test_a_deleted_ledger_ends_its_repair():
    repairs = {1: marked(1)}
    assert observe(board(), repairs, ENFORCE, NOW, frozenset({1}))[0].stage is RepairStage.DROPPED


def test_a_mark_is_withdrawn_when_no_worker_is_at_it():
    leaving = advance(marked(1), RepairEvent.LAPSE, NOW)
    due = plan(board(marks=mark(1)), {1: leaving}, ENFORCE, NOW, 99)
    assert [r.ledger for r in due.withdrawals] == [1]


def test_a_worker_that_is_at_it_is_given_time_to_take_the_mark_away():
    leaving = advance(marked(1), RepairEvent.LAPSE, NOW)
    held = board(marks=mark(1, locked=1))
    early, late = (plan(held, {1: leaving}, ENFORCE, NOW + wait, 99).withdrawals for wait in (0, LOCKED_MS))
    assert (len(early), len(late)) == (0, 1)


def test_cleared_ledgers_are_reported_with_the_time_they_drifted():
    made = board(finding(1), finding(2))
    cleared = made.apply(0, BucketAnswer(2, True, 9, finding(2)))
    assert (cleared.ledger.tolist(), cleared.since_ms.tolist()) == ([1], [NOW - 5_000])


def test_a_ledger_of_which_nothing_was_known_was_never_wrong():
    cleared = board(finding(1), finding(2, BLIND)).apply(0, BucketAnswer(2, True, 9, NO_FINDINGS))
    assert cleared.wrong.tolist() == [True, False]


def test_the_view_is_complete_when_every_bucket_spoke_for_the_epoch():
    made = board()
    before = made.settled(2, 1)
    made.apply(1, BucketAnswer(1, True, 0, NO_FINDINGS))
    assert (before, made.settled(2, 1), made.settled(2, 2)) == (False, True, False)


def test_a_bucket_that_only_reported_changes_has_not_answered():
    made = Board()
    made.apply(0, BucketAnswer(40, False, -1, finding(1)))
    assert not made.settled(1, 1)


def test_an_approval_that_lapses_leaves_the_memory_of_an_earlier_order():
    repairs = {1: Repair(1, "r", 3, 0)._replace(stage=RepairStage.APPROVED, mark_ctime_ms=77)}
    observe(board(finding(1, "placement.cannot-adhere")), repairs, ENFORCE, NOW)
    assert (repairs[1].stage, repairs[1].mark_ctime_ms) == (RepairStage.DECLINED, 77)


def test_a_mark_that_waits_for_a_worker_is_left_as_it_is():
    repairs = {1: marked(1)}
    assert (observe(board(finding(1), marks=mark(1)), repairs, ENFORCE, NOW), repairs) == ([], {1: marked(1)})


def answered(made: Board, *findings: Rows, full: bool = True) -> None:
    made.apply(0, made.aged(BucketAnswer(1, full, 9, np.concatenate([NO_FINDINGS, *findings]))))


def since(made: Board, ledger: int) -> int | None:
    found = made.finding(ledger)
    return None if found is None else NOW - int(found["since_ms"])


def of_earlier_views(**ages: int) -> Board:
    """Ages in ms by ledger, as L7=..."""
    ledgers = sorted((int(name[1:]), age) for name, age in ages.items())
    return Board(FindingAges(np.array([i for i, _ in ledgers]), np.array([NOW - age for _, age in ledgers])))


def test_a_finding_of_an_earlier_view_keeps_its_age() -> None:
    made = of_earlier_views(L2=90_000, L7=1)
    answered(made, finding(2), finding(7), finding(8))
    assert [since(made, ledger) for ledger in (2, 7, 8)] == [90_000, 5_000, 5_000]


def test_it_keeps_its_age_when_its_ledger_is_judged_again() -> None:
    made = of_earlier_views(L2=90_000)
    answered(made, finding(2))
    made.whole()
    answered(made, finding(2, copies=1), full=False)
    assert since(made, 2) == 90_000


def test_a_finding_after_a_repair_is_a_new_one() -> None:
    made = of_earlier_views(L2=90_000)
    answered(made, finding(2))
    answered(made)
    answered(made, finding(2), full=False)
    assert since(made, 2) == 5_000


def test_an_earlier_finding_that_is_none_in_the_whole_view_is_over() -> None:
    made = of_earlier_views(L2=90_000)
    answered(made)
    made.whole()
    answered(made, finding(2), full=False)
    assert since(made, 2) == 5_000


def test_ages_are_in_the_cleared_ledgers() -> None:
    made = of_earlier_views(L2=90_000)
    answered(made, finding(2))
    cleared = made.apply(0, BucketAnswer(1, True, 9, NO_FINDINGS))
    assert cleared.since_ms.tolist() == [NOW - 90_000]
