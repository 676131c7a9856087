"""The topic of the instances in memory, a clock that a test sets, and instances that use both."""

import threading
from collections.abc import Callable, Iterable
from typing import Any

from tests.journals import formed
from trueup.state.common.errors import Retry
from trueup.state.instance.leadership import LeadershipTerms
from trueup.streams.instance.election import Election
from trueup.streams.journal.journal import JournalRecord


class Log:
    """The topic. An instance that follows it reads a record when it is appended."""

    def __init__(self) -> None:
        self.readers: list[Callable[[JournalRecord], None]] = []
        self.records: list[JournalRecord] = []
        self.down = False

    def topic(self, what: str) -> str:
        return f"trueup.c.{what}"

    def put(self, records: Iterable[tuple[str, bytes, Any]], _within_s: float) -> None:
        if self.down:
            raise Retry("acknowledged records", "none", "try again")
        for what, key, value in records:
            self.records.append(JournalRecord(key, formed(what, key, value), what, len(self.records)))
            for reader in self.readers:
                reader(self.records[-1])

    def follow(self, _what: str, _stop: threading.Event, seen: Callable[[JournalRecord], None]) -> None:
        for record in self.records:
            seen(record)
        self.readers.append(seen)

    @property
    def keys(self) -> list[tuple[bytes, str]]:
        """The key and the state of each record."""
        return [(record.key, record.value["state"] if record.value else "") for record in self.records]


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.s = 1000.0

    def __call__(self) -> float:
        return self.s


def instance(
    log: Log, now: Clock, place: str, terms: LeadershipTerms, lost: Callable[[], object] = lambda: None
) -> Election:
    made = Election(log, place, "shop-c", terms, lambda: 5_000_000, lost, now)  # type: ignore[arg-type]
    made.follow()
    return made
