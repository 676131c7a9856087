"""Changes that a link makes to its target, and when."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Unpack

import pytest

from trueup.connectors.contract import LogId
from trueup.connectors.replication.config_sync import Outcome, TopicPairs
from trueup.state.common.errors import Retry
from trueup.state.replication.config_sync import Action, ChangeKind, Right, Setting, TopicConfigs
from trueup.state.replication.settings import LinkSettings as Declared
from trueup.streams.replication.links.config_sync import Aligner, CreatedTopics
from trueup.streams.replication.links.memory import rights_from, rights_text
from trueup.streams.replication.links.snapshot import Changes, ClusterSnapshot, LinkFacts, LinkSnapshot, TargetHold

READER = Right("topic", "literal", "orders", "User:alice", "*", "read", "allow")
GOOD = {"retention.ms": Setting("1000", True)}


class FakeLink:
    """The part of a link that an aligner uses."""

    name = "east-west"

    def __init__(self, mode: str) -> None:
        self.declared = Declared("east", "west", ["orders"], mode=mode)
        self.snapshot = LinkSnapshot(
            LinkFacts(ClusterSnapshot({"orders": (LogId("orders", 0), LogId("orders", 1))}), ClusterSnapshot(), 1)
        )
        self.copied = dict[str, str]()

    def update(self, **changes: Unpack[Changes]) -> None:
        self.snapshot = replace(self.snapshot, **changes)

    def called(self, names: Sequence[str]) -> dict[str, str]:
        return {name: name for name in names}

    def others(self, ids: dict[str, str]) -> set[str]:
        return {name for name, wanted in self.copied.items() if ids.get(name, wanted) != wanted}


class FakeTarget:
    """A target without the topic until it is created."""

    def __init__(self, result: str = "done") -> None:
        self.result, self.applied = result, list[Action]()
        self.granted = list[Right]()
        self.differing, self.silent = list[Action](), False

    def known(self) -> frozenset[str]:
        return frozenset({"retention.ms"})

    def look(self, called: dict[str, str]) -> TopicPairs:
        made = {action.topic: TopicConfigs(action.partitions, GOOD) for action in self.applied if self.result == "done"}
        return TopicPairs({"orders": TopicConfigs(2, GOOD, "now")}, made)

    def groups(self, groups: Sequence[str], exclude: Sequence[str], back: bool) -> list[Action]:
        del groups, exclude, back
        if self.silent:
            raise Retry("the groups of the target", "no response", "it is asked again")
        return [action for action in self.differing if action not in self.applied]

    def rights(self) -> tuple[list[Right], list[Right]]:
        """ACLs of the source, and of the target: granted and not revoked."""
        given = {action.right: action.kind for action in self.applied if action.right}
        return self.granted, [right for right, kind in given.items() if kind is ChangeKind.ALLOW]

    def apply(self, actions: Sequence[Action]) -> list[Outcome]:
        self.applied += actions
        return [Outcome(action, self.result, "no right" if self.result != "done" else "") for action in actions]


class Full(list[str]):
    """A journal in which every append fails."""

    def append(self, _text: str) -> None:
        raise Retry("an acknowledged record", "none", "try again")


class Rig:
    def __init__(self, mode: str, result: str = "done", memory: list[str] | None = None) -> None:
        self.link, self.target, self.notes = FakeLink(mode), FakeTarget(result), list[tuple[str, ...]]()
        self.memory = list[str]() if memory is None else memory
        self.opposite: Aligner | None = None
        self.backwards = list[Aligner]()
        self.aligner = Aligner(
            self.link,
            self.target,
            [],
            lambda: self.opposite,  # type: ignore[arg-type]
            lambda *output: self.notes.append(output),
            self.memory.append,
            CreatedTopics(),
            lambda: self.backwards,
        )

    def reconcile(self) -> "Rig":
        self.aligner.reconcile(())
        return self


@pytest.mark.parametrize(("mode", "stage"), [("observe", "planned"), ("approve", "awaiting approval")])
def test_nothing_is_changed_unasked(mode: str, stage: str) -> None:
    rig = Rig(mode).reconcile()
    assert (rig.target.applied, [row.stage for row in rig.aligner.rows()]) == ([], [stage])


def test_a_topic_that_is_not_there_yet_takes_no_records() -> None:
    result = "awaiting approval: it does not exist; 2 partitions, settings of its source (topic orders at the target)"
    assert Rig("approve").reconcile().link.snapshot.waiting == {"orders": TargetHold(result, approval=True)}


def test_a_topic_that_the_target_refuses_to_create_has_the_reason() -> None:
    waiting = Rig("enforce", "refused").reconcile().link.snapshot.waiting
    assert [(hold.stopped, hold.reason.rpartition("; ")[2]) for hold in waiting.values()] == [(True, "no right")]


def test_enforce_changes_at_once_and_records_it() -> None:
    rig = Rig("enforce").reconcile()
    assert (rig.aligner.rows(), rig.link.snapshot.waiting, [note[2] for note in rig.notes]) == ([], {}, ["done"])


def test_an_approved_action_is_executed_in_the_next_pass() -> None:
    rig = Rig("approve").reconcile()
    rig.aligner.approve([row.id for row in rig.aligner.rows()])
    before = list(rig.target.applied)
    rig.reconcile()
    assert (before, len(rig.target.applied), rig.link.snapshot.waiting) == ([], 1, {})


def test_an_approval_of_something_else_does_nothing() -> None:
    rig = Rig("approve").reconcile()
    rig.aligner.approve(["align-east-west-00000000"])
    assert rig.reconcile().target.applied == []


def test_what_is_refused_stays_in_the_plan_with_why() -> None:
    [row] = Rig("enforce", "refused").reconcile().aligner.rows()
    assert (row.stage, row.evidence["detail"]) == ("refused", "no right")


@pytest.mark.parametrize(
    ("mode", "left", "done"),
    [("observe", "planned", []), ("approve", "awaiting approval", []), ("enforce", "", ["16"])],
)
def test_settings_of_groups_are_changed_when_asked(mode: str, left: str, done: list[str]) -> None:
    rig = Rig(mode)
    rig.target.differing = [
        Action(ChangeKind.SET_GROUP, "", "a-rule", "billing", configs={"retryMaxTimes": "16"}, group="billing")
    ]
    rig.reconcile()
    assert [row.stage for row in rig.aligner.rows() if row.kind == "set_group"] == ([left] if left else [])
    assert [action.configs["retryMaxTimes"] for action in rig.target.applied if action.group] == done


def test_settings_of_groups_stay_without_groups_in_align() -> None:
    rig = Rig("enforce")
    rig.link.declared = replace(rig.link.declared, align=["partitions"])
    rig.target.differing = [Action(ChangeKind.SET_GROUP, "", "", "", group="billing")]
    assert [action.group for action in rig.reconcile().target.applied] == [""]


def test_groups_that_cannot_be_compared_hold_back_no_topic() -> None:
    rig = Rig("enforce")
    rig.target.silent = True
    with pytest.raises(Retry, match="the groups of the target"):
        rig.reconcile()
    assert [action.topic for action in rig.target.applied] == ["orders"]


def test_an_approval_outlives_a_pass_in_which_groups_cannot_be_compared() -> None:
    rig = Rig("approve")
    rig.target.differing = [Action(ChangeKind.SET_GROUP, "", "a-rule", "billing", group="billing")]
    rig.reconcile().aligner.approve([row.id for row in rig.aligner.rows() if row.kind == "set_group"])
    rig.target.silent = True
    with pytest.raises(Retry, match="the groups of the target"):
        rig.reconcile()
    assert rig.target.applied == []
    rig.target.silent = False
    assert [action.group for action in rig.reconcile().target.applied] == ["billing"]


def test_a_right_that_is_revoked_before_the_next_look_goes_again() -> None:
    rig = Rig("enforce")
    rig.link.declared = replace(rig.link.declared, align=["acls"])
    rig.target.granted = [READER]
    rig.reconcile()
    rig.target.granted = []
    rig.reconcile()
    assert [action.kind for action in rig.target.applied] == [ChangeKind.ALLOW, ChangeKind.REVOKE]


def test_a_right_that_cannot_be_remembered_is_not_given() -> None:
    rig = Rig("enforce", memory=Full())
    rig.link.declared = replace(rig.link.declared, align=["acls"])
    rig.target.granted = [READER]
    with pytest.raises(Retry):
        rig.reconcile()
    assert rig.target.applied == []


def test_rights_are_remembered() -> None:
    right = Right("topic", "literal", "orders", "User:a", "*", "read", "allow")
    assert rights_from(f"[{list(right)}]".replace("'", '"')) == [right]
    assert rights_from(rights_text([right])) == [right]


def test_a_source_topic_that_is_another_one_is_not_followed() -> None:
    rig = Rig("enforce")
    rig.link.copied["orders"] = "before"
    assert rig.reconcile().target.applied == []


class Pair:
    """A topic that links copy in both directions, with a different retention at each end."""

    def __init__(self, *made: str) -> None:
        self.here, self.there = Rig("enforce"), Rig("enforce")
        self.here.opposite, self.there.opposite = self.there.aligner, self.here.aligner
        self.here.backwards, self.there.backwards = [self.there.aligner], [self.here.aligner]
        for rig, mine, theirs in ((self.here, "1000", "2000"), (self.there, "2000", "1000")):
            rig.target.look = seen(mine, theirs)  # type: ignore[method-assign]
        for name, rig in (("here", self.here), ("there", self.there)):
            if name in made:
                rig.aligner._made.add(["orders"])

    def reconcile(self) -> tuple[list[Action], list[Action]]:
        return self.here.reconcile().target.applied, self.there.reconcile().target.applied


def seen(mine: str, theirs: str) -> Callable[[dict[str, str]], TopicPairs]:
    sides = [{"orders": TopicConfigs(2, {"retention.ms": Setting(value, True)})} for value in (mine, theirs)]
    return lambda _called: TopicPairs(sides[0], sides[1])


@pytest.mark.parametrize(("made", "changed"), [("here", [1, 0]), ("there", [0, 1])])
def test_settings_go_to_the_copy_and_never_to_its_origin(made: str, changed: list[int]) -> None:
    assert [len(applied) for applied in Pair(made).reconcile()] == changed


@pytest.mark.parametrize("made", [(), ("here", "there")], ids=["no link created it", "both links created it"])
def test_without_a_known_origin_nothing_is_set_and_that_is_reported_once(made: tuple[str, ...]) -> None:
    pair = Pair(*made)
    pair.reconcile()
    assert (pair.reconcile(), [note[2] for note in pair.here.notes]) == (([], []), ["alignment.origin-unknown"])


def test_a_topic_that_a_link_creates_again_after_a_loss_is_the_copy_though_it_was_the_origin() -> None:
    pair = Pair("there")
    found, pair.here.target.look = pair.here.target.look, FakeTarget().look  # type: ignore[method-assign]
    pair.here.opposite = None  # the target has no topic that could be copied back
    pair.here.reconcile()
    pair.here.target.look, pair.here.opposite = found, pair.there.aligner  # type: ignore[method-assign]
    assert [[action.kind.name for action in applied] for applied in pair.reconcile()] == [["CREATE", "SECURE"], []]


def test_a_topic_that_a_link_makes_is_a_copy_also_after_a_restart() -> None:
    kept = list[str]()
    made = CreatedTopics("[]", kept.append)
    made.add(["orders"])
    assert "orders" in CreatedTopics(kept[-1])


def test_a_topic_that_another_link_creates_is_no_copy_of_the_first_also_after_a_restart() -> None:
    kept = list[str]()
    made = CreatedTopics('["bills", "orders"]', kept.append)
    made.discard(["orders", "pays"])
    assert [name in CreatedTopics(kept[-1]) for name in ("bills", "orders")] == [True, False]
