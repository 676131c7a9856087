"""Findings and changes from one or several observations."""

import pytest

from tests.unit.read_priority.read_views import (
    ABSENT,
    CHOSEN,
    FIRST,
    GONE,
    LAST,
    NOW,
    UNKNOWN,
    WHOLE,
    copies,
    seen,
    topic,
)
from trueup.state.common.errors import Refused
from trueup.state.read_priority.copies import CopyState, LedgerCopies, stored
from trueup.state.read_priority.lifecycle import (
    EFFECT_MS,
    REST_MS,
    Change,
    ChangeEvent,
    ChangeStage,
    PriorityState,
    Purpose,
    Switch,
    advance,
)
from trueup.state.read_priority.plan import PassResult, decide
from trueup.state.read_priority.policies import Level
from trueup.state.read_priority.settings import Declared
from trueup.state.read_priority.tiers import ReadPriority
from trueup.state.read_priority.view import PriorityObservation, TopicView

GOOD, NO_TIERED, NO_BOOKKEEPER = copies(1, WHOLE, WHOLE), copies(2, WHOLE, GONE), copies(3, GONE, WHOLE)
DROPPED, OPEN_ONLY = copies(4, GONE, WHOLE, dropped=True), copies(5, WHOLE, ABSENT)


def looks(*views: PriorityObservation, kept: dict[str, PriorityState] | None = None) -> PassResult:
    """The decision after several passes."""
    found = PassResult((), (), kept or {})
    for view in views:
        found = decide(view, found.kept, CHOSEN)
    return found


def rules(found: PassResult) -> list[str]:
    return [one.rule for one in found.findings]


def due(found: PassResult) -> list[str]:
    return [change.id for change in found.due]


@pytest.mark.parametrize(
    ("ledgers", "expected"),
    [
        ((GOOD, DROPPED, OPEN_ONLY), []),
        ((GOOD, NO_TIERED), ["read_priority.would-stall"]),
        ((NO_BOOKKEEPER,), []),
        ((NO_TIERED, NO_BOOKKEEPER), ["read_priority.no-priority"]),
        ((NO_TIERED, DROPPED), ["read_priority.would-stall"]),
        ((copies(6, GONE, GONE, dropped=True),), ["read_priority.lost"]),
        ((copies(6, GONE, ABSENT),), ["read_priority.lost"]),
        ((copies(6, GONE, GONE), NO_TIERED), ["read_priority.lost", "read_priority.would-stall"]),
        ((copies(6, UNKNOWN, GONE),), ["read_priority.unknown"]),
        ((copies(6, WHOLE, UNKNOWN),), ["read_priority.unknown"]),
    ],
)
def test_a_topic_is_judged_by_the_copies_that_brokers_open(
    ledgers: tuple[LedgerCopies, ...], expected: list[str]
) -> None:
    assert rules(looks(seen([topic(*ledgers)]))) == expected


def test_the_reason_names_ledger_tier_and_state() -> None:
    (found,) = looks(seen([topic(NO_TIERED)])).findings
    assert "ledger 2 is gone in tiered (t)" in found.reason


def test_a_topic_is_switched_after_enough_consecutive_looks() -> None:
    stalls = seen([topic(GOOD, NO_TIERED)])
    assert due(looks(stalls)) == []
    assert due(looks(stalls, stalls)) == ["switch/t/n/a/bookkeeper-first"]
    assert due(looks(stalls, seen([topic(GOOD)]), stalls)) == []


@pytest.mark.parametrize(
    "between", [seen([topic(NO_TIERED)], problem="silent"), seen([topic(NO_TIERED)._replace(policy=None)])]
)
def test_a_look_that_knows_too_little_begins_the_count_anew(between: PriorityObservation) -> None:
    stalls = seen([topic(NO_TIERED)])
    found = looks(stalls, between)
    assert (rules(found)[-1], due(found), due(looks(stalls, between, stalls))) == ("read_priority.unknown", [], [])


def test_a_look_with_older_checks_does_not_count() -> None:
    old = seen([topic(copies(2, WHOLE, GONE, at_ms=NOW - 1))])
    assert due(looks(old, old, old)) == []


def test_nothing_is_switched_that_has_no_better_priority() -> None:
    both = seen([topic(NO_TIERED, NO_BOOKKEEPER)])
    assert due(looks(both, both, both)) == []


def test_an_unmanaged_topic_is_left_alone() -> None:
    view = topic(NO_TIERED)._replace(declared=None)
    assert looks(seen([view]), seen([view]), seen([view])) == PassResult((), (), {"t/n/a": PriorityState(stalls=3)})


