"""The first offsets of partitions that were never copied.

The link's ``start`` applies to topics that existed at the source when the link's patterns were set. Topics that were
created later are copied from the beginning, including records written before the topic was observed.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from trueup.connectors.contract import LogId
from trueup.state.replication.settings import LinkSettings as Declared
from trueup.streams.replication.links.snapshot import LinkFacts

Starts = Callable[[Declared, Sequence[LogId]], Mapping[LogId, int]]
"""The first offsets of partitions that were never copied, according to the link's ``start``. Raises a `TrueupError`."""


class FirstOffset(NamedTuple):
    """The first offset of a partition of a topic with this id (empty: it is unknown), by this text of ``start``."""

    offset: int
    topic_id: str
    setting: str


class FirstOffsets:
    """The first offsets of one link. ``declared``: the settings of the link at the start; ``copied``: whether the link
    has copied anything; ``waiting``: the first offsets of partitions that waited in earlier runs. Safe to use from
    several threads."""

    def __init__(self, ask: Starts, declared: Declared, copied: bool, waiting: Mapping[LogId, FirstOffset]) -> None:
        self._ask, self._chosen = ask, _patterns(declared)
        # Topics that existed at the source when these patterns were set; None: not known yet.
        self._there: frozenset[str] | None = frozenset() if copied or waiting else None
        self._known = dict(waiting)
        # Partitions of these topics that did not answer; they are asked again, and do not count as new.
        self._open: set[LogId] = set()
        self._lock = threading.Lock()

    def changed(self, declared: Declared, facts: LinkFacts) -> None:
        """Handle changed settings. Patterns set before both clusters were observed apply from that observation."""
        with self._lock:
            if self._there is not None:
                self._choose(declared, facts)

    def _choose(self, declared: Declared, facts: LinkFacts) -> None:
        """Store the source topics of the last observation before these patterns were set."""
        if self._there is None or _patterns(declared) != self._chosen:
            self._chosen = _patterns(declared)
            self._there = facts.source.names if facts.complete else None

    def learn(
        self, declared: Declared, facts: LinkFacts, topics: Iterable[str], copied: Iterable[LogId]
    ) -> Mapping[LogId, FirstOffset]:
        """Query the first offsets of topics that existed when the patterns were set and are not copied, whether they
        may be copied now or not. Returns those that were not known before."""
        copied = set(copied)
        with self._lock:
            self._choose(declared, facts)
            self._forget(declared, facts.source.ids, copied)
            there = (self._there or frozenset()) - {log.topic for log in (*copied, *self._known, *self._open)}
        logs, names = facts.source.topics, set(topics)
        self._open = {log for log in self._open if log.topic in names}
        self._open.update(log for name in names & there for log in logs[name])
        asked = sorted(self._open.intersection(log for name in names for log in logs[name])) if self._open else []
        offsets = self._ask(declared, asked) if asked else {}
        ids, setting = facts.source.ids, declared.start
        learned = {log: FirstOffset(at, ids.get(log.topic, ""), setting) for log, at in offsets.items()}
        self._known.update(learned)
        self._open -= learned.keys()
        return learned

    def _forget(self, declared: Declared, ids: Mapping[str, str], copied: Collection[LogId]) -> None:
        """Forget the partitions that are copied, and the topics that were recreated under their names: they did not
        exist when the patterns were set. The first offsets by another ``start`` are asked for again."""
        others = {log for log, first in self._known.items() if first.setting != declared.start}
        self._known = {log: first for log, first in self._known.items() if log not in others and log not in copied}
        self._open = (self._open | others).difference(copied)
        topic_ids = {log.topic: first.topic_id for log, first in self._known.items() if first.topic_id}
        anew = {topic for topic, topic_id in topic_ids.items() if ids.get(topic, topic_id) != topic_id}
        if anew:
            self._known = {log: first for log, first in self._known.items() if log.topic not in anew}
            self._there = (self._there or frozenset()) - anew

    def of(self, declared: Declared, fresh: Sequence[LogId]) -> Mapping[LogId, int]:
        """The first offsets of new partitions; unknown ones are left out."""
        since = [log for log in fresh if log not in self._known and log not in self._open]
        later = self._ask(replace(declared, start="earliest"), since) if since else {}
        return {**{log: first.offset for log, first in self._known.items()}, **later}


def _patterns(declared: Declared) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return tuple(declared.topics), tuple(declared.exclude)
