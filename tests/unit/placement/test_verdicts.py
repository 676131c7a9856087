import json
from dataclasses import replace

import numpy as np
import pytest

from trueup.state.bookkeeper.ledgers import Ledgers, concat, row
from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.bookkeeper.topology import Bookie, Status, Topology
from trueup.state.common.rules import Verdict
from trueup.state.placement.policy.fencing import NO_FORMER, FormerMembers
from trueup.state.placement.rules import RULES
from trueup.state.placement.verdicts import Verdicts, evidence, judge, order, unregistered

SHOWN = ("verdict", "rule", "copies", "racks", "fragment")
RACKS = {"a1": "/a", "a2": "/a", "a3": "/a", "b1": "/b", "b2": "/b", "b3": "/b"}


def topology(racks=RACKS, *, lost=(), readonly=(), pending=(), was=Status.WRITABLE, **policy) -> Topology:
    status = dict.fromkeys(racks, Status.WRITABLE)
    status.update(dict.fromkeys(lost, Status.LOST))
    status.update(dict.fromkeys(readonly, Status.READONLY))
    status.update(dict.fromkeys(pending, Status.PENDING))
    bookies = (Bookie(b, r, status[b], 0, n + 1, was) for n, (b, r) in enumerate(racks.items()))
    return Topology(1, 0, tuple(bookies), **policy)


def rule_of(ledgers: Ledgers, seen: Topology, former: FormerMembers = NO_FORMER) -> str:
    return RULES[int(judge(ledgers, seen, former).rule[0])].id.removeprefix("placement.")


def closed(*members: str, quorum: int = 2, **more) -> Ledgers:
    return row(1, list(members), quorum=quorum, **more)


def opened(*ensembles: list[str], quorum: int = 2, state=LedgerState.OPEN) -> Ledgers:
    return row(1, *ensembles, quorum=quorum, state=state)


def test_two_racks_in_every_window_adhere():
    assert rule_of(closed("a1", "b1", "a2", "b2"), topology()) == "adheres"


def test_windows_go_round_the_ring():
    assert rule_of(closed("a1", "b1", "b2", "a2"), topology()) == "too-few-racks"


def test_an_odd_ring_on_two_racks_is_blocked():
    assert rule_of(closed("a1", "b1", "a2"), topology()) == "cannot-adhere"


def test_a_third_rack_makes_it_feasible():
    assert rule_of(closed("a1", "b1", "a2"), topology({**RACKS, "c1": "/c"})) == "too-few-racks"


def test_a_ring_that_the_walk_does_not_reach_is_blocked():
    racks = {f"{rack}{n}": f"/{rack}" for rack in "ab" for n in range(4)}
    assert rule_of(closed("a0", "a1", "a2", "a3", quorum=3), topology(racks)) == "no-walk"


def test_one_rack_for_all_can_not_adhere():
    assert rule_of(closed("a1", "a2"), topology({"a1": None, "a2": None, "a3": None})) == "cannot-adhere"


def test_where_no_rack_is_needed_all_adheres():
    assert rule_of(closed("a1", "a2"), topology(min_racks=0)) == "adheres"


def test_a_lost_member_is_drift():
    assert rule_of(closed("a1", "b1"), topology(lost=["b1"])) == "lost-member"


def test_a_lost_member_comes_before_racks():
    assert rule_of(closed("a1", "a2"), topology(lost=["a2"])) == "lost-member"


def test_no_bookie_for_a_lost_member():
    assert rule_of(closed("a1", "b1"), topology({"a1": "/a", "b1": "/b"}, lost=["b1"])) == "too-few-bookies"


def test_read_only_bookies_take_no_copies():
    seen = topology({"a1": "/a", "b1": "/b", "b2": "/b"}, lost=["b1"], readonly=["b2"])
    assert rule_of(closed("a1", "b1"), seen) == "too-few-bookies"


def test_entries_without_a_live_copy():
    assert rule_of(closed("a1", "b1"), topology(lost=["a1", "b1"])) == "all-copies-lost"


def test_lost_members_that_share_no_window_leave_copies():
    assert rule_of(closed("a1", "b1", "a2", "b2"), topology(lost=["a1", "a2"])) == "lost-member"


