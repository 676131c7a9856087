"""What the journal knows of a link after a restart, and under commands."""

import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest

from tests.journals import FakeJournal
from tests.unit.replication.test_link import NOW, ONE, ZERO, Rig, orders
from trueup.connectors.contract import LogId, Position
from trueup.state.common.errors import Stop
from trueup.state.replication.anomalies import PathChoice
from trueup.streams.replication.links.checkpoints import Copy, load
from trueup.streams.replication.links.snapshot import ClusterSnapshot, LinkFacts

LATE = LogId("pays", 0)


def waited(others: list[str], id_: str) -> Copy:
    """The copy of a topic that waited from its offset 7 on over a restart, after which it has this id. ``others``: the
    topics that were copied before."""
    rig = Rig(topics=["/.*/"], start="latest", paused_topics=["pays", *({"orders"} - {*others})])
    there = {**orders(2), "pays": (LATE,)}
    seen = ClusterSnapshot(there, ids={"pays": "p1"}, names=frozenset(there))
    rig.link.update(facts=LinkFacts(seen, ClusterSnapshot(there), NOW))
    rig.first = 7
    rig.round()
    rig.first, rig.link = 30, rig.restarted()
    rig.set("paused_topics", [])
    rig.link.update(facts=LinkFacts(seen._replace(ids={"pays": id_}), ClusterSnapshot(there), NOW))
    rig.starts = lambda declared, logs: dict.fromkeys(logs, 0 if declared.start == "earliest" else 30)
    rig.link.orders()
    return rig.link.copies[LATE]


@pytest.mark.parametrize("others", [[], ["orders"]], ids=["nothing is copied", "others are copied"])
@pytest.mark.parametrize(("id_", "start"), [("p1", 7), ("p2", 0)], ids=["same topic", "recreated"])
def test_a_topic_that_waits_begins_after_a_restart_where_it_began_to_wait(
    others: list[str], id_: str, start: int
) -> None:
    assert waited(others, id_).start == start


def test_a_topic_that_waits_begins_by_the_present_setting() -> None:
    rig = Rig(topics=["/.*/"], start="latest", paused_topics=["pays"])
    there = {**orders(2), "pays": (LATE,)}
    rig.link.update(facts=LinkFacts(ClusterSnapshot(there, names=frozenset(there)), ClusterSnapshot(there), NOW))
    rig.starts = lambda declared, logs: dict.fromkeys(logs, 0 if declared.start == "earliest" else 30)
    rig.round()
    rig.set("start", "earliest")
    rig.set("paused_topics", [])
    rig.link.orders()
    assert rig.link.copies[LATE].start == 0


@pytest.mark.parametrize("start", ["earliest", "group:gone"])
def test_a_changed_start_concerns_no_partition_that_was_copied(start: str) -> None:
    rig = Rig()
    rig.round(10, 20)
    rig.set("paused_topics", ["orders"])
    rig.set("start", start)

    def refuse(declared: object, _logs: object) -> dict[LogId, int]:
        raise Stop("the group", "none", "name another")

    rig.starts = refuse
    rig.link.orders()
    assert rig.restarted().copies[ZERO].offset == 10


def test_a_recreated_topic_that_is_reset_is_compared_before_it_is_copied() -> None:
    rig = Rig()
    rig.round(10, 20)
    seen = rig.link.snapshot.facts
    rig.link.update(facts=seen._replace(source=seen.source._replace(ids={"orders": "new"})))
    rig.link.copies[ZERO].source_id = rig.link.copies[ONE].source_id = "old"
    rig.link.reset({ZERO: 0, ONE: 0}, "earliest")
    assert [order for order in rig.link.orders() if not order.last] == []


def test_a_position_that_is_not_readable_is_not_replaced_by_a_first_offset() -> None:
    rig = Rig(topics=["/.*/"], paused_topics=["pays"])
    rig.link = rig.restarted(unreadable={LATE: "expected a signature"})
    there = {**orders(2), "pays": (LATE,)}
    rig.link.update(facts=LinkFacts(ClusterSnapshot(there, names=frozenset(there)), ClusterSnapshot(there), NOW))
    rig.round()
    assert ("links", b"east-west/pays-0") not in rig.journal.taken


def test_the_path_of_a_first_lease_is_in_the_journal_before_it_begins() -> None:
    rig = Rig()
    rig.link.orders()
    rig.link = rig.restarted()
    rig.link.update(choice=PathChoice("records", "small batches"))
    assert {order.lease.path for order in rig.link.orders()} == {"batches"}


def test_a_position_that_a_command_sets_is_not_overwritten_by_an_older_one_that_is_being_written() -> None:
    rig = Rig()
    rig.link.orders()
    begun, written, put = threading.Event(), threading.Event(), rig.journal.put

    def slow(records: Iterable[tuple[str, bytes, Any]]) -> None:
        begun.set()
        written.wait(60)
        put(records)

    rig.journal.put = slow  # type: ignore[method-assign]
    with ThreadPoolExecutor() as threads:
        older = threads.submit(rig.link._save, list(rig.link.copies.values()))
        begun.wait(60)
        rig.journal.put = put  # type: ignore[method-assign]
        newer = threads.submit(rig.link.reset, {ZERO: 7}, "7")
        wait([newer], 0.2)  # without a lock it ends now
        written.set()
        older.result(60)
        newer.result(60)
    assert rig.journal.taken["links", b"east-west/orders-0"]["offset"] == 7


def test_queues_whose_names_and_brokers_are_alike_keep_their_own_positions() -> None:
    journal, link = FakeJournal(), "east-west"
    alike = {LogId("a-b", 0, "c"): 5, LogId("a", 0, "b-c"): 7, LogId("a-b-c", 0): 9}
    for log, offset in alike.items():
        made = Copy(log, log, 0, Position(offset))
        journal.put(made.records(link, NOW))
    assert {log: copy.offset for log, copy in load(journal)[link].items()} == alike  # type: ignore[arg-type]


def test_a_partition_whose_position_is_not_readable_waits_for_a_reset() -> None:
    rig = Rig(start="latest")
    rig.link = rig.restarted(unreadable={ZERO: "expected a signature"})
    held = [a.source for order in rig.round(5, 5) for a in order.lease.assignments]
    error, saved = rig.link.copies[ZERO].error, newest_of(rig)
    rig.link.reset({ZERO: 7}, "7")
    again = [a for order in rig.link.orders() for a in order.lease.assignments if a.source == ZERO]
    assert (held, "expected a signature" in error, saved) == ([ONE], True, {ONE})
    assert [a.position.offset for a in again] == [7]


def newest_of(rig: Rig) -> set[LogId]:
    """The partitions with a position in the journal."""
    return {copy.source for _, copy in rig.journal.newest("links").values()}
