"""Records of the present target log that came back to the source over other clusters: a refill would repeat them."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.replication.links import LOG, copied
from trueup.connectors.contract import LogId, Position
from trueup.streams.replication.links.checkpoints import Copy
from trueup.streams.replication.links.standing import standing

OTHER, QUEUE = LogId("orders", 1), LogId("orders", 0, "store-0")


def as_link(link: Any) -> Any:
    """The link with the methods that the search of ways calls."""
    link.topics, link.target, link.leased = list, lambda topic: topic, lambda _source: False
    link.refilled = frozenset()
    return link


def watch_of(link: Any, *others: Any) -> Any:
    """The monitor of a link among others."""

    def leaving(cluster: str) -> list[Any]:
        return [SimpleNamespace(link=each) for each in others if each.declared.source == cluster]

    return SimpleNamespace(link=as_link(link), leaving=leaving, beside=list, replaced="")


@pytest.mark.parametrize(
    ("source", "sent", "expected"),
    [(LOG, LOG, True), (LOG, OTHER, False), (QUEUE, LOG, True), (QUEUE, OTHER, True)],
    ids=["the log", "another partition", "the log, from a queue", "another partition, from a queue"],
)
def test_queues_of_brokers_do_not_keep_the_partitions_of_other_systems_apart(
    source: LogId, sent: LogId, expected: bool
) -> None:
    """Links from east to west, to south, and back to east. The one from east has copied a log."""
    first, second = copied("east-west", (0, 0, 5), forward=True), copied("west-south", forward=True)
    first.copies = {sent: Copy(sent, sent, 0, Position(5))}
    back = copied("south-east", forward=True)
    back.copies = {source: Copy(source, LOG, 0)}
    assert standing(watch_of(back, as_link(first), as_link(second)), source).returned is expected