def test_a_window_that_holds_no_entry_loses_none():
    one = row(1, ["a1", "b1", "b2"], quorum=2, entries=1)
    found = judge(one, topology(lost=["b1", "b2"]))
    assert (RULES[int(found.rule[0])].id, int(found.copies[0])) == ("placement.lost-member", 1)


def test_the_window_of_the_last_of_few_entries_counts():
    assert rule_of(row(1, ["a1", "b1", "b2"], quorum=2, entries=2), topology(lost=["b1", "b2"])) == "all-copies-lost"


def test_a_tail_without_entries_loses_nothing():
    hollow = row(1, ["a1", "b1"], ["a2", "b2"], quorum=2, entries=0)
    assert rule_of(hollow, topology(lost=["a2", "b2"])) == "lost-member"


def test_an_older_fragment_is_never_empty():
    hollow = row(1, ["a1", "b1"], ["a2", "b2"], quorum=2, entries=0)
    assert rule_of(hollow, topology(lost=["a1", "b1"])) == "all-copies-lost"


def test_a_member_that_is_read_only_gives_no_rack():
    assert rule_of(closed("a1", "b1"), topology(readonly=["b1"])) == "read-only-member"


def test_a_member_that_is_read_only_does_no_harm_where_racks_are_left():
    seen = topology({**RACKS, "c1": "/c"}, readonly=["c1"])
    assert rule_of(closed("a1", "b1", "c1", quorum=3), seen) == "adheres"


def test_a_member_that_is_read_only_is_not_to_blame_for_one_rack():
    assert rule_of(closed("a1", "a2"), topology(readonly=["a2"])) == "too-few-racks"


def test_an_enforced_policy_forbids_the_default_rack():
    racks = {**RACKS, "x1": None}
    assert rule_of(closed("a1", "x1"), topology(racks, enforce_min_racks=True)) == "default-rack"
    assert rule_of(closed("a1", "x1"), topology(racks)) == "adheres"


def test_racks_of_another_depth_are_not_known():
    racks = {**RACKS, "c1": "/dc/c"}
    assert rule_of(closed("a1", "c1"), topology(racks)) == "odd-rack-depth"


@pytest.mark.parametrize("members", [("a1", "a2"), ("b1", "b2")])
def test_between_two_depths_neither_is_taken_for_that_which_joined_first(members):
    racks = {"a1": "/dc/a", "a2": "/dc/b", "b1": "/a", "b2": "/b"}
    assert rule_of(closed(*members), topology(racks)) == "odd-rack-depth"


def test_an_ensemble_that_adheres_by_every_depth_adheres():
    racks = {"a1": "/dc/a", "a2": "/dc/b", "b1": "/a", "b2": "/b"}
    assert rule_of(closed("a1", "b1", "a2", "b2", quorum=4), topology(racks)) == "adheres"


def test_a_lost_bookie_of_another_depth_cannot_have_joined_first():
    racks = {**RACKS, "c1": "/dc/c"}
    assert rule_of(closed("a1", "b1"), topology(racks, lost=["c1"])) == "adheres"


@pytest.mark.parametrize("rack", ["//b", "/dc//b", "/b///"])
def test_a_rack_with_an_empty_part_is_no_rack(rack):
    assert rule_of(closed("a1", "b1"), topology({**RACKS, "b1": rack})) != "adheres"


def test_bookies_without_a_rack_are_odd_among_deep_racks():
    racks = {"a1": "/dc/a", "a2": "/dc/b", "b1": "/dc/b", "x1": None}
    assert rule_of(closed("a1", "x1"), topology(racks)) == "odd-rack-depth"


def test_a_pending_member_counts_as_before():
    assert rule_of(closed("a1", "b1"), topology(pending=["b1"])) == "adheres"


def test_a_pending_member_that_was_read_only_still_gives_no_rack():
    assert rule_of(closed("a1", "b1"), topology(pending=["b1"], was=Status.READONLY)) == "pending-member"


def test_a_repair_of_racks_waits_for_a_pending_member():
    assert rule_of(closed("a1", "a2"), topology(pending=["a2"])) == "pending-member"


