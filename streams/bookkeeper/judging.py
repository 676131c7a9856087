"""How far the placement stream has judged what the capture published."""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import numpy as np

from trueup.connectors.bookkeeper.metadata.bulk import Batch
from trueup.state.bookkeeper.observations import LedgerState, Observation
from trueup.state.common.errors import TrueupError
from trueup.state.placement.judging import Positions, Queue, Waiting

log = logging.getLogger(__name__)


class Journal(Protocol):
    """What this needs of `streams.journal.journal.Journal`."""

    def ends(self, what: str) -> dict[int, int]:
        """Where each partition of a topic ends."""


class Judging:
    """The `Queue` of one run. Safe to use from several threads."""

    def __init__(self, journal: Journal, clock: Callable[[], int]) -> None:
        self._journal, self._clock = journal, clock
        self._lock = threading.Lock()
        self._queue = Queue()
        self._problem = ""

    def load(self) -> None:
        """Take the journal as it is before anything is published: all of it is to be judged."""
        self._queue.start(self._journal.ends("ledgers"))

    def published(self, observations: Batch | Iterable[Observation]) -> None:
        """Take what the journal has just acknowledged."""
        ids, present = _ledgers(observations)
        with self._lock:
            self._queue.add(ids, present, self._clock())

    def tick(self) -> None:
        """Find the position of what was published since the last time."""
        with self._lock:
            count = self._queue.unlocated
        if not count:
            return
        try:
            ends = self._journal.ends("ledgers")
        except TrueupError as error:
            if str(error) != self._problem:
                log.warning("the end of the journal is not known", extra={"problem": str(error)})
            self._problem = str(error)
            return
        self._problem = ""
        with self._lock:
            self._queue.locate(count, ends)

    def progress(self, progress: Mapping[str, Any]) -> None:
        """Take a progress report of the stream, as Spark makes it after a batch was committed."""
        for source in progress["sources"]:
            for topic, ends in (source.get("endOffset") or {}).items():
                if topic.endswith(".ledgers"):
                    self.taken({int(partition): end for partition, end in ends.items()})

    def taken(self, positions: Positions) -> None:
        """The stream has judged what is before these positions of the ledger topic."""
        with self._lock:
            self._queue.take(positions)

    @property
    def oldest_ms(self) -> int | None:
        """When that was published which has waited for longest."""
        with self._lock:
            return self._queue.oldest_ms

    @property
    def waiting(self) -> Waiting | None:
        """What waits now; None while the stream has not come to what the journal held at the start."""
        with self._lock:
            return self._queue.waiting if self._queue.started else None


def _ledgers(observations: Batch | Iterable[Observation]) -> tuple[Any, Any]:
    """Ids, and whether each ledger is there."""
    if isinstance(observations, Batch):
        return observations.ledgers.ledger, observations.ledgers.state != LedgerState.GONE
    values: list[Any] = [o.value for o in observations if o.topic == "ledgers"]
    rows = [(value["ledger"], value["state"]) for value in values]
    columns = np.array(rows, np.int64).reshape(-1, 2)
    return columns[:, 0], columns[:, 1] != LedgerState.GONE
