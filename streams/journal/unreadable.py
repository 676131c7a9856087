"""The records of the journal that are not readable. They are skipped, and reported until a newer record of their key is
read. A running application holds a bounded number of them and counts the others, until it ends."""

import logging
import threading
from typing import NamedTuple

from trueup.connectors.kafka.journal.topics import TopicRecord
from trueup.state.common.counts import many
from trueup.state.common.errors import TrueupError

log = logging.getLogger(__name__)
KNOWN, SHOWN = 10_000, 20
"""Maximum number of records that a running application holds, and that are listed."""


class UnreadableRecord(NamedTuple):
    """One record that is not readable."""

    topic: str
    partition: int
    key: bytes
    offset: int
    problem: str
    where: str
    """The topic, partition and offset, as text."""


class Unreadable:
    """Safe to use from several threads. ``bounded``: whether records beyond `KNOWN` are counted and not held."""

    def __init__(self, bounded: bool = True) -> None:
        self._bounded, self._lock = bounded, threading.Lock()
        self._found: dict[tuple[str, int, bytes], UnreadableRecord] = {}
        self._beyond: dict[tuple[str, int], tuple[int, int]] = {}
        """The number of records that are not held, and the highest offset of one, by topic and partition."""

    def bad(self, entry: TopicRecord, error: TrueupError) -> None:
        """A record is not readable."""
        place = (entry.topic, entry.partition, entry.key)
        with self._lock:
            record = self._found.get(place)
            if record is None and self._bounded and len(self._found) >= KNOWN:
                count, last = self._beyond.get(place[:2], (0, -1))
                if entry.offset > last:  # several methods read a record
                    self._beyond[place[:2]] = count + 1, entry.offset
                return
            if record and record.offset >= entry.offset:
                return
            self._found[place] = UnreadableRecord(*place, entry.offset, str(error), entry.where)
        log.warning("record not readable", extra={"where": entry.where, "problem": str(error)})

    def good(self, entry: TopicRecord) -> None:
        """A record is readable: an older one of its key does not matter any more."""
        if self._found:
            with self._lock:
                record = self._found.get((entry.topic, entry.partition, entry.key))
                if record and record.offset < entry.offset:
                    del self._found[record.topic, record.partition, record.key]

    def forget(self, topics: set[str]) -> None:
        """These topics were emptied."""
        with self._lock:
            self._found = {place: bad for place, bad in self._found.items() if bad.topic not in topics}
            self._beyond = {place: beyond for place, beyond in self._beyond.items() if place[0] not in topics}

    def __len__(self) -> int:
        """The number of records, with those that are not held."""
        return len(self._found) + self.beyond

    @property
    def beyond(self) -> int:
        """The number of records that are not held; some of them may have a newer record of their key."""
        return sum(count for count, _ in list(self._beyond.values()))

    def all(self) -> list[UnreadableRecord]:
        """Those that are held, by topic, partition and offset."""
        with self._lock:
            return sorted(self._found.values(), key=lambda bad: (bad.topic, bad.partition, bad.offset))

    def problems(self) -> list[str]:
        """A problem for each, up to `SHOWN`, and one for the others."""
        records, beyond = self.all(), self.beyond
        shown = [f"journal record not readable: {bad.problem}" for bad in records[:SHOWN]]
        if more := max(0, len(records) - SHOWN) + beyond:
            rest = f" ({beyond} are not held, and count until compaction and a restart)" if beyond else ""
            others = many(more, "more journal record is", "more journal records are")
            shown.append(f"{others} not readable{rest}; `trueup journal repair` lists all of them")
        return shown
