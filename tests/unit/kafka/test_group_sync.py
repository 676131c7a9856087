"""Translation of group offsets to the target cluster, without a cluster."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from kafka import errors as kafka_errors

from trueup.connectors.contract import Endpoint, LogId
from trueup.connectors.kafka.client.group_offsets import KafkaGroups
from trueup.connectors.replication.group_sync import GroupSync, OffsetMapping
from trueup.connectors.replication.ports import GroupCommits
from trueup.state.common.errors import Retry, Stop, Unknown
from trueup.state.replication.group_offsets import Hop
from trueup.state.replication.offset_map import OffsetMap

HERE, THERE = LogId("topic", 0), LogId("topic-there", 0)
COPIED = OffsetMap().extend([(0, 3, 10)], 12)


class Cluster:
    """In-memory consumer groups of a cluster."""

    def __init__(self, offsets: Mapping[str, Any], states: Mapping[str, str] | None = None, bit: int = 0) -> None:
        self.committed, self.listed, self.bit = dict(offsets), dict(states or {}), bit
        self.commits: list[tuple[str, GroupCommits]] = []
        self.together: list[list[str]] = []
        self.refused: dict[str, Any] = {}
        self.refusal: Exception | None = None
        self.topic_ids: dict[str, str] = {}
        self.configs: dict[str, dict[str, object]] = {}
        self.created: list[tuple[str, dict[str, object]]] = []

    def ids(self, topics: Iterable[str]) -> dict[str, str]:
        return {topic: self.topic_ids.get(topic, "") for topic in topics}

    def offsets(self, groups: Sequence[str]) -> dict[str, Any]:
        found = {group: self.committed.get(group, {}) for group in groups}
        return {group: GroupCommits(one) if type(one) is dict else one for group, one in found.items()}

    def states(self) -> dict[str, str]:
        if isinstance(self.refusal, AssertionError):
            raise self.refusal
        return self.listed

    def settings(self, groups: Sequence[str]) -> dict[str, dict[str, object]]:
        return {group: self.configs[group] for group in groups if group in self.configs}

    def create(self, groups: Mapping[str, Mapping[str, object]]) -> None:
        self.created += [(group, dict(settings)) for group, settings in groups.items()]

    def commit(self, offsets: Mapping[str, GroupCommits]) -> dict[str, Any]:
        if self.refusal:
            raise self.refusal
        self.together.append(list(offsets))
        self.commits += offsets.items()
        return {group: self.refused.get(group, dict.fromkeys(places, "")) for group, places in offsets.items()}


def sync(source: Cluster, target: Cluster, ways: Mapping[LogId, OffsetMapping], **more: Any) -> list[Any]:
    return GroupSync(source, target).sync(["g"], ways, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("offset", "there", "lag"), [(0, 3, 0), (4, 7, 0), (10, 13, 0), (12, 13, 0), (20, 13, 8)])
def test_an_offset_is_translated_and_never_past_what_was_copied(offset: int, there: int, lag: int) -> None:
    translation, behind = OffsetMapping(THERE, COPIED).translate(offset)
    assert (translation.offset, behind) == (there, lag)


def test_the_other_way_round_over_the_same_map() -> None:
    assert OffsetMapping(HERE, COPIED, reverse=True).translate(8)[0].offset == 5


def test_where_nothing_stands_there_yet_a_group_begins_at_what_will_come() -> None:
    known = OffsetMap().extend([], 5, begin=0, clear=2)
    assert OffsetMapping(THERE, known).translate(5)[0].offset == 2


def test_where_something_stands_there_at_an_unknown_place_there_is_no_offset() -> None:
    known = OffsetMap().extend([], 5, begin=0, clear=2, whole=False)
    assert OffsetMapping(THERE, known).translate(3)[0].offset is None


def test_where_both_sides_write_nothing_unread_is_passed_over() -> None:
    there = OffsetMap().extend([(0, 2, 3)], 5)
    back = OffsetMap().extend([(0, 3, 2)], 5)
    assert OffsetMapping(THERE, there, [Hop("back", back)]).translate(4)[0].offset == 1


def test_copies_that_the_opposite_link_did_not_come_to_yet_hold_no_group_back() -> None:
    there = OffsetMap().extend([(0, 2, 5), (7, 7, 25)], 32)
    back = OffsetMap().extend([(0, 5, 2)], 5)
    assert [OffsetMapping(THERE, there, [Hop("back", back)]).translate(offset)[0].offset for offset in (4, 20, 32)] == [
        0,
        20,
        32,
    ]


def test_a_record_that_did_not_come_back_yet_holds_the_group_before_it() -> None:
    there = OffsetMap().extend([(0, 0, 10), (10, 11, 10)], 20)
    back = OffsetMap().extend([], 5, begin=0)
    assert OffsetMapping(THERE, there, [Hop("back", back)]).translate(20)[0].offset == 10


def test_groups_that_have_what_they_are_to_have_cost_the_target_nothing() -> None:
    target = Cluster({})
    groups = GroupSync(Cluster({"g": {HERE: 4}}), target)  # type: ignore[arg-type]
    groups.sync(["g"], {HERE: OffsetMapping(THERE, COPIED)})
    target.refusal = AssertionError("asked again")
    assert [row.action for row in groups.sync(["g"], {HERE: OffsetMapping(THERE, COPIED)})] == ["kept"]


def test_a_group_that_is_further_there_costs_the_target_nothing() -> None:
    target = Cluster({"g": {THERE: 11}}, {"g": "stable"})
    groups = GroupSync(Cluster({"g": {HERE: 4}}), target)  # type: ignore[arg-type]
    groups.sync(["g"], {HERE: OffsetMapping(THERE, COPIED)})
    target.refusal = AssertionError("asked again")
    assert [row.action for row in groups.sync(["g"], {HERE: OffsetMapping(THERE, COPIED)})] == ["active"]


def test_what_a_group_has_there_is_read_right_before_it_is_set() -> None:
    source, target = Cluster({"g": {HERE: 4}}), Cluster({})
    groups = GroupSync(source, target)  # type: ignore[arg-type]
    groups.sync(["g"], {HERE: OffsetMapping(THERE, COPIED)})
    source.committed["g"], target.committed["g"] = {HERE: 6}, {THERE: 12}
    assert [(row.action, row.present) for row in groups.sync(["g"], {HERE: OffsetMapping(THERE, COPIED)})] == [
        ("kept", 12)
    ]


class Leaving(Cluster):
    """A cluster whose group commits its last offset and leaves after the first request for it."""

    asked = False

    def _leave(self) -> None:
        if self.asked:
            self.committed["g"], self.listed = {THERE: 12}, {"g": "empty"}
        self.asked = True

    def states(self) -> dict[str, str]:
        self._leave()
        return self.listed

    def offsets(self, groups: Sequence[str]) -> dict[str, Any]:
        self._leave()
        return super().offsets(groups)


def test_the_last_commit_of_a_member_that_leaves_is_not_decreased() -> None:
    target = Leaving({"g": {THERE: 3}}, {"g": "stable"})
    [row] = sync(Cluster({"g": {HERE: 4}}), target, {HERE: OffsetMapping(THERE, COPIED)})
    assert (row.present, target.commits) == (12, [])


def test_an_offset_that_is_there_already_is_not_committed_again() -> None:
    target = Cluster({"g": {THERE: 7}})
    [row] = sync(Cluster({"g": {HERE: 4}}), target, {HERE: OffsetMapping(THERE, COPIED)})
    assert (row.action, target.commits) == ("kept", [])


EAST, WEST, NORTH = range(3)


def moved_back(here: Mapping[LogId, int], bit: int = EAST) -> tuple[str, list[Any]]:
    """The result of a pass from west, where a link from east committed 7, to a cluster with these offsets."""
    west, there = Cluster({"g": GroupCommits({THERE: 7}, {THERE: 1 << EAST})}, bit=WEST), Cluster({"g": here}, bit=bit)
    [row] = sync(west, there, {THERE: OffsetMapping(HERE, COPIED, reverse=True)})
    return row.action, there.commits


def test_an_offset_that_a_link_committed_does_not_replace_the_one_from_which_it_came() -> None:
    assert moved_back({HERE: 2}) == ("kept", [])


def test_an_offset_that_a_link_committed_returns_to_a_cluster_that_lost_its_own() -> None:
    assert moved_back({}) == ("moved", [("g", {HERE: 4})])


def test_an_offset_that_a_link_committed_is_translated_to_other_clusters() -> None:
    assert moved_back({HERE: 2}, NORTH) == ("moved", [("g", {HERE: 4})])


def test_an_offset_is_committed_with_the_clusters_from_which_it_came() -> None:
    east, west = Cluster({"g": GroupCommits({HERE: 4}, {HERE: 1 << NORTH})}, bit=EAST), Cluster({}, bit=WEST)
    sync(east, west, {HERE: OffsetMapping(THERE, COPIED)})
    assert west.commits[0][1].paths == {THERE: 1 << NORTH | 1 << EAST}


def test_an_offset_that_is_not_put_back_costs_the_target_nothing() -> None:
    west, east = Cluster({"g": GroupCommits({THERE: 7}, {THERE: 1 << EAST})}, bit=WEST), Cluster({"g": {HERE: 2}})
    groups, way = GroupSync(west, east), {THERE: OffsetMapping(HERE, COPIED, reverse=True)}  # type: ignore[arg-type]
    groups.sync(["g"], way)
    east.refusal = AssertionError("asked again")
    assert [row.action for row in groups.sync(["g"], way)] == ["kept"]


def test_one_partition_without_translation_holds_those_that_go_into_the_same() -> None:
    other = LogId("other", 0)
    ways = {HERE: OffsetMapping(THERE, COPIED), other: OffsetMapping(THERE, OffsetMap())}
    rows = sync(Cluster({"g": {HERE: 4, other: 1}}), Cluster({}), ways)
    assert [(row.action, row.translated) for row in rows] == [("waiting", -1)] * 2


def test_partitions_that_the_link_does_not_copy_are_left_alone() -> None:
    target = Cluster({})
    sync(Cluster({"g": {HERE: 4, LogId("theirs", 0): 9}}), target, {HERE: OffsetMapping(THERE, COPIED)})
    assert target.commits == [("g", {THERE: 7})]


def test_groups_that_move_are_committed_together() -> None:
    target = Cluster({})
    source = Cluster({"g": {HERE: 4}, "h": {HERE: 5}})
    GroupSync(source, target).sync(["g", "h"], {HERE: OffsetMapping(THERE, COPIED)})  # type: ignore[arg-type]
    assert target.together == [["g", "h"]]


def test_a_group_that_is_refused_keeps_no_other() -> None:
    target = Cluster({})
    target.refused = {"g": Stop("rights", "none", "ask for them")}
    source = Cluster({"g": {HERE: 4}, "h": {HERE: 5}})
    rows = GroupSync(source, target).sync(["g", "h"], {HERE: OffsetMapping(THERE, COPIED)})  # type: ignore[arg-type]
    assert [(row.group, row.action) for row in rows] == [("g", "failed"), ("h", "moved")]


class Forbidding:
    """A client that is not authorized for one group."""

    def alter_offsets(self, asked: Mapping[str, Mapping[Any, Any]]) -> dict[str, Any]:
        if "forbidden" in asked:
            raise kafka_errors.GroupAuthorizationFailedError
        return {group: dict.fromkeys(places, "") for group, places in asked.items()}


def test_where_a_group_is_forbidden_the_others_are_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KafkaGroups, "_connected", lambda _: Forbidding())
    reported = KafkaGroups(Endpoint("west", "", 0)).commit(
        {"forbidden": GroupCommits({HERE: 4}), "h": GroupCommits({HERE: 5})}
    )
    assert (type(reported["forbidden"]), reported["h"]) == (Stop, {HERE: ""})


def test_an_unreadable_group_is_reported_and_blocks_no_other() -> None:
    source = Cluster({"g": Retry("a", "b", "c"), "h": {HERE: 4}})
    rows = GroupSync(source, Cluster({})).sync(["g", "h"], {HERE: OffsetMapping(THERE, COPIED)})  # type: ignore[arg-type]
    assert [(row.group, row.action) for row in rows] == [("g", "failed"), ("h", "moved")]


def test_nothing_is_set_in_another_topic_than_was_copied_to() -> None:
    target = Cluster({})
    target.topic_ids = {THERE.topic: "new"}
    [row] = sync(Cluster({"g": {HERE: 4}}), target, {HERE: OffsetMapping(THERE, COPIED, ids=("", "old"))})
    assert (row.action, target.commits) == ("waiting", [])


def test_what_was_committed_in_another_topic_is_not_translated() -> None:
    source, target = Cluster({"g": {HERE: 4}}), Cluster({})
    source.topic_ids = {HERE.topic: "old"}
    [row] = sync(source, target, {HERE: OffsetMapping(THERE, COPIED, ids=("new", ""))})
    assert (row.action, target.commits) == ("waiting", [])


def test_an_offset_that_was_read_as_its_topic_was_made_anew_has_no_topic() -> None:
    source = Cluster({"g": {HERE: 4}}, {"g": "empty"})
    groups, ids = GroupSync(source, Cluster({})), []  # type: ignore[arg-type]
    for now in ("old", "new", "new"):
        source.topic_ids = {HERE.topic: now}
        ids.append(groups.committed(["g"], {HERE.topic}).ids.get(HERE.topic))
    assert ids == ["old", None, "new"]


def test_a_partition_that_is_stopped_holds_those_that_go_into_the_same() -> None:
    other = LogId("other", 0)
    ways = {HERE: OffsetMapping(THERE, COPIED), other: OffsetMapping(THERE, COPIED, blocked_reason="it is stopped")}
    rows = sync(Cluster({"g": {HERE: 4, other: 1}}), Cluster({}), ways)
    assert [row.action for row in rows] == ["waiting"] * 2


US = LogId("us", 0)
EU_BEHIND_US = OffsetMapping(THERE, OffsetMap().extend([(0, 50, 100)], 100, 0), ids=("eu id", ""))
"""A log whose 100 records follow those of `US` there."""


def merged(us: OffsetMapping, committed: Mapping[LogId, int]) -> tuple[list[Any], list[Any]]:
    """The rows and the commits of a group whose topics are copied into one, with the ids of those that it reads."""
    source, target = Cluster({"g": committed}, {"g": "stable"}), Cluster({})
    source.topic_ids = {HERE.topic: "eu id", US.topic: "us id"}
    groups = GroupSync(source, target)  # type: ignore[arg-type]
    found = groups.committed(["g"], {HERE.topic, US.topic})
    rows = groups.sync_commits(found, {HERE: EU_BEHIND_US, US: replace(us, ids=("us id", ""))})
    return [(row.source, row.translated, row.action, row.reason) for row in rows], target.commits


def test_a_group_begins_at_the_first_record_of_a_topic_of_the_same_target_in_which_it_committed_nothing() -> None:
    rows, commits = merged(OffsetMapping(THERE, OffsetMap().extend([(0, 0, 50)], 50, 0)), {HERE: 100})
    assert (commits, rows[1]) == ([("g", {THERE: 0})], (US, 0, "waiting", "nothing is committed in us-0"))


def test_records_that_the_retention_of_such_a_topic_deleted_are_not_waited_for() -> None:
    us = OffsetMapping(THERE, OffsetMap().extend([(0, 0, 50)], 50, 0), start=20)
    assert merged(us, {HERE: 100})[1] == [("g", {THERE: 20})]


def test_such_a_topic_without_records_holds_no_group_back() -> None:
    us = OffsetMapping(THERE, OffsetMap().extend([], 0, 0, clear=150))
    assert merged(us, {HERE: 100})[1] == [("g", {THERE: 150})]


@pytest.mark.parametrize(
    "us", [OffsetMapping(THERE, OffsetMap()), OffsetMapping(THERE, COPIED, blocked_reason="it is stopped")]
)
def test_while_the_place_of_the_records_of_such_a_topic_is_unknown_the_group_waits(us: OffsetMapping) -> None:
    rows, commits = merged(us, {HERE: 100})
    assert (commits, [row[2] for row in rows]) == ([], ["waiting", "waiting"])


def test_a_topic_of_another_target_in_which_a_group_committed_nothing_has_no_row() -> None:
    us = OffsetMapping(LogId("us-there", 0), OffsetMap().extend([(0, 0, 50)], 50, 0))
    assert merged(us, {HERE: 100}) == ([(HERE, 150, "moved", "")], [("g", {THERE: 150})])


def test_a_commit_without_a_response_is_reported() -> None:
    target = Cluster({})
    target.refusal = Unknown("an answer", "none", "look")
    [row] = sync(Cluster({"g": {HERE: 4}}), target, {HERE: OffsetMapping(THERE, COPIED)})
    assert (row.action, "look" in row.reason) == ("failed", True)


def test_a_group_of_unknown_state_is_not_touched() -> None:
    target = Cluster({}, {"g": "unknown"})
    [row] = sync(Cluster({"g": {HERE: 4}}), target, {HERE: OffsetMapping(THERE, COPIED)})
    assert (row.action, target.commits) == ("active", [])


def test_a_group_that_is_missing_there_is_created_as_it_is_here() -> None:
    source, target = Cluster({"g": {HERE: 4}}), Cluster({})
    source.configs["g"] = {"consumeMessageOrderly": True}
    sync(source, target, {HERE: OffsetMapping(THERE, COPIED)})
    assert (target.created, target.commits) == ([("g", {"consumeMessageOrderly": True})], [("g", {THERE: 7})])


def test_a_group_that_is_there_is_not_created() -> None:
    target = Cluster({}, {"g": "empty"})
    sync(Cluster({"g": {HERE: 4}}), target, {HERE: OffsetMapping(THERE, COPIED)})
    assert (target.created, target.commits) == ([], [("g", {THERE: 7})])


GONE = OffsetMap().extend([(500, 0, 100)], 600, 500)
"""A copy that began at 500, where the log of the source began."""


@pytest.mark.parametrize(
    ("start", "offset", "there"),
    [(500, 10, 0), (500, 499, 0), (500, 510, 10), (560, 10, 60), (-1, 10, None), (0, 10, None)],
)
def test_a_group_behind_the_retention_of_the_source_goes_on_with_its_first_record(
    start: int, offset: int, there: int | None
) -> None:
    found, _ = OffsetMapping(THERE, GONE, start=start).translate(offset)
    assert found.offset == there


def test_a_group_behind_the_retention_of_an_empty_source_begins_at_what_will_come() -> None:
    empty = OffsetMap().extend([], 500, 500, clear=0)
    assert OffsetMapping(THERE, empty, start=500).translate(10)[0].offset == 0


def test_share_groups_are_named_and_not_translated() -> None:
    source = Cluster({"g": {HERE: 3}}, {"g": "stable", "shared": "share", "other": "share"})
    groups = GroupSync(source, Cluster({}))  # type: ignore[arg-type]
    assert (groups.names(["g", "shared"]), groups.shares) == (["g"], ["shared"])