def test_a_repair_of_data_does_not_wait_for_a_pending_member():
    seen = topology({**RACKS, "c1": "/c"}, pending=["a1"], lost=["b1"])
    assert rule_of(closed("a1", "b1", "c1", quorum=3), seen) == "lost-member"


def test_a_repair_whose_only_copy_is_pending_waits():
    assert rule_of(closed("a1", "b1"), topology(pending=["a1"], lost=["b1"])) == "pending-member"


def test_pending_bookies_take_no_copies():
    seen = topology({"a1": "/a", "b1": "/b", "b2": "/b"}, lost=["b1"], pending=["b2"])
    assert rule_of(closed("a1", "b1"), seen) == "too-few-bookies"


def held(seen: Topology, *names: str) -> Topology:
    """The same bookies, while the loss of these is held."""
    bookies = tuple(replace(b, held=b.id in names) for b in seen.bookies)
    return replace(seen, bookies=bookies, held="too many")


THREE = [closed("a1", "b1"), closed("b1", "b2"), closed("a1", "a2"), row(1, ["a1", "b3"], ["a1", "a2"], quorum=2)]
LOST = ["b1", "b2", "b3"]


@pytest.mark.parametrize("ledger", THREE)
@pytest.mark.parametrize("seen", [topology(lost=LOST), topology(pending=LOST)], ids=["lost", "pending"])
def test_a_hold_changes_no_verdict(ledger, seen):
    plain, now = judge(ledger, seen), judge(ledger, held(seen, *LOST))
    assert [getattr(plain, n).tolist() for n in SHOWN] == [getattr(now, n).tolist() for n in SHOWN]


def test_a_ledger_whose_copies_are_all_dead_is_lost_under_a_hold():
    found = judge(closed("b1", "b2"), held(topology(lost=LOST), *LOST))
    assert (RULES[int(found.rule[0])].id, int(found.copies[0])) == ("placement.all-copies-lost", 0)


def test_a_hold_stops_what_names_its_bookies_in_any_fragment_and_nothing_else():
    seen = held(topology({**RACKS, "c1": "/c"}, lost=["b1", "b2", "c1"]), "b1", "b2")
    many = concat([*THREE[:3], row(1, ["a1", "b1"], ["a1", "a2"], quorum=2), closed("a1", "c1"), row(9, quorum=2)])
    assert judge(many, seen).held.tolist() == [True, True, False, True, False, False]


def test_without_a_hold_nothing_is_held():
    assert not judge(concat(THREE), topology(lost=LOST)).held.any()


def test_the_evidence_of_a_held_ledger_begins_with_the_hold():
    found = evidence(closed("a1", "b1"), 0, held(topology(lost=["b1"]), "b1"))
    assert (found["rule"], found["held"], found["changes"][0]) == (
        "placement.lost-member",
        True,
        "repairs are held: too many",
    )


def test_a_bookie_that_was_never_seen_is_unknown():
    assert rule_of(closed("a1", "zz"), topology()) == "unknown-bookie"


def test_unreadable_metadata_is_unknown():
    assert rule_of(closed("a1", "b1", state=LedgerState.UNREADABLE), topology()) == "unreadable"


@pytest.mark.parametrize("ledger", [row(1, quorum=2), closed("a1", "b1", quorum=0), closed("a1", "b1", quorum=3)])
def test_metadata_that_makes_no_ring_is_unknown(ledger):
    assert rule_of(ledger, topology()) == "unreadable"


def test_a_deleted_ledger_is_true():
    assert rule_of(closed("a1", "a2", state=LedgerState.GONE), topology()) == "gone"


