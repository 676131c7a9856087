"""Records of the present target log that came back to the source over other clusters: a refill would repeat them."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.replication.links import LOG, copied
from trueup.connectors.contract import LogId, Position
from trueup.streams.replication.links.checkpoints import Copy
from trueup.streams.replication.links.standing import Standings

OTHER, QUEUE = LogId("orders", 1), LogId("orders", 0, "store-0")


def as_link(link: Any) -> Any:
    """The link with the methods that the search of ways calls. A log without a copy would be copied to its number."""
    link.topics, link.leased, link.refilled = list, lambda _source: False, frozenset()
    link.place = lambda log: link.copies[log].target if log in link.copies else LogId(log.topic, log.number)
    return link


def watch_of(link: Any, *others: Any) -> Any:
    """The monitor of a link among others."""

    def leaving(cluster: str) -> list[Any]:
        return [SimpleNamespace(link=each) for each in others if each.declared.source == cluster]

    return SimpleNamespace(link=as_link(link), leaving=leaving, beside=list, replaced="")


@pytest.mark.parametrize(
    ("source", "sent", "reached", "expected"),
    [
        (LOG, LOG, LOG, True),
        (LOG, OTHER, OTHER, False),
        (QUEUE, LOG, QUEUE, True),
        (QUEUE, OTHER, QUEUE, True),
        (QUEUE, OTHER, LogId("orders", 1, "store-0"), False),
    ],
    ids=["the log", "another partition", "its queue", "the queue of another partition", "another queue"],
)
def test_records_return_on_the_ways_of_logs(source: LogId, sent: LogId, reached: LogId, expected: bool) -> None:
    """Links from east to west, to south, and back to east. The one from east has copied a log, which the one from west
    copies to another. Queues of brokers do not keep the partitions apart."""
    first, second = copied("east-west", (0, 0, 5), forward=True), copied("west-south", forward=True)
    first.copies = {sent: Copy(sent, sent, 0, Position(5))}
    second.copies = {sent: Copy(sent, reached, 0)}
    back = copied("south-east", forward=True)
    back.copies = {source: Copy(source, LOG, 0)}
    assert Standings(watch_of(back, as_link(first), as_link(second))).of(source).returned is expected


@pytest.mark.parametrize(("end", "expected"), [(5, True), (0, False)], ids=["records may be on their way", "none are"])
def test_a_lease_in_progress_may_have_copied_what_its_own_log_has(end: int, expected: bool) -> None:
    first, second = copied("east-west", forward=True), copied("west-south", forward=True)
    first.copies, second.copies = {OTHER: Copy(OTHER, OTHER, 0)}, {OTHER: Copy(OTHER, QUEUE, 0)}
    back = copied("south-east", forward=True)
    back.copies = {QUEUE: Copy(QUEUE, LOG, 0)}
    watch = watch_of(back, as_link(first), as_link(second))
    first.leased = lambda _source: True
    assert Standings(watch, None, {LOG: (0, 5 - end), OTHER: (0, end)}).of(QUEUE).returned is expected
