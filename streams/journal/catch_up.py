"""Whether a query has read what the journal held when its view began. Until then a thing that is not in the view may
exist."""

import threading
from collections.abc import Mapping, Sequence
from typing import Protocol

from trueup.streams.progress import QueryProgress

Ends = Mapping[str, Mapping[int, int]]
"""The offset after the last record, by full name of a topic and partition."""


class JournalEnds(Protocol):
    """The methods of `streams.journal.journal.Journal` that are used here."""

    def topic(self, what: str) -> str:
        """The full name of a topic."""

    def ends(self, what: str) -> dict[int, int]:
        """End offset of each partition of a topic."""


class CatchUp:
    """The progress of one query through these topics. Safe to use from several threads."""

    def __init__(self, journal: JournalEnds, topics: Sequence[str]) -> None:
        self._journal, self._topics = journal, topics
        self._lock = threading.Lock()
        self._ends: Ends | None = None
        self.done = False

    def begin(self) -> None:
        """A view begins, or this run: everything up to the present ends has to be read. Raises `Retry`."""
        ends = {self._journal.topic(what): self._journal.ends(what) for what in self._topics}
        with self._lock:
            self._ends, self.done = ends, False

    def progress(self, progress: QueryProgress) -> None:
        """Handle a progress report of the query; Spark sends it after a batch is committed."""
        read: dict[str, Mapping[str, int]] = {}
        for source in progress["sources"]:
            read.update(source.get("endOffset") or {})
        with self._lock:
            self.done = self.done or (self._ends is not None and covered(self._ends, read))


def covered(ends: Ends, read: Mapping[str, Mapping[str, int]]) -> bool:
    """Whether these positions, whose partitions are text as in Spark's reports, reach the ends."""
    return all(
        read.get(topic, {}).get(str(partition), 0) >= end
        for topic, partitions in ends.items()
        for partition, end in partitions.items()
    )