@pytest.mark.parametrize("state", [LedgerState.OPEN, LedgerState.IN_RECOVERY])
class TestOpen:
    def test_whole(self, state):
        assert rule_of(opened(["a1", "b1"], state=state), topology()) == "open"

    def test_lost_in_the_tail(self, state):
        ledger = opened(["a1", "b2"], ["a1", "b1"], state=state)
        assert rule_of(ledger, topology(lost=["b1"])) == "open-waits-for-writer"

    def test_tail_without_a_registered_member(self, state):
        assert rule_of(opened(["a1", "b1"], state=state), topology(lost=["a1", "b1"])) == "open-waits-for-writer"

    def test_lost_in_an_older_fragment(self, state):
        ledger = opened(["a1", "b2"], ["a1", "b1"], state=state)
        assert rule_of(ledger, topology(lost=["b2"])) == "open-older-fragment"

    def test_all_lost_in_an_older_fragment(self, state):
        ledger = opened(["a2", "b2"], ["a1", "b1"], state=state)
        assert rule_of(ledger, topology(lost=["a2", "b2"])) == "all-copies-lost"

    def test_too_few_racks(self, state):
        assert rule_of(opened(["a1", "a2"], state=state), topology()) == "open-not-adhering"


def test_what_a_mark_repairs_comes_before_what_nothing_can():
    # The second fragment lost all copies; a worker still repairs the first.
    ledger = row(1, ["a1", "b1"], ["a2", "b2"], quorum=2)
    found = judge(ledger, topology(lost=["a1", "a2", "b2"]))
    assert (RULES[int(found.rule[0])].id, int(found.fragment[0])) == ("placement.lost-member", 0)


def test_lost_copies_come_before_racks():
    ledger = row(1, ["a1", "a3"], ["a2", "b2"], quorum=2)
    assert rule_of(ledger, topology(lost=["a2", "b2"])) == "all-copies-lost"


def test_the_first_of_equally_bad_fragments_is_named():
    ledger = row(1, ["a1", "b1"], ["a1", "a2"], ["a2", "a3"], quorum=2)
    assert judge(ledger, topology()).fragment[0] == 1


def test_copies_and_racks_are_those_of_the_poorest_window():
    ledger = row(1, ["a1", "b1", "a2"], ["a1", "b1", "b2"], quorum=2)
    found = judge(ledger, topology(lost=["b1"]))
    assert (int(found.copies[0]), int(found.racks[0])) == (1, 1)


def test_a_ledger_without_entries_has_all_its_copies():
    found = judge(closed("a1", "b1", entries=0), topology(lost=["a1", "b1"]))
    assert (int(found.copies[0]), RULES[int(found.rule[0])].verdict) == (2, Verdict.DRIFTED)


def test_windows_without_entries_count_as_in_bookkeeper():
    """The Auditor and the workers call isEnsembleAdheringToPlacementPolicy with the ensemble alone."""
    found = [rule_of(closed("a1", "a2", "b1", "b2", entries=held), topology()) for held in (255, 0)]
    assert found == ["too-few-racks", "too-few-racks"]


def former(*bookies: str) -> FormerMembers:
    before, after = row(1, ["a1", *bookies], quorum=2), row(1, ["a1", "a2"], quorum=2, mzxid=9)
    return NO_FORMER.merge(before, after, None)


def test_targets_that_dropped_the_ledger_refuse_it():
    assert rule_of(closed("a1", "a2"), topology(), former("b1", "b2", "b3")) == "refused-by-target"


def test_one_target_that_did_not_is_enough():
    assert rule_of(closed("a1", "a2"), topology(), former("b1", "b2")) == "too-few-racks"


def test_refusal_blocks_the_replacement_of_a_lost_member():
    seen = topology({"a1": "/a", "a2": "/a", "b1": "/b"}, lost=["a2"])
    assert rule_of(closed("a1", "a2"), seen, former("b1")) == "refused-by-target"


def test_no_bookie_refuses_a_fragment_without_entries():
    seen = topology({"a1": "/a", "a2": "/a", "b1": "/b"})
    assert rule_of(closed("a1", "a2", entries=0), seen, former("b1")) == "too-few-racks"


def test_other_ledgers_are_not_refused():
    many = concat([row(2, ["a1", "a2"], quorum=2), row(1, ["a1", "a2"], quorum=2)])
    found = judge(many, topology(), former("b1", "b2", "b3"))
    assert [RULES[code].id for code in found.rule.tolist()] == [
        "placement.too-few-racks",
        "placement.refused-by-target",
    ]


