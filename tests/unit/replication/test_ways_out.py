"""Whatever happens to both clusters of two opposite links, the commands that are shown continue the copy."""

import shlex
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from typing import Any

import pytest

from tests.configuration import parse
from tests.unit.replication.test_refill import BILLS, ZERO, Rig
from trueup.connectors.contract import LogId, Position
from trueup.state.common.errors import Refused
from trueup.streams.replication.links.checkpoints import Copy
from trueup.streams.replication.links.monitor import LinkMonitor
from trueup.streams.replication.links.refill import Refilling
from trueup.streams.replication.links.reset import Resetting
from trueup.streams.replication.links.standing import RecoveryOption, ways_out

BEFORE = 2
"""Looks before a command: some events must be seen twice."""
MOST = 8
"""Commands per link that must be enough: one per topic, and one after an opposite link was refilled."""


def kept(_rig: Rig, _cluster: str, _topic: str) -> None:
    """Nothing happens."""


def recreated(rig: Rig, cluster: str, topic: str) -> None:
    rig.world.ids[cluster][topic], rig.world.logs[cluster][LogId(topic, 0)] = f"{cluster} {topic} 2", (0, 0)


def written(rig: Rig, cluster: str, topic: str) -> None:
    recreated(rig, cluster, topic)
    rig.world.logs[cluster][LogId(topic, 0)] = (0, 900)


def emptied(rig: Rig, cluster: str, topic: str) -> None:
    rig.world.logs[cluster][LogId(topic, 0)] = (0, 0)


def shortened(rig: Rig, cluster: str, topic: str) -> None:
    rig.world.logs[cluster][LogId(topic, 0)] = (0, 50)


def deleted(rig: Rig, cluster: str, topic: str) -> None:
    del rig.world.ids[cluster][topic], rig.world.logs[cluster][LogId(topic, 0)]


def replaced(rig: Rig, cluster: str, topic: str) -> None:
    recreated(rig, cluster, topic)
    rig.world.clusters[cluster] = f"{cluster} 2"


EVENTS = (kept, recreated, written, emptied, shortened, deleted, replaced)
Event = Callable[[Rig, str, str], None]


def align(rig: Rig) -> None:
    """What the links' alignment does: it creates missing target topics, except for recreated source topics, and then
    records may be copied."""
    for watch in rig.watches.values():
        source, target = watch.link.declared.source, watch.link.declared.target
        for topic in sorted({*watch.link.topics(rig.world.ids[source])} - watch.link.others(rig.world.ids[source])):
            if topic not in rig.world.ids[target]:
                recreated(rig, target, topic)


def carry_out(rig: Rig, watch: LinkMonitor, way: RecoveryOption) -> None:
    """Execute a command line as it is shown."""
    words = shlex.split(way.command)
    if words[1:3] == ["config", "set"]:
        return exclude(rig, words[3].split(".")[1], words[4].rpartition(",")[2])
    other = rig.watches[words[3]]
    if words[2] == "refill":
        Refilling(other).begin()
        return None
    options = dict(zip(words[4::2], words[5::2], strict=False))
    chosen = [options["--partition"]] if "--partition" in options else [f"{options['--topic']}-0"]
    assert other is watch
    Resetting(other, chosen, options["--to"]).begin()
    return None


def exclude(rig: Rig, link: str, topic: str) -> None:
    links: dict[str, dict[str, Any]] = {}
    for name, watch in rig.watches.items():
        declared = watch.link.declared
        left = [*declared.exclude, *([topic] if name == link else [])]
        links[name] = {
            "source": declared.source,
            "target": declared.target,
            "topics": ["orders", "bills"],
            "mode": "enforce",
            "exclude": left,
        }
    rig.settings = parse(
        {
            "kafka": {"east": {"bootstrap": "e:9092", "bit": 0}, "west": {"bootstrap": "w:9092", "bit": 1}},
            "links": links,
        }
    )


def stopped(rig: Rig) -> dict[str, list[str]]:
    """Partitions that wait for an operator, by link."""
    found: dict[str, list[str]] = {}
    for name, watch in rig.watches.items():
        for copy in watch.link.current():
            if copy.excluded or gone(rig, watch, copy):
                found.setdefault(name, []).append(f"{copy.source}: {copy.error}")
    return found


def gone(rig: Rig, watch: LinkMonitor, copy: Any) -> bool:
    return copy.source.topic not in rig.world.ids[watch.link.declared.source]


def follow(rig: Rig) -> list[str]:
    """Execute the recommended commands until there is none. Returns them."""
    done: list[str] = []
    for _ in range(MOST * len(rig.watches)):
        align(rig)
        for _ in range(BEFORE):
            rig.look()
        shown = [(watch, way) for watch in rig.watches.values() for way in ways_out(watch) if way.recommended]
        if not shown:
            break
        done.append(shown[0][1].command)
        carry_out(rig, *shown[0])
    return done


