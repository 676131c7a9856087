"""Where the partitions of a link begin that were never copied.

The link's ``start`` is about the topics that its source had when they were chosen; what was made since is copied from
its beginning, with what it got before it was seen.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from trueup.connectors.contract import LogId
from trueup.state.replication.settings import LinkSettings as Declared
from trueup.streams.replication.snapshot import LinkFacts

Starts = Callable[[Declared, Sequence[LogId]], Mapping[LogId, int]]
"""The first offsets to copy of partitions that were never copied, as the link's ``start`` says. Raises our errors."""


class FirstOffsets:
    """Of one link. ``declared``: its settings as it begins; ``copied``: whether anything of it was copied already. Safe
    to use from several threads."""

    def __init__(self, ask: Starts, declared: Declared, copied: bool) -> None:
        self._ask, self._chosen = ask, _patterns(declared)
        # Topics that the source had when these patterns were chosen; None: not known yet.
        self._there: frozenset[str] | None = frozenset() if copied else None
        self._known: dict[LogId, int] = {}
        self._lock = threading.Lock()

    def changed(self, declared: Declared, facts: LinkFacts) -> None:
        """The settings may be others. What was chosen before both sides were seen is chosen then."""
        with self._lock:
            if self._there is not None:
                self._choose(declared, facts)

    def _choose(self, declared: Declared, facts: LinkFacts) -> None:
        """Remember what the source had when these patterns were chosen, as it was seen last before that."""
        if self._there is None or _patterns(declared) != self._chosen:
            self._chosen = _patterns(declared)
            self._there = facts.source.names if facts.complete else None

    def learn(self, declared: Declared, facts: LinkFacts, topics: Iterable[str], copied: Iterable[LogId]) -> None:
        """Ask where those of the link's topics begin that were there when they were chosen and are not copied, whether
        they may be copied already or not."""
        with self._lock:
            self._choose(declared, facts)
            there = (self._there or frozenset()) - {log.topic for log in (*copied, *self._known)}
        logs = facts.source.topics
        if new := [log for name in topics if name in there for log in logs[name]]:
            self._known.update(self._ask(declared, new))

    def of(self, declared: Declared, fresh: Sequence[LogId]) -> Mapping[LogId, int]:
        """Where these begin; of those that can be told."""
        since = [log for log in fresh if log not in self._known]
        later = self._ask(replace(declared, start="earliest"), since) if since else {}
        return {**self._known, **later}


def _patterns(declared: Declared) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return tuple(declared.topics), tuple(declared.exclude)
