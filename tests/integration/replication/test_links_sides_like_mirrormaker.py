"""Scenarios of MirrorMaker 2's tests (MirrorConnectorsIntegrationBaseTest of Apache Kafka) for links: groups, settings
and partitions. Topics keep their names, as with IdentityReplicationPolicy."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.replication.mirror import Side, copy, sides
from trueup.connectors.contract import LogId
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.replication.config_sync import Alignment
from trueup.connectors.replication.group_sync import Checkpoint, GroupSync, OffsetMapping
from trueup.state.replication.config_sync import Action, AlignmentPolicy, ChangeKind, diff
from trueup.state.replication.offset_map import OffsetMap, from_records
from trueup.state.replication.settings import EXCLUDED

pytestmark = pytest.mark.servers

GROUP = "consumers"


@pytest.fixture(scope="module")
def both(new_root: Callable[[], Path]) -> Iterator[tuple[Side, Side]]:
    with sides(new_root()) as found:
        yield found


def align(both: tuple[Side, Side], topic: str, exclude: tuple[str, ...] = EXCLUDED) -> None:
    """One pass over a topic. Waits until the changes are visible at the target."""
    alignment = Alignment(*(side.cluster for side in both))

    def due() -> int:
        seen = alignment.look({topic: topic})
        actions = diff(
            seen.source, seen.target, AlignmentPolicy({topic: topic}, exclude=exclude, known=alignment.known())
        )
        assert {outcome.result for outcome in alignment.apply(actions)} <= {"done"}
        return len(actions)

    wait_until(lambda: due() == 0, 180.0, f"nothing left to align of {topic}")


def checkpoint(both: tuple[Side, Side], group: str, maps: dict[LogId, OffsetMap]) -> dict[LogId, Checkpoint]:
    ways = {place: OffsetMapping(place, known) for place, known in maps.items()}
    return {row.source: row for row in GroupSync(both[0].groups, both[1].groups).sync([group], ways)}


def write(side: Side, topic: str, start: int, end: int, partition: int = 0) -> None:
    side.write(topic, [str(number) for number in range(start, end)], partition)


def test_a_group_at_the_end_of_the_source_is_at_the_end_of_the_target(both: tuple[Side, Side]) -> None:
    east, west = both
    places = [LogId("ends", number) for number in range(3)]
    east.create("ends", 3)
    align(both, "ends")
    for place in places:
        write(east, "ends", 0, 10 + place.number, place.number)
    east.commit("at-end", {place: log.end for place, log in east.discovery.logs(places).items()})
    checkpoint(both, "at-end", {place: copy(east, west, "ends", partition=place.number) for place in places})
    ends = {place: log.end for place, log in west.discovery.logs(places).items()}
    assert west.groups.offsets(["at-end"])["at-end"] == ends


def test_a_group_far_behind_the_copy_is_translated_to_the_record(both: tuple[Side, Side]) -> None:
    east, west = both
    place = LogId("behind", 0)
    for side in both:
        side.create("behind")
    write(west, "behind", 1000, 1007)
    write(east, "behind", 0, 500)
    known = copy(east, west, "behind")
    translated = []
    for offset in (3, 137, 250, 499):
        east.commit("behind", {place: offset})
        translated.append(checkpoint(both, "behind", {place: known})[place].translated)
    assert translated == [10, 144, 257, 506]


def test_an_empty_partition_does_not_keep_the_others(both: tuple[Side, Side]) -> None:
    east, west = both
    places = [LogId("partly", number) for number in range(2)]
    east.create("partly", 2)
    align(both, "partly")
    write(east, "partly", 0, 5, 1)
    east.commit("partly", {places[0]: 0, places[1]: 5})
    checkpoint(both, "partly", {place: copy(east, west, "partly", partition=place.number) for place in places})
    assert west.groups.offsets(["partly"])["partly"] == {places[0]: 0, places[1]: 5}


def test_no_checkpoint_while_nothing_was_copied(both: tuple[Side, Side]) -> None:
    east, west = both
    place = LogId("none", 0)
    for side in both:
        side.create("none")
    write(east, "none", 0, 5)
    east.commit("none", {place: 3})
    row = checkpoint(both, "none", {place: OffsetMap()})[place]
    assert (row.action, west.groups.offsets(["none"])["none"]) == ("waiting", {})


def test_checkpoints_rise_through_restarts(both: tuple[Side, Side]) -> None:
    east, west = both
    place = LogId("restarts", 0)
    for side in both:
        side.create("restarts")
    known, seen = OffsetMap(), []
    for number in range(4):
        write(east, "restarts", number * 10, number * 10 + 10)
        east.commit("restarts", {place: number * 10 + 5})
        known = from_records(copy(east, west, "restarts", known).records())
        seen.append(checkpoint(both, "restarts", {place: known})[place].translated)
    assert seen == [5, 15, 25, 35]


def test_a_group_that_left_the_target_is_followed_again(both: tuple[Side, Side]) -> None:
    east, west = both
    place = LogId("leaves", 0)
    for side in both:
        side.create("leaves")
    write(east, "leaves", 0, 10)
    known = {place: copy(east, west, "leaves")}
    east.commit("leaves", {place: 4})
    west.commit("leaves", {place: 1})
    with west.member("leaves", "leaves"):
        during = checkpoint(both, "leaves", known)[place].action
    wait_until(lambda: west.groups.states()["leaves"] == "empty", 180.0, "the group to be empty")
    assert (during, checkpoint(both, "leaves", known)[place].action) == ("active", "moved")


def test_consumers_fail_over_and_back(both: tuple[Side, Side]) -> None:
    east, west = both
    place = LogId("fails", 0)
    for side in both:
        side.create("fails")
    write(east, "fails", 0, 20)
    there = copy(east, west, "fails")
    east.commit(GROUP, {place: 0})
    read = east.consume(GROUP, "fails", 8)
    checkpoint(both, GROUP, {place: there})
    read += west.consume(GROUP, "fails", 7)
    GroupSync(west.groups, east.groups).sync([GROUP], {place: OffsetMapping(place, there, reverse=True)})
    read += east.consume(GROUP, "fails", 5)
    assert read == [str(number) for number in range(20)]


def test_settings_follow_but_for_those_left_out(both: tuple[Side, Side]) -> None:
    east, west = both
    east.create("settings", 1, delete_retention_ms="1000", min_insync_replicas="1", segment_ms="8000000")
    align(both, "settings")
    configs = west.discovery.topics(["settings"])["settings"].configs
    followed = [configs[name].own for name in ("delete.retention.ms", "segment.ms", "min.insync.replicas")]
    assert (followed, configs["delete.retention.ms"].value) == ([True, True, False], "1000")


def test_a_setting_taken_off_at_the_source_goes_back_to_the_targets_default(both: tuple[Side, Side]) -> None:
    east, west = both
    for side in both:
        side.create("taken", 1, delete_retention_ms="2000")
    change(east, Action(ChangeKind.SET, "taken", "", "", configs={"delete.retention.ms": None}))
    wait_until(lambda: not own(east, "taken", "delete.retention.ms"), 180.0, "the source to have the default")
    align(both, "taken")
    assert not own(west, "taken", "delete.retention.ms")


def test_partitions_added_at_the_source_are_added_and_groups_follow_there(both: tuple[Side, Side]) -> None:
    east, west = both
    east.create("grows", 1)
    align(both, "grows")
    change(east, Action(ChangeKind.GROW, "grows", "", "", 3))
    wait_until(lambda: len(east.discovery.topics(["grows"])["grows"].leaders) == 3, 180.0, "the source to have grown")
    align(both, "grows")
    added = LogId("grows", 2)
    write(east, "grows", 0, 6, 2)
    east.commit("grows", {added: 4})
    row = checkpoint(both, "grows", {added: copy(east, west, "grows", partition=2)})[added]
    assert (len(west.discovery.topics(["grows"])["grows"].leaders), row.action, row.translated) == (3, "moved", 4)


def change(side: Side, action: Action) -> None:
    """Apply an action as an operator of a cluster."""
    [outcome] = Alignment(side.cluster, side.cluster).apply([action])
    assert outcome.result == "done"


def own(side: Side, topic: str, setting: str) -> bool:
    """Whether the topic overrides this setting."""
    return side.discovery.topics([topic])[topic].configs[setting].own