@pytest.mark.parametrize(("here", "there"), [*product(EVENTS, EVENTS)])
@pytest.mark.parametrize(
    ("links", "topics"),
    [
        (("east-west", "west-east"), ("orders",)),
        (("east-west", "west-east"), ("orders", "bills")),
        (("east-west",), ("orders", "bills")),
    ],
)
def test_the_recommended_commands_continue_every_copy(
    here: Event, there: Event, links: tuple[str, ...], topics: tuple[str, ...]
) -> None:
    rig = Rig()
    for name in set(rig.watches) - set(links):
        del rig.watches[name]
    for topic in topics:
        here(rig, "east", topic)
        there(rig, "west", topic)
    rig.look()
    shown = [way for watch in rig.watches.values() for way in ways_out(watch)]
    assert bool(shown) == bool(stopped(rig))
    done = follow(rig)
    rig.look()
    assert (stopped(rig), [way for watch in rig.watches.values() for way in ways_out(watch)]) == ({}, []), done


@pytest.mark.parametrize("event", [recreated, written])
def test_topics_that_were_purged_on_both_sides_begin_again_by_one_reset_of_each_link(event: Event) -> None:
    rig = Rig()
    for cluster, topic in product(("east", "west"), ("orders", "bills")):
        event(rig, cluster, topic)
    rig.look()
    before = {name: len(texts) for name, texts in stopped(rig).items()}
    for name in rig.watches:
        rig.reset(name, "earliest")
    rig.look()
    assert (before, stopped(rig), {copy.offset for n in rig.watches for copy in rig.copies(n).values()}) == (
        {"east-west": 2, "west-east": 2},
        {},
        {0},
    )


@pytest.mark.parametrize("links", [("east-west", "west-east"), ("east-west",)])
def test_a_partition_whose_position_is_not_readable_is_offered_repeated_records_before_lost_ones(
    links: tuple[str, ...],
) -> None:
    rig = Rig()
    rig.begin(unreadable={ZERO: "expected a signature"})
    for name in set(rig.watches) - set(links):
        del rig.watches[name]
    rig.watches["east-west"].link.orders()
    rig.look()
    shown = [(way.command, way.recommended) for way in ways_out(rig.watches["east-west"])]
    follow(rig)
    copy = rig.copies("east-west")[ZERO]
    assert shown == [
        ("trueup link reset east-west --topic orders --to earliest --yes", True),
        ("trueup link reset east-west --topic orders --to latest --yes", False),
    ]
    assert (copy.offset, stopped(rig)) == (0, {})


def test_a_reset_is_not_undone_by_an_observation_that_began_before_it() -> None:
    """The monitor has taken the former position; then an operator resets the link to a higher offset."""
    rig = Rig()
    for cluster in ("east", "west"):
        rig.world.ids[cluster]["orders"], rig.world.logs[cluster][ZERO] = f"{cluster} new", (0, 5)
    rig.world.logs["east"][ZERO] = (0, 2_000)
    rig.look()
    watch = rig.watches["east-west"]
    look = watch.sides.look

    def slow() -> Any:
        watch.sides.look = look  # type: ignore[method-assign]
        facts = look()
        watch.link.reset({ZERO: 2_000}, "latest")
        return facts

    watch.sides.look = slow  # type: ignore[method-assign]
    watch.look()
    assert (watch.link.copies[ZERO].excluded, watch.link.copies[ZERO].error) == (False, "")


def test_a_refill_of_a_recreated_source_does_not_hide_its_records_from_other_clusters() -> None:
    """Records of the new log were never at the target, so they are not marked as having passed it."""
    rig = Rig()
    recreated(rig, "east", "orders")
    written(rig, "west", "orders")
    rig.look()
    Refilling(rig.watches["west-east"]).begin()
    refill = rig.copies("west-east")[ZERO].refill
    assert refill is not None
    assert (refill.held, refill.until) == (0, 900)


def test_a_reset_sets_and_records_nothing_for_a_topic_that_does_not_exist() -> None:
    rig = Rig()
    deleted(rig, "east", "orders")
    deleted(rig, "east", "bills")
    rig.look()
    before = list(rig.notes)
    with pytest.raises(Refused, match="east"):
        rig.reset("east-west", "earliest")
    assert rig.notes == before


def test_a_reset_names_the_partitions_that_it_did_not_set() -> None:
    rig = Rig()
    deleted(rig, "east", "orders")
    rig.look()
    rows = {row["partition"]: (row["offset"], row["reason"]) for row in rig.reset("east-west", "earliest")}
    assert rows == {str(ZERO): (-1, "east does not have the topic"), str(BILLS): (0, "")}


def test_a_reset_that_is_only_shown_changes_nothing() -> None:
    rig = Rig()
    rows = Resetting(rig.watches["east-west"], None, "earliest").rows()
    copies = rig.copies("east-west").values()
    assert ({row["offset"] for row in rows}, {copy.offset for copy in copies}) == ({0}, {500, 200})


def begun_anew(rig: Rig, ids: bool = True) -> None:
    """Another run, of which the journal knows the first leases only. ``ids``: whether topics have ids."""
    rig.journal.taken.clear()
    for cluster in ("east", "west"):
        rig.world.ids[cluster] = {topic: made if ids else "" for topic, made in rig.world.ids[cluster].items()}
    rig.begin()
    assert rig.watches["east-west"].link.orders() != []