def test_the_declared_priority_of_a_namespace_is_set() -> None:
    found = looks(seen([topic(GOOD)], namespace=FIRST))
    assert (rules(found), due(found)) == (["read_priority.differs"], ["declare/t/n/tiered-storage-first"])


@pytest.mark.parametrize("copy", [NO_TIERED, copies(2, WHOLE, UNKNOWN)])
def test_a_priority_is_not_set_that_would_stall_a_topic(copy: LedgerCopies) -> None:
    found = looks(seen([topic(GOOD, copy)], namespace=FIRST))
    assert (rules(found), due(found)) == (["read_priority.not-ready", "read_priority.differs"], [])


def test_a_topic_with_its_own_priority_does_not_hold_up_its_namespace() -> None:
    found = looks(seen([topic(NO_TIERED, own=FIRST)], namespace=FIRST))
    assert due(found) == ["declare/t/n/tiered-storage-first"]


def test_a_namespace_without_a_policy_needs_a_topic_that_shows_what_it_inherits() -> None:
    alone = seen([topic(GOOD, own=LAST)], namespace=None)._replace(
        brokers=(seen([]).brokers[0]._replace(priority=FIRST),)
    )
    assert (rules(looks(alone))[:1], due(looks(alone))) == (["read_priority.not-ready"], [])


def test_a_topic_that_masks_its_namespace_is_reported_only() -> None:
    found = looks(seen([topic(GOOD, own=FIRST)]))
    assert (rules(found), due(found)) == (["read_priority.masked"], [])


def test_a_topic_with_a_declaration_of_its_own_is_set() -> None:
    own = Declared(FIRST, Level.TOPIC, "t/n/a")
    found = looks(seen([topic(GOOD, declared=own)]))
    assert (rules(found), due(found)) == (["read_priority.differs"], ["declare/t/n/a/bookkeeper-first"])


SWITCHED = PriorityState(switch=Switch(None, FIRST, NOW, "made"))


def switched(*ledgers: LedgerCopies, at_s: float = 0) -> PriorityObservation:
    ledgers = tuple(
        copies(one.info.ledger, one.bookkeeper.state, one.tiered.state, at_ms=NOW + int(1_000 * at_s))
        for one in ledgers
    )
    return seen([topic(*ledgers, own=FIRST)], at_ms=NOW + int(1_000 * at_s))


def test_a_switch_returns_after_enough_looks_and_time() -> None:
    start = {"t/n/a": SWITCHED}
    assert due(looks(switched(GOOD), switched(GOOD, at_s=4), kept=start)) == []
    found = looks(switched(GOOD), switched(GOOD, at_s=4), switched(GOOD, at_s=6), kept=start)
    assert due(found) == ["return/t/n/a/none"]


def test_a_switch_does_not_return_while_its_tier_comes_and_goes() -> None:
    views = [switched(GOOD if at % 2 else NO_TIERED, at_s=at * 10) for at in range(20)]
    assert due(looks(*views, kept={"t/n/a": SWITCHED})) == []


def test_looks_of_another_priority_do_not_count_for_a_return() -> None:
    whole = [
        switched(NO_TIERED, at_s=at)._replace(namespaces=seen([], namespace=FIRST).namespaces) for at in (0, 5, 10)
    ]
    found = looks(*whole, switched(GOOD, at_s=15), kept={"t/n/a": SWITCHED})
    assert due(found) == []


@pytest.mark.parametrize("ledgers", [GOOD, NO_TIERED, NO_BOOKKEEPER])
@pytest.mark.parametrize(
    ("declared", "expected"), [(FIRST, ["return/t/n/a/none"]), (LAST, ["declare/t/n/tiered-storage-first"])]
)
def test_a_switch_to_what_the_namespace_keeps_returns_at_once(
    declared: ReadPriority, expected: list[str], ledgers: LedgerCopies
) -> None:
    (namespace,) = seen([], namespace=FIRST).namespaces.values()
    kept = namespace._replace(declared=Declared(declared, Level.NAMESPACE, "t/n"))
    moot = switched(ledgers)._replace(namespaces={"t/n": kept})
    assert due(looks(moot, kept={"t/n/a": SWITCHED})) == expected


def test_a_priority_that_another_client_set_ends_the_switch() -> None:
    found = looks(seen([topic(NO_TIERED, own=LAST)]), kept={"t/n/a": SWITCHED})
    assert (found.kept["t/n/a"].switch, rules(found)[0]) == (None, "read_priority.changed-meanwhile")
    again = looks(*[seen([topic(NO_TIERED, own=LAST)])] * 3, kept=dict(found.kept))
    assert due(again) == []


