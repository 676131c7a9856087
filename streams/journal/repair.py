"""Repairs a journal with records that are not readable. Kafka deletes no single record, but a compacted topic keeps
only the newest one of a key: the readable record before it is written again, or the key is deleted if there is none."""

import time
from collections.abc import Iterable, Iterator
from itertools import islice
from math import inf
from typing import NamedTuple

from trueup.connectors.kafka.journal.topics import TopicRecord
from trueup.streams.journal.journal import AT_ONCE, Journal
from trueup.streams.journal.topic import declared
from trueup.streams.journal.unreadable import Unreadable, UnreadableRecord


class RecordRepair(NamedTuple):
    """What is done about one record."""

    bad: UnreadableRecord
    what: str
    """The topic of the record, as `JournalTopic.name`."""
    before: TopicRecord | None
    """The readable record of the key that is written again; None if the key is deleted."""


def find(journal: Journal, within_s: float = inf) -> tuple[list[UnreadableRecord], bool]:
    """The records of the topics that exist which are not readable, and whether all records were read within this time.
    ``journal``: one of a command, whose unreadable records are all held from now on. Raises `Retry`."""
    journal.unreadable = Unreadable(bounded=False)
    until_s = time.monotonic() + within_s
    for what in _existing(journal):
        entries = journal.entries(what)
        while some := list(islice(entries, AT_ONCE)):
            journal.look(what, some)
            if time.monotonic() > until_s:
                return journal.unreadable.all(), False
    return journal.unreadable.all(), True


def plan(journal: Journal) -> list[RecordRepair]:
    """The repair of each record that is not readable. Raises `Retry`."""
    records, _ = find(journal)
    repairs: list[RecordRepair] = []
    for what in _existing(journal):
        mine = [bad for bad in records if bad.topic == journal.topic(what)]
        if mine:
            before = _before(journal, what, mine)
            repairs += [RecordRepair(bad, what, before.get((bad.partition, bad.key))) for bad in mine]
    return repairs


def execute(journal: Journal, repairs: Iterable[RecordRepair]) -> None:
    """Write the repairs. Can be repeated. Raises `Retry`, or `Stop` without the permission."""
    for bad, what, before in repairs:
        journal.write_again(what, bad.partition, bad.key, before)


def _existing(journal: Journal) -> Iterator[str]:
    states = journal.states()
    return (topic.name for topic in declared() if journal.topic(topic.name) in states)


def _before(journal: Journal, what: str, records: Iterable[UnreadableRecord]) -> dict[tuple[int, bytes], TopicRecord]:
    """The newest readable record of each of these keys."""
    places = {(bad.partition, bad.key) for bad in records}
    newest: dict[tuple[int, bytes], TopicRecord] = {}
    for entry in journal.entries(what):
        place = entry.partition, entry.key
        if place in places and journal.look(what, [entry]):
            newest[place] = entry
    return newest