def test_rows_of_any_shape_are_judged_together():
    many = concat(
        [
            closed("a1", "b1"),
            closed("a1", "a2", "b1", quorum=3),
            row(1, ["a1", "a2"], ["a1", "b1"], quorum=2),
            closed("a1", "a2", state=LedgerState.GONE),
            closed("a1", "zz"),
        ]
    )
    found = [RULES[code].id.removeprefix("placement.") for code in judge(many, topology()).rule.tolist()]
    assert found == ["adheres", "adheres", "too-few-racks", "gone", "unknown-bookie"]


def test_no_rows_no_verdicts():
    assert len(judge(concat([]), topology())) == 0


def test_the_size_of_a_chunk_changes_nothing(monkeypatch):
    many = concat([row(n, ["a1", "a2" if n % 3 else "b1"], *[["a1", "b2"]] * (n % 4), quorum=2) for n in range(50)])
    whole = judge(many, topology(lost=["b2"]))
    monkeypatch.setattr("trueup.state.placement.verdicts._CHUNK", 7)
    parts = judge(many, topology(lost=["b2"]))
    assert all(np.array_equal(getattr(whole, name), getattr(parts, name)) for name in Verdicts.__slots__)


def test_many_patterns_are_judged_like_few(monkeypatch):
    bookies = list(RACKS)
    many = concat([row(n, [bookies[n % 6], bookies[n // 6 % 6]], quorum=2) for n in range(36)])
    table = judge(many, topology(lost=["b2"], readonly=["b3"]))
    monkeypatch.setattr("trueup.state.placement.policy.fragments._TABLE", 2)
    sorting = judge(many, topology(lost=["b2"], readonly=["b3"]))
    assert np.array_equal(table.rule, sorting.rule)


def risky(ledger: int, copies: int, racks: int, ctime: int, verdict=Verdict.DRIFTED) -> tuple[int, ...]:
    return ledger, copies, racks, ctime, verdict


@pytest.mark.parametrize("limit", [None, 3, 0])
def test_the_order_of_risk(limit):
    rows = [
        risky(9, 2, 1, 5),
        risky(8, 1, 2, 5),
        risky(7, 1, 1, 6),
        risky(6, 1, 1, 5),
        risky(5, 1, 1, 5),
        risky(4, 0, 0, 0, Verdict.BLOCKED),
        risky(3, 2, 0, 9),
    ]
    ledgers = concat([row(ledger, ["a1"], quorum=1, ctime_ms=ctime) for ledger, _, _, ctime, _ in rows])
    columns = np.array(rows).T
    verdicts = Verdicts(columns[4].astype("u1"), *(columns[n].astype("u2") for n in (0, 1, 2, 3, 3)))
    found = ledgers.ledger[order(verdicts, ledgers, limit)].tolist()
    assert found == [5, 6, 7, 8, 3, 9][:limit]


def test_unregistered_bookies_are_names_outside_the_topology():
    many = concat([closed("a1", "zz"), closed("yy", "b1"), closed("a1", "xx", state=LedgerState.GONE)])
    assert unregistered(many, topology()) == ("yy", "zz")


def test_a_bookie_that_only_deleted_ledgers_name_is_not_reported_as_unregistered():
    assert unregistered(closed("a1", "b1"), topology()) == ()


EVIDENCE = [
    (closed("a1", "b1"), topology(), ""),
    (closed("a1", "a2"), topology(), "moves replicas"),
    (closed("a1", "b1", "a2"), topology(), "1 more writable bookie in a new rack"),
    (closed("a1", "b1"), topology(lost=["b1"]), "the return of b1"),
    (closed("a1", "b1"), topology({"a1": "/a", "b1": "/b"}, lost=["b1"]), "1 more writable bookie in /b"),
    (closed("a1", "b1"), topology(lost=["a1", "b1"]), "the return of a1 or b1"),
    (closed("a1", "b1"), topology(readonly=["b1"]), "b1 becoming writable again"),
    (closed("a1", "x1"), topology({**RACKS, "x1": None}, enforce_min_racks=True), "a rack for x1 in the rack map"),
    (closed("a1", "c1"), topology({**RACKS, "c1": "/dc/c"}), "a rack of depth 1 for c1"),
    (closed("a1", "a2"), topology(pending=["a2"]), "the return of a2"),
    (closed("a1", "zz"), topology(), "a cookie or a registration of zz"),
    (opened(["a1", "b1"]), topology(lost=["b1"]), "The next entry"),
    (closed("a1", "b1", state=LedgerState.UNREADABLE), topology(), "names the znode and the byte"),
    (closed("a1", "b1", state=LedgerState.GONE), topology(), "removed from the findings"),
]


@pytest.mark.parametrize(("ledger", "seen", "says"), EVIDENCE)
def test_evidence_shows_what_would_change_the_verdict(ledger, seen, says):
    shown = evidence(ledger, 0, seen)
    assert shown["rule"] == f"placement.{rule_of(ledger, seen)}"
    assert says in " | ".join(json.loads(json.dumps(shown))["changes"])


def test_evidence_names_the_bookies_that_refuse():
    shown = evidence(closed("a1", "a2"), 0, topology(), former("b1", "b2", "b3"))
    assert "a restart of b1 or b2 or b3" in shown["changes"][0]


def test_evidence_shows_every_fragment_and_its_failing_windows():
    shown = evidence(row(1, ["a1", "b1"], ["a1", "a2"], quorum=2), 0, topology(readonly=["a2"]))
    assert [len(one["failing_windows"]) for one in shown["fragments"]] == [0, 2]
    assert shown["fragments"][1]["bookies"][1] == {
        "bookie": "a2",
        "rack": "/a",
        "status": "read-only",
        "counts": False,
        "groups": [],
    }


def test_evidence_of_what_was_not_judged_has_the_same_form():
    forms = [
        evidence(closed("a1", "b1", state=s), 0, topology())["fragments"][0]
        for s in (LedgerState.CLOSED, LedgerState.GONE)
    ]
    assert set(forms[0]) == set(forms[1])


def test_evidence_shows_how_certain_a_repair_is():
    shown = evidence(closed("a1", "a2"), 0, topology(), former("b1"))
    assert "random choices" in shown["fragments"][0]["repair"]


def test_a_member_whose_rack_is_not_known_leaves_the_verdict_open():
    assert rule_of(closed("a1", "b1"), topology({**RACKS, "b1": "?"})) == "unknown-rack"


def test_a_ring_that_adheres_without_that_member_adheres():
    seen = topology({**RACKS, "c1": "?"})
    assert rule_of(closed("a1", "b1", "c1", quorum=3), seen) == "adheres"


def test_a_lost_member_is_repaired_whatever_rack_is_not_known():
    seen = topology({**RACKS, "c1": "?"}, lost=["a1"])
    assert rule_of(closed("a1", "c1"), seen) == "lost-member"


@pytest.mark.parametrize(("enforce", "rule"), [(False, "lost-member"), (True, "too-few-bookies")])
def test_a_bookie_of_an_unknown_rack_replaces_a_lost_member_unless_racks_are_enforced(enforce: bool, rule: str):
    seen = topology({"a1": "/a", "b1": "/b", "c1": "?"}, lost=["a1"], enforce_min_racks=enforce)
    assert rule_of(closed("a1", "b1"), seen) == rule


def test_a_member_of_an_unknown_rack_replaces_no_other():
    seen = topology({"a1": "/a", "b1": "/b", "c1": "?"}, lost=["a1"])
    assert rule_of(closed("a1", "b1", "c1"), seen) == "too-few-bookies"


def test_a_bookie_of_an_unknown_rack_may_refuse_the_ledger():
    seen = topology({"a1": "/a", "b1": "/b", "c1": "?"}, lost=["a1"])
    assert rule_of(closed("a1", "b1"), seen, former("c1")) == "refused-by-target"


def test_the_refusal_of_a_bookie_of_an_unknown_rack_rules_out_no_other():
    seen = topology({"a1": "/a", "b1": "/b", "b2": "/b", "c1": "?"}, lost=["a1"])
    assert rule_of(closed("a1", "b1"), seen, former("c1")) == "lost-member"


def test_a_spare_whose_rack_is_not_known_may_be_what_is_needed():
    seen = topology({"a1": "/a", "a2": "/a", "c1": "?"})
    assert rule_of(closed("a1", "a2"), seen) == "unknown-rack"
