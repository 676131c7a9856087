"""One application for each journal: a second one is found at its start, whatever its data directory.

Two applications with one journal overwrite each other's records, such as the deletions that were approved. Every
application appends signs of life to a topic of one partition, and the order of that log decides. No clock is compared:

- An application that starts appends ``waiting`` and reads what precedes this record. If another application may be
  running, it waits for `WAIT_S`. If the other one appends a sign of life within this time, the start is refused.
- An application that runs appends ``running`` every `BEAT_S`, with the offset at which it entered. If it reads a
  ``running`` of one that entered later, it was silent for too long, was replaced, and must stop.
"""

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress

from trueup.state.common.errors import Retry, Stop
from trueup.state.instance.leadership import ENDED, FOREIGN_S, REFUSED, RUNNING, WAITING
from trueup.streams.journal.journal import Journal, JournalRecord
from trueup.streams.journal.topic import INSTANCES

log = logging.getLogger(__name__)
BEAT_S, WAIT_S, LOOK_S = FOREIGN_S / 3, FOREIGN_S, 1.0
LAST = 100
"""The newest records that are read at the start."""
KEY = b"instance"


class Instance:
    """This application among those of a journal. ``place``: where operators find it; ``before``: the run that used the
    data directory last, which has ended if this process has locked the directory; ``clock``: the time in ms since the
    epoch."""

    def __init__(self, journal: Journal, place: str, before: str, clock: Callable[[], int]) -> None:
        self._journal, self._place, self._before, self._clock = journal, place, before, clock
        self.run = uuid.uuid4().hex
        self._since, self._runs = -1, False

    def enter(self, stop: threading.Event, wait_s: float = WAIT_S, look_s: float = LOOK_S) -> None:
        """Return once no other application uses the journal, or when ``stop`` is set. Blocks for up to ``wait_s``.
        Raises `Stop` if another one does, and `Retry` if the journal does not respond."""
        self._say(WAITING)
        records = self._newest()
        self._since = max((record.offset for record in records if record.value["run"] == self.run), default=-1)
        if self._since < 0:
            raise Retry(f"the record just written to {self._journal.topic(INSTANCES)}", "others only", "try again")
        others = may_run(records, self._since) - {self._before}
        if others:
            log.info("waiting: another application may use the journal", extra={"at_most_s": wait_s})
        until = time.monotonic() + wait_s
        while others and time.monotonic() < until and not stop.wait(look_s):
            self._check(self._newest(), others)
        self._runs = not stop.is_set()
        self.beat()

    def _check(self, records: Iterable[JournalRecord], others: set[str]) -> None:
        for record in records:
            value = record.value
            if record.offset <= self._since or value["state"] != RUNNING:
                continue
            if value["run"] in others or value["epoch"] > 0:
                self.leave()
                raise Stop(
                    f"one application for the journal {self._journal.topic('*')}",
                    f"another one at {value['place']}",
                    "stop it first, or set a different journal.prefix",
                )

    def beat(self) -> None:
        """Append a sign of life. A journal that does not respond gets the next one."""
        with suppress(Retry):
            self._say(RUNNING if self._runs else REFUSED)

    def leave(self, within_s: float = BEAT_S) -> None:
        """Append the end, so that the next application does not wait. Without it, that one waits."""
        with suppress(Retry):
            self._say(ENDED if self._runs else REFUSED, within_s)

    def follow(self, stop: threading.Event, replaced: Callable[[], None]) -> None:
        """Call ``replaced`` if another application replaced this one. Blocks until ``stop``."""

        def seen(record: JournalRecord) -> None:
            value = record.value
            if (
                value is not None
                and value["run"] != self.run
                and value["state"] == RUNNING
                and value["since"] > self._since
            ):
                log.error(
                    "another application replaced this one, which was silent for too long; stopping",
                    extra={"other": value["place"]},
                )
                replaced()

        self._journal.follow(INSTANCES, stop, seen, old=False)

    def _newest(self) -> list[JournalRecord]:
        found = self._journal.read(INSTANCES, last=LAST)
        return [record for record in found if record.value is not None]

    def _say(self, state: str, within_s: float = BEAT_S) -> None:
        record = {
            "run": self.run,
            "state": state,
            "since": self._since,
            "place": self._place,
            "at_ms": self._clock(),
            "epoch": 0,
            "after": -1,
            "number": 0,
            "takeover_ms": 0,
        }
        self._journal.put([(INSTANCES, KEY, record)], within_s)


def may_run(records: Iterable[JournalRecord], before: int) -> set[str]:
    """The runs that may be alive according to the records that precede this offset: the one that entered last, and
    those that entered or wait after it, except those that ended or were refused."""
    state: dict[str, str] = {}
    entered: dict[str, int] = {}
    for record in records:
        if record.offset < before:
            run = record.value["run"]
            state[run] = record.value["state"]
            entered[run] = record.offset if state[run] == WAITING else max(record.value["since"], entered.get(run, -1))
    last = max((entered[run] for run in state if state[run] in (RUNNING, ENDED)), default=-1)
    return {run for run in state if state[run] in (RUNNING, WAITING) and entered[run] >= last}
