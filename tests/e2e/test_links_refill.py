"""A cluster loses all its data: the loss is detected, and both paths refill it through kills while writers continue."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.e2e.trueup import Trueup
from tests.replication.audit import audit, ends, read
from tests.replication.groups import commit_offset, committed_offset
from tests.replication.pair import Pair
from tests.replication.writers import Site, Writers

pytestmark = [pytest.mark.servers, pytest.mark.release]
PATHS = {"whole": "batches", "single": "records"}
SLOW, SLOWEST = 5, 1
"""Records per second: until the groups' place is copied; and during the kills, so that they end before the refill also
on a machine with other work."""
GROUP, PLACE = "readers", 20
NEXT = "next"
"""A further link from east, which copies under other names, and its group."""
SETTINGS = {"retention.ms": "-1", "max.message.bytes": "2097152"}


class World:
    """Two clusters with a topic for each path, two opposite links for each topic, another link, and the application."""

    def __init__(self, pair: Pair, root: Path) -> None:
        self.pair = pair
        self.topics = {name: pair.topic(2, east=SETTINGS, west=SETTINGS) for name in PATHS}
        common = {"mode": "enforce", "lease_s": 2, "heartbeat_s": 1}
        links: dict[str, dict[str, object]] = {}
        for name, path in PATHS.items():
            own = {**common, "topics": [self.topics[name]], "copy": path}
            links[name] = {"source": "east", "target": "west", **own}
            links[f"{name}-back"] = {"source": "west", "target": "east", **own, "groups": [GROUP]}
        onward = {"topics": [self.topics["whole"]], "rename": "next.{topic}", "groups": [NEXT]}
        links[NEXT] = {"source": "east", "target": "west", **common, **onward}
        brokers = {"east": (pair.east, 0), "west": (pair.west, 1)}
        kafka = {name: {"bootstrap": broker.bootstrap, "bit": bit} for name, (broker, bit) in brokers.items()}
        self.trueup = Trueup(None, root, kafka=kafka, links=links)

    def sites(self, name: str) -> list[Site]:
        return [self.pair.site(side, self.topics[name], 2) for side in ("east", "west")]

    def writers(self, kinds: tuple[str, ...], sides: slice = slice(None)) -> Writers:
        """Writers on both topics."""
        return Writers([site for name in PATHS for site in self.sites(name)[sides]], kinds, 60.0)

    def link(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.trueup.api(f"links/{name}")
        return found

    def lose_east(self) -> None:
        """Restart east as a new cluster without topics."""
        shutil.rmtree(self.pair.east.root / "data")
        self.pair.east.up()

    def limit(self, records_per_s: int) -> None:
        for name in PATHS:
            self.trueup.set(f"links.{name}-back.records_per_s", records_per_s)

    def copied(self, name: str) -> int:
        """The lowest refilled offset of the partitions of a path."""
        return min(copy["offset"] for copy in self.link(f"{name}-back")["copies"])

    def refilling(self) -> list[str]:
        """Paths whose refill is not complete."""
        return [name for name in PATHS if any(c["refill_until"] >= 0 for c in self.link(f"{name}-back")["copies"])]


@pytest.fixture(scope="module")
def world(new_root: Callable[[], Path]) -> Iterator[World]:
    with Pair(new_root) as pair:
        made = World(pair, new_root())
        with made.trueup:
            made.trueup.start()
            yield made


@pytest.fixture(scope="module")
def lost(world: World) -> dict[str, set[tuple[object, ...]]]:
    """East lost its data and the links detected it. Returns the previous content of each topic."""
    with world.writers(("idempotent", "transactional")) as writers:
        writers.wait_acknowledged(100)
    world.trueup.until("both clusters to be level", lambda: all(level(world.sites(name)) for name in PATHS))
    before = {name: keys(world.sites(name)[1]) for name in PATHS}
    for topic in world.topics.values():
        commit_offset(world.pair.west.bootstrap, GROUP, topic, PLACE)
    world.pair.east.kill()
    with world.writers(("zipped",), slice(1, 2)) as writers:
        writers.wait_acknowledged(50)
    world.lose_east()
    world.trueup.until("the loss to be noticed", lambda: all(replaced(world.link(f"{name}-back")) for name in PATHS))
    return before


@pytest.fixture(scope="module")
def refilled(world: World, lost: dict[str, set[tuple[object, ...]]]) -> Writers:
    """The refill of east is complete, despite kills and with concurrent writers on both sides. Returns the writers."""
    trueup = world.trueup
    world.limit(SLOW)
    for name in PATHS:
        answer = trueup.run("link", "refill", f"{name}-back", "--yes", "--wait", "240")
        assert answer.code == 0, (answer, trueup.diagnostics())
    # New records at east come after the next record of the group.
    trueup.until("the groups to follow", lambda: all(group_at(world.sites(name)[0]) > 0 for name in PATHS))
    trueup.until("the groups' place to be copied", lambda: all(world.copied(name) > PLACE for name in PATHS))
    world.limit(SLOWEST)
    with world.writers(("leader-only",)) as writers:
        for victim in trueup.until("leases that are held", trueup.workers):
            victim.kill()
        trueup.until("a lease after that", lambda: all(world.link(f"{name}-back")["leases"] for name in PATHS))
        trueup.kill()
        trueup.start()
        world.pair.east.restart()
        assert world.refilling() == [*PATHS], "it was over before the kills: copy more slowly"
        world.limit(0)
        # Before that, west contains records of east that east does not have. The audit does not wait for these.
        trueup.until("the refill to end", lambda: not world.refilling())
    return writers


def test_a_loss_stops_the_link_and_no_group_is_moved_to_the_empty_cluster(
    world: World, lost: dict[str, set[tuple[object, ...]]]
) -> None:
    assert (world.link("whole-back")["state"], group_at(world.sites("whole")[0])) == ("stopped", -1)
    assert (lost["whole"] != set(), world.trueup.run("link", "refill", "whole-back").code) == (True, 3)


@pytest.mark.parametrize("name", PATHS)
def test_every_record_is_there_once_and_in_order_and_none_comes_back(
    world: World, lost: dict[str, set[tuple[object, ...]]], refilled: Writers, name: str
) -> None:
    mine = Writers([], ())
    mine.all = [writer for writer in refilled.all if writer.site.topic == world.topics[name]]
    found = audit(world.sites(name), mine)
    assert found.right, found
    assert lost[name] <= keys(world.sites(name)[0])


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.usefixtures("refilled")
def test_a_group_goes_on_with_the_record_that_it_would_have_read_next(world: World, name: str) -> None:
    east, west = world.sites(name)
    wanted = key_at(west, PLACE)
    world.trueup.until(
        "the group to be there", lambda: (at := group_at(east)) >= 0 and key_at(east, at) == wanted, 60.0
    )


@pytest.mark.usefixtures("refilled")
def test_a_group_moves_over_the_next_link_after_it_has_read_all_refilled_records(world: World) -> None:
    trueup, (east, west) = world.trueup, world.sites("whole")
    answer = trueup.run("link", "reset", NEXT, "--to", "earliest", "--yes")
    assert answer.code == 0, (answer, trueup.diagnostics())
    commit_offset(east.bootstrap, NEXT, east.topic, 1)
    reasons = lambda: [each["reason"] for each in world.link(NEXT)["untranslated"]]  # noqa: E731
    trueup.until("the group to wait", lambda: any("the end of the refilled records" in why for why in reasons()))
    moved = lambda: committed_offset(west.bootstrap, NEXT, f"next.{east.topic}")  # noqa: E731
    before = moved()
    commit_offset(east.bootstrap, NEXT, east.topic, ends(east)[0])
    trueup.until("the group to move", lambda: moved() >= 0)
    assert before == -1


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.usefixtures("refilled")
def test_the_topic_has_its_settings_again(world: World, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": world.pair.east.bootstrap})
    asked = ConfigResource(ResourceType.TOPIC, world.topics[name])
    found = admin.describe_configs([asked])[asked].result(30)
    assert {key: found[key].value for key in SETTINGS} == SETTINGS


def replaced(link: dict[str, Any]) -> bool:
    return all("replication.target-replaced" in copy["error"] for copy in link["copies"])


def keys(site: Site) -> set[tuple[object, ...]]:
    return {(stream, record.number) for stream, records in read(site).items() for record in records}


def level(sites: list[Site]) -> bool:
    return keys(sites[0]) == keys(sites[1])


def group_at(site: Site) -> int:
    return committed_offset(site.bootstrap, GROUP, site.topic)


def key_at(site: Site, offset: int) -> bytes | None:
    """The key of the first record that a consumer reads from this offset."""
    consumer = Consumer(
        {"bootstrap.servers": site.bootstrap, "group.id": "look", "isolation.level": "read_committed", "log_level": 0}
    )
    consumer.assign([TopicPartition(site.topic, 0, offset)])
    message = consumer.poll(60)
    consumer.close()
    assert message is not None
    return message.key()
