"""Consumer groups continue at the other cluster, and in the opposite direction."""

import base64
import socket
import struct
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.replication.mirror import Side, copy, sides
from trueup.connectors.contract import LogId
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.kafka.client.kafka_python import AT_ONCE
from trueup.connectors.replication.group_sync import Checkpoint, GroupSync, OffsetMapping
from trueup.connectors.replication.ports import GroupCommits
from trueup.state.replication.group_offsets import Hop
from trueup.state.replication.offset_map import OffsetMap

pytestmark = pytest.mark.servers


@pytest.fixture(scope="module")
def both(new_root: Callable[[], Path]) -> Iterator[tuple[Side, Side]]:
    with sides(new_root()) as found:
        yield found


def values(start: int, end: int, name: str = "v") -> list[str]:
    return [f"{name}{number}" for number in range(start, end)]


def prepared(both: tuple[Side, Side], topic: str, ahead: int = 3) -> OffsetMap:
    """Ten records copied to a topic that already has ``ahead`` records."""
    east, west = both
    for side in both:
        side.create(topic)
    west.write(topic, values(0, ahead, "own"))
    east.write(topic, values(0, 10))
    return copy(east, west, topic)


def passed(both: tuple[Side, Side], group: str, mapping: OffsetMapping, topic: str, **more: object) -> Checkpoint:
    east, west = both
    [row] = GroupSync(east.groups, west.groups).sync([group], {LogId(topic, 0): mapping}, **more)  # type: ignore[arg-type]
    return row


def at(side: Side, group: str, topic: str) -> int | None:
    return side.groups.offsets([group])[group].get(LogId(topic, 0))  # type: ignore[union-attr]


def test_a_group_goes_on_with_the_first_record_that_it_did_not_read(both: tuple[Side, Side]) -> None:
    east, west = both
    mapping = OffsetMapping(LogId("moves", 0), prepared(both, "moves"))
    east.commit("readers", {LogId("moves", 0): 0})
    east.consume("readers", "moves", 4)
    row = passed(both, "readers", mapping, "moves")
    assert (row.action, row.committed, row.translated, west.consume("readers", "moves", 2)) == (
        "moved",
        4,
        7,
        ["v4", "v5"],
    )


def test_nothing_is_changed_where_nothing_is_to_be(both: tuple[Side, Side]) -> None:
    east, west = both
    mapping = OffsetMapping(LogId("watched", 0), prepared(both, "watched"))
    east.commit("watched", {LogId("watched", 0): 5})
    row = passed(both, "watched", mapping, "watched", change=False)
    assert (row.action, row.translated, at(west, "watched", "watched")) == ("due", 8, None)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_members_there_is_not_touched(both: tuple[Side, Side], protocol: str) -> None:
    east, west = both
    name = f"busy-{protocol}"
    mapping = OffsetMapping(LogId(name, 0), prepared(both, name))
    east.commit(name, {LogId(name, 0): 6})
    west.commit(name, {LogId(name, 0): 1})
    with west.member(name, name, protocol):
        wait_until(lambda: west.groups.states()[name] == "stable", 180.0, "the group to be stable")
        during = passed(both, name, mapping, name)
        assert (during.action, during.reason, at(west, name, name)) == ("active", "the group is stable there", 1)
    wait_until(lambda: west.groups.states()[name] == "empty", 180.0, "the group to be empty")
    assert (passed(both, name, mapping, name).action, at(west, name, name)) == ("moved", 9)


