"""A target that returns without its data: detection, and the effects of a refill on both links."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import pytest

from tests.configuration import Effective, parse
from tests.journals import FakeJournal
from tests.unit.replication.fake_connector import NAME
from tests.unit.replication.test_link import done
from trueup.connectors.contract import LogId, Position, Run
from trueup.state.common.errors import Refused
from trueup.state.replication.anomalies import PathChoice
from trueup.state.replication.provenance import Refill
from trueup.state.settings.settings import change
from trueup.streams.replication.leases import Report
from trueup.streams.replication.links.checkpoints import Copy, load
from trueup.streams.replication.links.link import Link
from trueup.streams.replication.links.monitor import LinkMonitor
from trueup.streams.replication.links.refill import Refilling
from trueup.streams.replication.links.reset import Resetting
from trueup.streams.replication.links.snapshot import ClusterSnapshot, LinkFacts
from trueup.streams.replication.links.standing import ways_out
from trueup.streams.replication.links.worker import LeaseResult

ZERO, BILLS = LogId("orders", 0), LogId("bills", 0)
WHOLE = {ZERO: (0, 500), BILLS: (0, 200)}
EMPTY = {ZERO: (0, 0), BILLS: (0, 0)}


class World:
    """The clusters: id, topic ids and logs of each."""

    def __init__(self) -> None:
        self.clusters = {"east": "E", "west": "W", "south": "S"}
        self.ids = {name: {"orders": f"{name} o", "bills": f"{name} b"} for name in self.clusters}
        self.logs: dict[str, dict[LogId, tuple[int, int]]] = {name: dict(WHOLE) for name in self.clusters}

    def lose(self, cluster: str = "E2", ids: Mapping[str, str] | None = None) -> None:
        """East returns without data."""
        self.clusters["east"] = cluster
        self.ids["east"] = {"orders": "new o", "bills": "new b"} if ids is None else dict(ids)
        self.logs["east"] = {
            partition: ends for partition, ends in EMPTY.items() if partition.topic in self.ids["east"]
        }

    def side(self, name: str) -> ClusterSnapshot:
        ids = self.ids[name]
        topics = {
            topic: sorted({LogId(topic, 0), *(log for log in self.logs[name] if log.topic == topic)}) for topic in ids
        }
        return ClusterSnapshot(topics, ids, self.logs[name], "", self.clusters[name], frozenset(ids))


class FakeSides:
    """The part of `streams.replication.links.monitor.Sides` that these tests use."""

    def __init__(self, world: World, source: str, target: str) -> None:
        self._world, self._ends = world, (source, target)

    def look(self) -> LinkFacts:
        return LinkFacts(*(self._world.side(name) for name in self._ends), 1)

    def logs(self, partitions: Iterable[LogId], at_target: bool = False) -> dict[LogId, tuple[int, int]]:
        found = self._world.logs[self._ends[at_target]]
        return {partition: found[partition] for partition in partitions if partition in found}

    def offset(self, to: str, partitions: Iterable[LogId]) -> dict[LogId, int]:
        found = self.logs(partitions)
        return {log: int(to) if to.isdecimal() else ends[to == "latest"] for log, ends in found.items()}

    def sizes(self, partitions: Iterable[LogId]) -> dict[LogId, int]:
        return dict.fromkeys(partitions, 1_000)

    def __getattr__(self, name: str) -> Any:
        """Alignment, groups and heartbeats are created but not used."""
        return lambda *_more, **_named: None


class Rig:
    """Links, all fully copied. ``names``: source and target of each; by default one in each direction."""

    def __init__(self, names: Iterable[str] = ("east-west", "west-east")) -> None:
        common = {"topics": ["orders", "bills"], "mode": "enforce"}
        self.ends = {name: name.split("-") for name in names}
        self.settings = parse(
            {
                "kafka": {
                    name: {"bootstrap": f"{name}:9092", "bit": bit}
                    for bit, name in enumerate(("east", "west", "south"))
                },
                "links": {n: {"source": ends[0], "target": ends[1], **common} for n, ends in self.ends.items()},
            }
        )
        self.world, self.journal, self.notes = World(), FakeJournal(), list[tuple[str, ...]]()
        self.memory: dict[str, str] = {}
        self.watches: dict[str, LinkMonitor] = {}
        self.begin()
        for watch in self.watches.values():
            self.copy(watch.link)

    def begin(self, unreadable: Mapping[LogId, str] = MappingProxyType({})) -> None:
        """A run of the application. ``unreadable``: positions of the link east-west that are not readable."""
        self.watches.clear()
        for name, (source, target) in self.ends.items():
            bad = unreadable if name == "east-west" else {}
            known: dict[LogId, Copy] = load(self.journal).get(name, {})  # type: ignore[arg-type]
            known = {source: copy for source, copy in known.items() if source not in bad}
            link = Link(
                name,
                Effective(lambda: self.settings),
                self.journal,
                known,
                lambda _declared, sources: dict.fromkeys(sources, 0),
                lambda _progress: None,
                lambda: 1_000_000,
                lambda *_path: NAME,
                unreadable=bad,
            )
            compared = frozenset(log.topic for log in EMPTY)
            link.update(waiting={}, compared=compared, choice=PathChoice("batches", ""))
            sides: Any = FakeSides(self.world, source, target)
            note = lambda *result: self.notes.append(result)  # noqa: E731
            self.watches[name] = LinkMonitor(link, sides, self.watches, self.memory, note, self.memory.__setitem__)
        for watch in self.watches.values():
            watch.link.begin()
        self.look()

    def look(self) -> None:
        for _ in range(2):
            for watch in self.watches.values():
                watch.look()

    def copy(self, link: Link) -> None:
        """A round that copies to the end of the source; all leases end."""
        for _ in range(3):
            orders = link.orders()
            logs = link.snapshot.facts.source.logs
            link.take(
                [
                    LeaseResult(
                        [
                            Report(
                                "a",
                                1,
                                [
                                    done(
                                        o,
                                        a.source,
                                        (),
                                        position=Position(logs[a.source][1]),
                                        runs=(Run(0, 0, logs[a.source][1]),),
                                        target_end=logs[a.source][1],
                                    )
                                    for a in o.lease.assignments
                                ],
                            )
                        ],
                        None,
                    )
                    for o in orders
                ]
            )
            for copy in link.copies.values():
                copy.again_ms = 1 << 60
        assert link.orders() == []
        link.wake()

    def errors(self, name: str) -> set[str]:
        return {copy.error.partition(":")[0] for copy in self.watches[name].link.copies.values()}

    def refill(self) -> list[dict[str, Any]]:
        return Refilling(self.watches["west-east"]).begin()

    def lose(self) -> None:
        """East returns without data, and its refill begins."""
        self.world.lose()
        self.look()
        self.refill()
        self.look()

    def fill(self) -> None:
        """The refill copies to its fence."""
        self.copy(self.watches["west-east"].link)
        self.world.logs["east"] = dict(WHOLE)
        self.look()

    def reset(self, name: str, to: str) -> list[dict[str, Any]]:
        return Resetting(self.watches[name], None, to).begin()

    def copies(self, name: str) -> Mapping[LogId, Copy]:
        return self.watches[name].link.copies


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_nothing_is_wrong_with_a_target_that_has_its_data(rig: Rig) -> None:
    rig.look()
    assert (rig.errors("west-east"), Refilling(rig.watches["west-east"]).rows()) == ({""}, [])


@pytest.mark.parametrize(
    ("cluster", "ids"),
    [("E2", None), ("E2", {}), ("E", None), ("E", {}), ("E", {"orders": "east o", "bills": "east b"})],
)
def test_a_target_without_its_data_stops_the_link(rig: Rig, cluster: str, ids: dict[str, str] | None) -> None:
    rig.world.lose(cluster, ids)
    rig.look()
    assert rig.errors("west-east") == {"replication.target-replaced"}


def test_a_loss_is_noticed_by_the_next_run_too(rig: Rig) -> None:
    rig.world.lose("E2", {})
    rig.begin()
    assert rig.errors("west-east") == {"replication.target-replaced"}


def test_a_single_topic_that_was_deleted_stops_alone(rig: Rig) -> None:
    rig.world.ids["east"]["bills"], rig.world.logs["east"][BILLS] = "new b", (0, 0)
    rig.look()
    assert rig.errors("west-east") == {"", "replication.target-recreated"}


def test_a_refill_is_planned_by_topic(rig: Rig) -> None:
    rig.world.lose()
    rig.look()
    rows = Refilling(rig.watches["west-east"]).rows()
    assert [(row["topic"], row["records"], row["bytes"], row["stage"]) for row in rows] == [
        ("bills", 200, 1_000, "planned"),
        ("orders", 500, 1_000, "planned"),
    ]


def test_a_refill_copies_from_the_beginning_with_a_fence_at_the_end(rig: Rig) -> None:
    rig.world.lose()
    rig.look()
    rig.world.logs["west"][ZERO] = (10, 700)
    rig.refill()
    copy = rig.copies("west-east")[ZERO]
    assert (copy.position, copy.refill, copy.target_id) == (Position(10, chosen=True), Refill(500, 700), "new o")


def test_a_refill_outlives_the_application(rig: Rig) -> None:
    rig.world.lose()
    rig.look()
    rig.refill()
    rig.begin()
    assert rig.copies("west-east")[ZERO].refill == Refill(500, 500)


def test_the_opposite_link_begins_anew_with_the_refill(rig: Rig) -> None:
    rig.world.lose()
    rig.look()
    rig.refill()
    back = rig.copies("east-west")[ZERO]
    assert (back.position, back.excluded, back.source_id, len(back.map)) == (
        Position(0, chosen=True),
        False,
        "new o",
        0,
    )


def test_a_refill_that_is_repeated_begins_nothing_twice(rig: Rig) -> None:
    rig.world.lose()
    rig.look()
    rig.refill()
    rig.world.logs["west"][ZERO] = (0, 900)
    stages = [row["stage"] for row in rig.refill()]
    assert (stages, rig.copies("west-east")[ZERO].refill) == (["copying", "copying"], Refill(500, 500))


def test_a_refill_ends_at_its_fence_and_reports_it(rig: Rig) -> None:
    rig.lose()
    rig.fill()
    assert outcomes(rig) == ["begun", "done"]
    assert rig.errors("west-east") == {""}


def outcomes(rig: Rig) -> list[str]:
    return [note[2] for note in rig.notes if note[1] == "refill"]


def test_a_refill_whose_partitions_were_reset_is_cancelled(rig: Rig) -> None:
    rig.lose()
    rig.reset("west-east", "latest")
    rig.look()
    assert outcomes(rig) == ["begun", "cancelled"]


def test_a_refill_of_which_one_partition_was_reset_is_cancelled_when_the_others_have_ended(rig: Rig) -> None:
    rig.lose()
    Resetting(rig.watches["west-east"], ["orders-0"], "latest").begin()
    rig.look()
    while_it_runs = outcomes(rig)
    rig.fill()
    assert (while_it_runs, outcomes(rig)) == (["begun"], ["begun", "cancelled"])


def test_a_refill_that_follows_a_cancelled_one_is_done_at_its_end(rig: Rig) -> None:
    rig.lose()
    rig.reset("west-east", "earliest")
    rig.look()
    rig.refill()
    rig.look()
    rig.fill()
    assert outcomes(rig) == ["begun", "cancelled", "begun", "done"]


def test_what_has_lost_nothing_is_not_refilled(rig: Rig) -> None:
    with pytest.raises(Refused, match="the target topics are unchanged"):
        rig.refill()


def test_a_refill_of_what_was_purged_on_both_sides_names_the_command_that_continues_the_copy(rig: Rig) -> None:
    for cluster in ("east", "west"):
        rig.world.ids[cluster] = {"orders": f"{cluster} o 2", "bills": f"{cluster} b 2"}
        rig.world.logs[cluster] = dict(EMPTY)
    rig.look()
    with pytest.raises(Refused) as found:
        rig.refill()
    assert str(found.value) == (
        "expected a target of west-east that lost records; found none that a refill can restore; "
        "run `trueup link reset west-east --topic bills --to earliest --yes`; 1 more command in `trueup plan`"
    )


def test_a_topic_that_is_not_there_yet_waits(rig: Rig) -> None:
    rig.world.lose("E", {})
    rig.look()
    assert {row["stage"] for row in rig.refill()} == {"waiting"}


def test_a_lease_of_the_opposite_link_ends_before_the_fence_is_set(rig: Rig) -> None:
    rig.watches["east-west"].link.orders()
    rig.world.lose()
    rig.look()
    assert {row["stage"] for row in rig.refill()} == {"waiting"}


def test_what_came_back_from_the_new_topic_is_not_taken_for_what_was_lost(rig: Rig) -> None:
    rig.world.lose()
    rig.look()
    back = rig.watches["east-west"].link
    back.reset({ZERO: 0}, "earliest")
    back.copies[ZERO].position = Position(7)
    rig.world.logs["east"][ZERO] = (0, 7)
    assert {row["topic"]: row["stage"] for row in rig.refill()} == {"bills": "copying", "orders": "blocked"}


def test_the_opposite_link_is_not_reset_before_that_is_decided(rig: Rig) -> None:
    rig.world.lose()
    rig.look()
    with pytest.raises(Refused, match="west-east"):
        rig.reset("east-west", "earliest")
    rig.reset("west-east", "latest")
    assert {row["offset"] for row in rig.reset("east-west", "earliest")} == {0}


def test_an_empty_partition_that_is_being_copied_to_is_refilled_once_that_pauses(rig: Rig) -> None:
    """A link declared after the loss has copied nothing: the guard drops records that originate from its target."""
    rig.world.lose()
    link = rig.watches["west-east"].link
    link.copies.clear()
    rig.look()
    link.orders()
    while_it_copies = {row["stage"] for row in rig.refill()}
    rig.copy(link)
    link.copies.clear()
    assert (while_it_copies, {row["stage"] for row in rig.refill()}) == ({"waiting"}, {"copying"})


def test_a_stopped_copy_that_cannot_be_refilled_is_continued_by_the_commands_of_its_link(rig: Rig) -> None:
    """Both topics were recreated, and the opposite link was reset: this one has nothing left to restore."""
    for cluster in ("east", "west"):
        rig.world.ids[cluster]["orders"], rig.world.logs[cluster][ZERO] = f"{cluster} 2", (0, 7)
    rig.look()
    back = rig.watches["east-west"].link
    back.reset({ZERO: 0}, "earliest")
    back.copies[ZERO].position = Position(7)
    row = next(row for row in rig.refill() if row["topic"] == "orders")
    assert "`trueup describe link west-east` shows the commands that continue the copy" in row["reason"]
    assert [way.command for way in ways_out(rig.watches["west-east"]) if way.recommended] == [
        "trueup link reset west-east --topic orders --to earliest --yes"
    ]


def test_a_target_that_one_link_refilled_is_not_refilled_by_another_one() -> None:
    """Each of them would restore all records of the target."""
    rig = Rig(("east-west", "west-east", "south-west"))
    rig.world.ids["west"]["orders"], rig.world.logs["west"][ZERO] = "new o", (0, 0)
    rig.look()
    both = [Refilling(rig.watches[name]).rows()[0]["stage"] for name in ("east-west", "south-west")]
    Refilling(rig.watches["east-west"]).begin()
    (row,) = Refilling(rig.watches["south-west"]).begin()
    shown = [way.command for way in ways_out(rig.watches["south-west"])]
    rig.begin()
    again = Refilling(rig.watches["south-west"]).rows()[0]["stage"]
    assert (both, row["stage"], again) == (["planned", "planned"], "blocked", "blocked")
    assert row["reason"].startswith("another link refilled the target topic")
    assert shown == [f"trueup link reset south-west --topic orders --to {to} --yes" for to in ("earliest", "latest")]


def test_a_target_whose_refill_was_cancelled_is_refilled_by_another_link() -> None:
    rig = Rig(("east-west", "west-east", "south-west"))
    rig.world.ids["west"]["orders"], rig.world.logs["west"][ZERO] = "new o", (0, 0)
    rig.look()
    Refilling(rig.watches["east-west"]).begin()
    rig.reset("east-west", "latest")
    assert Refilling(rig.watches["south-west"]).rows()[0]["stage"] == "planned"


def test_a_link_that_a_refill_restarts_has_refilled_nothing_itself() -> None:
    rig = Rig(("east-west", "west-east", "south-east"))
    rig.world.ids["west"]["orders"], rig.world.logs["west"][ZERO] = "new o", (0, 0)
    rig.look()
    Refilling(rig.watches["east-west"]).begin()
    rig.world.logs["east"][ZERO] = (0, 0)
    rig.look()
    assert Refilling(rig.watches["south-east"]).rows()[0]["stage"] == "planned"


@pytest.mark.parametrize(
    ("names", "stage"),
    [(("east-west", "west-south", "south-east"), "blocked"), (("east-west", "south-east"), "planned")],
    ids=["a ring", "no way back"],
)
def test_records_of_the_new_target_log_that_came_back_over_other_clusters_are_not_refilled(
    names: tuple[str, ...], stage: str
) -> None:
    rig = Rig(names)
    rig.world.ids["east"]["orders"], rig.world.logs["east"][ZERO] = "new o", (0, 5)
    rig.look()
    refilling = Refilling(rig.watches["south-east"])
    before = refilling.rows()[0]["stage"]
    Resetting(rig.watches["east-west"], ["orders-0"], "earliest").begin()
    rig.look()
    (between,) = refilling.rows()
    rig.watches["east-west"].link.update(compared=frozenset({"orders", "bills"}))
    rig.copy(rig.watches["east-west"].link)
    (after,) = refilling.rows()
    assert (before, between["stage"], after["stage"]) == ("planned", "planned", stage)


def test_a_refill_does_not_wait_for_an_opposite_link_that_excludes_the_topic(rig: Rig) -> None:
    rig.world.ids["east"]["orders"], rig.world.logs["east"][ZERO] = "new o", (0, 0)
    rig.settings = change(rig.settings, "links.east-west.exclude", ["orders"])
    for side in ("source", "target"):
        facts = rig.watches["east-west"].link.snapshot.facts
        seen = getattr(facts, side)
        gone = seen._replace(topics={"bills": (BILLS,)}, ids={"bills": seen.ids["bills"]}, logs={BILLS: (0, 200)})
        looks = facts._replace(**{side: gone})
        rig.watches["east-west"].sides.look = lambda looks=looks: looks  # type: ignore[method-assign,misc]
        rig.watches["east-west"].look()
    rig.watches["west-east"].look()
    assert [row["stage"] for row in Refilling(rig.watches["west-east"]).rows()] == ["planned"]