def test_a_switch_that_is_declared_now_is_kept_without_a_return() -> None:
    own = Declared(FIRST, Level.TOPIC, "t/n/a")
    found = looks(seen([topic(GOOD, own=FIRST, declared=own)]), kept={"t/n/a": SWITCHED})
    assert found.kept == {}


def ordered(purpose: Purpose = Purpose.SWITCH, want: ReadPriority | None = FIRST, at_ms: int = NOW) -> PriorityState:
    change = Change("t/n/a", purpose, want, None, ChangeStage.ORDERED, at_ms, plain="plain")
    return PriorityState(change, Switch(None, FIRST, at_ms))


@pytest.mark.parametrize(
    ("view", "later_ms", "stage", "rule"),
    [
        (topic(GOOD, own=FIRST), 0, ChangeStage.DONE, ""),
        (topic(GOOD), EFFECT_MS - 1, ChangeStage.ORDERED, ""),
        (topic(GOOD), EFFECT_MS, ChangeStage.REFUSED, "read_priority.refused"),
        (topic(GOOD, own=LAST), 0, ChangeStage.REFUSED, "read_priority.changed-meanwhile"),
    ],
)
def test_a_change_is_done_when_an_observation_shows_it(
    view: TopicView, later_ms: int, stage: ChangeStage, rule: str
) -> None:
    found = looks(seen([view], at_ms=NOW + later_ms), kept={"t/n/a": ordered()}).kept["t/n/a"]
    assert found.change is not None
    assert (found.change.stage, found.change.rule) == (stage, rule)
    assert (found.switch is not None) is (stage is not ChangeStage.REFUSED)


def test_a_refused_change_rests() -> None:
    change = ordered().change
    assert change is not None
    refused = PriorityState(advance(change, ChangeEvent.REFUSE, NOW, "no", "read_priority.refused"))
    stalls = [seen([topic(copies(2, WHOLE, GONE, at_ms=NOW + ms))], at_ms=NOW + ms) for ms in (0, 1, REST_MS)]
    assert due(looks(*stalls[:2], kept={"t/n/a": refused})) == []
    assert due(looks(*stalls, kept={"t/n/a": refused})) == ["switch/t/n/a/bookkeeper-first"]


def test_an_event_that_the_table_does_not_list_is_refused() -> None:
    with pytest.raises(Refused):
        advance(Change("t/n/a", Purpose.SWITCH, FIRST), ChangeEvent.CONFIRM, NOW)


def test_an_approval_holds_for_the_same_change_only() -> None:
    approved = PriorityState(Change("t/n", Purpose.DECLARE, FIRST, stage=ChangeStage.APPROVED))
    found = looks(seen([topic(GOOD)], namespace=FIRST), kept={"t/n": approved})
    assert [change.stage for change in found.due] == [ChangeStage.PLANNED]


def test_of_a_deleted_topic_nothing_is_remembered() -> None:
    assert looks(seen([]), kept={"t/n/a": SWITCHED}).kept == {}
    assert looks(seen([], problem="silent"), kept={"t/n/a": SWITCHED}).kept == {"t/n/a": SWITCHED}


@pytest.mark.parametrize(
    ("lag_ms", "expected"),
    [(None, []), (-1, ["read_priority.deletion-due"]), (NOW, ["read_priority.deletion-due"]), (10 * NOW, [])],
)
def test_a_deletion_that_is_due_before_its_copy_is_whole_is_found(lag_ms: int | None, expected: list[str]) -> None:
    found = looks(seen([topic(copies(1, WHOLE, UNKNOWN))], lag_ms=lag_ms))
    assert [rule for rule in rules(found) if rule == "read_priority.deletion-due"] == expected


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ("WWW", WHOLE),
        ("WGW", WHOLE),
        ("WGG", GONE),
        ("WUU", UNKNOWN),
        ("WDD", CopyState.DOWN),
        ("WGD", CopyState.DOWN),
        ("GGG", GONE),
        ("UGG", GONE),
    ],
)
def test_every_write_set_needs_a_bookie_with_the_ledger(answers: str, expected: CopyState) -> None:
    states = {"W": WHOLE, "G": GONE, "U": UNKNOWN, "D": CopyState.DOWN}
    bookies = {str(at): states[letter] for at, letter in enumerate(answers)}
    assert stored([["0", "1", "2"]], 2, bookies) is expected


def test_a_ledger_without_ensembles_is_whole() -> None:
    assert stored([], 2, {}) is WHOLE