def test_the_broker_itself_refuses_offsets_of_a_group_with_members(both: tuple[Side, Side]) -> None:
    east, west = both
    mapping = OffsetMapping(LogId("raced", 0), prepared(both, "raced"))
    east.commit("raced", {LogId("raced", 0): 6})
    west.commit("raced", {LogId("raced", 0): 1})
    looked = west.groups.states()
    with west.member("raced", "raced"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(west.groups, "states", lambda: looked)  # it joins after the check
        row = passed(both, "raced", mapping, "raced")
        assert (row.action, "UNKNOWN_MEMBER_ID" in row.reason, at(west, "raced", "raced")) == ("failed", True, 1)


def test_offsets_of_more_groups_are_set_than_are_on_the_way_at_once(both: tuple[Side, Side]) -> None:
    east, _ = both
    east.create("crowd")
    asked = {f"crowd-{number}": {LogId("crowd", 0): number} for number in range(2 * AT_ONCE + 1)}
    east.commit("crowd-0", {LogId("crowd", 0): 0})
    wait_until(lambda: not any(any(reported.values()) for reported in commit(east, asked)), 180.0, "their coordinators")
    assert east.groups.offsets(list(asked)) == asked


def commit(side: Side, asked: dict[str, dict[LogId, int]]) -> list[dict[LogId, str]]:
    return list(side.groups.commit({group: GroupCommits(places) for group, places in asked.items()}).values())  # type: ignore[arg-type]


def test_the_offset_of_a_group_never_decreases(both: tuple[Side, Side]) -> None:
    east, west = both
    mapping = OffsetMapping(LogId("forth", 0), prepared(both, "forth"))
    east.commit("forth", {LogId("forth", 0): 2})
    west.commit("forth", {LogId("forth", 0): 9})
    kept = passed(both, "forth", mapping, "forth")
    assert (kept.action, kept.present, at(west, "forth", "forth")) == ("kept", 9, 9)


def test_a_group_ahead_of_the_copy_waits_at_its_end(both: tuple[Side, Side]) -> None:
    east, west = both
    mapping = OffsetMapping(LogId("ahead", 0), prepared(both, "ahead"))
    east.write("ahead", values(10, 15))
    east.commit("ahead", {LogId("ahead", 0): 14})
    row = passed(both, "ahead", mapping, "ahead")
    assert (row.action, row.lag, at(west, "ahead", "ahead")) == ("moved", 4, 13)


def test_without_a_copy_there_is_no_offset(both: tuple[Side, Side]) -> None:
    both[0].create("fresh")
    both[0].commit("fresh", {LogId("fresh", 0): 0})
    row = passed(both, "fresh", OffsetMapping(LogId("fresh", 0), OffsetMap()), "fresh")
    assert (row.action, row.reason) == ("waiting", "nothing was copied yet")


def test_a_second_pass_finds_nothing_to_do(both: tuple[Side, Side]) -> None:
    mapping = OffsetMapping(LogId("twice", 0), prepared(both, "twice"))
    both[0].commit("twice", {LogId("twice", 0): 5})
    actions = [passed(both, "twice", mapping, "twice").action for _ in range(2)]
    assert actions == ["moved", "kept"]


def test_partitions_that_go_into_one_have_the_least_offset(both: tuple[Side, Side]) -> None:
    east, west = both
    there = prepared(both, "many")
    other = OffsetMap().extend([(0, 3, 10)], 10)
    east.create("more")
    east.write("more", values(0, 10))
    east.commit("many", {LogId("many", 0): 8, LogId("more", 0): 2})
    mappings = {
        LogId(topic, 0): OffsetMapping(LogId("many", 0), known) for topic, known in (("many", there), ("more", other))
    }
    rows = GroupSync(east.groups, west.groups).sync(["many"], mappings)
    assert ({row.translated for row in rows}, at(west, "many", "many")) == ({5}, 5)


def test_a_group_moves_there_and_back_over_one_link(both: tuple[Side, Side]) -> None:
    east, west = both
    there = prepared(both, "home")
    east.commit("home", {LogId("home", 0): 0})
    east.consume("home", "home", 4)
    passed(both, "home", OffsetMapping(LogId("home", 0), there), "home")
    west.consume("home", "home", 3)
    back = OffsetMapping(LogId("home", 0), there, reverse=True)
    [row] = GroupSync(west.groups, east.groups).sync(["home"], {LogId("home", 0): back})
    assert (row.action, row.translated, east.consume("home", "home", 1)) == ("moved", 7, ["v7"])


def test_an_offset_that_is_reset_at_the_source_stays(both: tuple[Side, Side]) -> None:
    east, west = both
    there, place = prepared(both, "reset"), LogId("reset", 0)
    east.commit("reset", {place: 6})
    passed(both, "reset", OffsetMapping(place, there), "reset")
    east.commit("reset", {place: 2})
    back = OffsetMapping(place, there, reverse=True)
    [row] = GroupSync(west.groups, east.groups).sync(["reset"], {place: back})
    assert (row.translated, row.action, at(east, "reset", "reset")) == (6, "kept", 2)


def test_a_group_moves_there_and_back_where_both_sides_write(both: tuple[Side, Side]) -> None:
    east, west = both
    topic, place = "both", LogId("both", 0)
    for side in both:
        side.create(topic)
    east.write(topic, values(0, 4, "e"))
    west.write(topic, values(0, 3, "w"))
    there = copy(east, west, topic)
    back = copy(west, east, topic)
    east.commit("both", {place: 0})
    read = east.consume("both", topic, 5)
    GroupSync(east.groups, west.groups).sync(["both"], {place: OffsetMapping(place, there, [Hop("back", back)])})
    read += west.consume("both", topic, 3)
    west.write(topic, values(3, 5, "w"))
    back = copy(west, east, topic, back)
    there = copy(east, west, topic, there)
    read += west.consume("both", topic, 2)
    GroupSync(west.groups, east.groups).sync(["both"], {place: OffsetMapping(place, back, [Hop("there", there)])})
    left = [value for offset, value, _ in east.read(topic, 0, at(east, "both", topic) or 0)]
    assert set(read + left) == {*values(0, 4, "e"), *values(0, 5, "w")}


def test_names_are_matched_whole(both: tuple[Side, Side]) -> None:
    east, west = both
    east.create("named")
    for group in ("pay-1", "pay-2", "repay"):
        east.commit(group, {LogId("named", 0): 0})
    assert GroupSync(east.groups, west.groups).names(["/pay-.*/"]) == ["pay-1", "pay-2"]


def test_a_group_is_set_only_between_the_topics_that_were_copied(both: tuple[Side, Side]) -> None:
    place, east = LogId("anew", 0), both[0]
    known = prepared(both, "anew")
    here, there = (side.discovery.topics(["anew"], configs=False)["anew"].id for side in both)
    east.commit("late", {place: 4})
    mappings = [OffsetMapping(place, known, ids=ids) for ids in ((here, here), (there, there), (here, there))]
    assert [passed(both, "late", mapping, "anew").action for mapping in mappings] == ["waiting", "waiting", "moved"]


def join_share_group(address: str, group: str, topic: str) -> int:
    """Join a share group as a client of another library: ShareGroupHeartbeat version 1 (KIP-932), in compact fields.
    Returns the error code."""

    def compact(text: str) -> bytes:
        return bytes([len(text) + 1]) + text.encode()

    header = struct.pack(">hhih", 76, 1, 1, -1) + b"\0"  # no client id, no tagged fields
    member = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    body = compact(group) + compact(member) + struct.pack(">i", 0) + b"\0" + b"\x02" + compact(topic) + b"\0"
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 30.0) as connection, connection.makefile("rb") as answers:
        connection.sendall(struct.pack(">i", len(header + body)) + header + body)
        (size,) = struct.unpack(">i", answers.read(4))
        answer = answers.read(size)
    return int(struct.unpack(">h", answer[9:11])[0])  # after correlation id, tags and throttle time


def test_a_share_group_is_named_and_has_no_offsets_to_translate(both: tuple[Side, Side]) -> None:
    east, west = both
    east.create("shared")
    east.commit("share-not", {LogId("shared", 0): 0})
    wait_until(lambda: join_share_group(east.endpoint.address, "share-group", "shared") == 0, 60.0, "the group")
    groups = GroupSync(east.groups, west.groups)
    wait_until(lambda: "share-group" in east.groups.states(), 60.0, "the group to be listed")
    assert (groups.names(["/share-.*/"]), groups.shares) == (["share-not"], ["share-group"])
