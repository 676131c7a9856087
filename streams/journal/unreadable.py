"""The records of the journal that are not readable. They are skipped, and reported until a newer record of their key is
read."""

import logging
import threading
from typing import NamedTuple

from trueup.connectors.kafka.journal.topics import TopicRecord
from trueup.state.common.counts import many
from trueup.state.common.errors import TrueupError

log = logging.getLogger(__name__)
KNOWN, SHOWN = 10_000, 20
"""Maximum number of records that are known, and that are listed."""


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
    """Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[tuple[str, int, bytes], UnreadableRecord] = {}

    def bad(self, entry: TopicRecord, error: TrueupError) -> None:
        """A record is not readable."""
        place = (entry.topic, entry.partition, entry.key)
        with self._lock:
            known = self._found.get(place)
            if (known and known.offset >= entry.offset) or (known is None and len(self._found) >= KNOWN):
                return
            self._found[place] = UnreadableRecord(*place, entry.offset, str(error), entry.where)
        log.warning("record not readable", extra={"where": entry.where, "problem": str(error)})

    def good(self, entry: TopicRecord) -> None:
        """A record is readable: an older one of its key does not matter any more."""
        if self._found:
            with self._lock:
                known = self._found.get((entry.topic, entry.partition, entry.key))
                if known and known.offset < entry.offset:
                    del self._found[known.topic, known.partition, known.key]

    def forget(self, topics: set[str]) -> None:
        """These topics were emptied."""
        with self._lock:
            self._found = {place: bad for place, bad in self._found.items() if bad.topic not in topics}

    def __len__(self) -> int:
        return len(self._found)

    def all(self) -> list[UnreadableRecord]:
        """Those that are known, by topic, partition and offset."""
        with self._lock:
            return sorted(self._found.values(), key=lambda bad: (bad.topic, bad.partition, bad.offset))

    def problems(self) -> list[str]:
        """A problem for each, up to `SHOWN`, and one for the others."""
        known = self.all()
        shown = [f"journal record not readable: {bad.problem}" for bad in known[:SHOWN]]
        if len(known) > SHOWN:
            more = f"{many(len(known) - SHOWN, 'more journal record is', 'more journal records are')} not readable"
            shown.append(f"{more}; `trueup journal repair` lists all of them")
        return shown