@pytest.mark.parametrize("cluster", ["east", "west"])
def test_a_topic_that_is_recreated_before_the_first_report_is_not_taken_for_the_one_that_was_copied(
    cluster: str,
) -> None:
    rig = Rig()
    begun_anew(rig)
    written(rig, cluster, "orders")
    rig.begin()
    rule = "replication.topic-recreated" if cluster == "east" else "replication.target-recreated"
    assert rig.copies("east-west")[ZERO].error.startswith(rule)
    assert rig.watches["east-west"].link.wanted().keys() >= {BILLS}
    assert [way.topic for way in ways_out(rig.watches["east-west"]) if way.recommended] == ["orders"]


def test_a_first_lease_of_topics_without_ids_continues_after_a_restart() -> None:
    rig = Rig()
    begun_anew(rig, ids=False)
    rig.begin()
    assert (stopped(rig), rig.copies("east-west")[ZERO].source_id) == ({}, "")


def test_a_copy_that_begins_beyond_the_end_of_its_log_is_shown_commands() -> None:
    """The topic has no id, and was recreated before anything was copied from its former end on."""
    rig = Rig()
    begun_anew(rig, ids=False)
    copy = rig.copies("east-west")[ZERO]
    copy.start = 500
    rig.world.logs["east"][ZERO] = (0, 3)
    rig.look()
    shown = [way.command for way in ways_out(rig.watches["east-west"])]
    assert copy.error == "replication.source-lost-records: the copy begins at 500, the source ends at 3"
    assert shown == [f"trueup link reset east-west --topic orders --to {to} --yes" for to in ("earliest", "latest")]
    follow(rig)
    assert (copy.offset, stopped(rig)) == (0, {})


def recreated_with_fewer_partitions() -> Rig:
    """One link, whose source topic was recreated without a partition that was copied."""
    rig, one = Rig(), LogId("orders", 1)
    del rig.watches["west-east"]
    link = rig.watches["east-west"].link
    link.copies[one] = Copy(one, one, 0, Position(10))
    link.reset({one: 10}, "10")
    recreated(rig, "east", "orders")
    rig.look()
    return rig


def test_a_partition_that_a_recreated_topic_does_not_have_is_forgotten_at_its_reset() -> None:
    rig = recreated_with_fewer_partitions()
    rows = {row["partition"]: (row["offset"], row["reason"], row["gone"]) for row in rig.reset("east-west", "earliest")}
    rig.look()
    rig.begin()
    assert rows["orders-1"] == (-1, "the recreated topic at east does not have it; its position is forgotten", True)
    assert (rig.copies("east-west").keys(), stopped(rig).get("east-west")) == ({ZERO, BILLS}, None)


def test_the_reset_of_a_partition_that_only_its_former_topic_had_is_not_refused() -> None:
    rig = recreated_with_fewer_partitions()
    done = follow(rig)
    assert done[-1] == "trueup link reset east-west --partition orders-1 --to earliest --yes"
    assert (rig.copies("east-west").keys(), stopped(rig)) == ({ZERO, BILLS}, {})


@pytest.mark.parametrize(("named", "kept"), [(None, True), (["orders-1"], False)], ids=["all", "named"])
def test_a_partition_without_an_id_that_the_source_does_not_show_is_forgotten_if_it_is_named(
    named: list[str] | None, kept: bool
) -> None:
    rig = recreated_with_fewer_partitions()
    rig.world.ids["east"] = dict.fromkeys(rig.world.ids["east"], "")
    link = rig.watches["east-west"].link
    link.copies[LogId("orders", 1)].source_id = ""
    with suppress(Refused):
        Resetting(rig.watches["east-west"], named, "earliest").begin()
    assert (LogId("orders", 1) in link.copies) is kept


def set_without_an_id() -> Rig:
    """One link. A refill of the opposite link set a partition while its topic did not exist, and the new topic does not
    have the partition."""
    rig, one = Rig(), LogId("orders", 1)
    del rig.watches["west-east"]
    rig.watches["east-west"].link.copies[one] = Copy(one, one, 0, Position(0, chosen=True))
    rig.look()
    return rig


def test_a_partition_that_its_topic_never_had_is_forgotten_at_its_reset() -> None:
    rig = set_without_an_id()
    done = follow(rig)
    assert (done, rig.copies("east-west").keys(), stopped(rig)) == (
        ["trueup link reset east-west --partition orders-1 --to earliest --yes"],
        {ZERO, BILLS},
        {},
    )


def test_a_partition_that_its_topic_gets_later_is_copied_from_its_position() -> None:
    rig, one = set_without_an_id(), LogId("orders", 1)
    rig.world.logs["east"][one] = rig.world.logs["west"][one] = (0, 3)
    rig.look()
    copy = rig.copies("east-west")[one]
    assert (ways_out(rig.watches["east-west"]), copy.source_id, copy.excluded) == (
        [],
        rig.world.ids["east"]["orders"],
        False,
    )
