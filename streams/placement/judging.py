"""Tracks how many of the capture's published records the placement stream has judged."""

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trueup.connectors.bookkeeper.metadata.bulk import LedgerBatch
from trueup.state.bookkeeper.ledgers import Column
from trueup.state.bookkeeper.observations import LedgerState, Observation
from trueup.state.common.errors import TrueupError
from trueup.state.placement.progress import Positions, Queue, WaitingLedgers
from trueup.streams.progress import QueryProgress

log = logging.getLogger(__name__)


class LedgerJournal(Protocol):
    """The methods of `streams.journal.journal.Journal` that are used here."""

    def ends(self, what: str) -> dict[int, int]:
        """End offset of each partition of a topic."""


class Judging:
    """The `Queue` of one run. Safe to use from several threads."""

    def __init__(self, journal: LedgerJournal, clock: Callable[[], int]) -> None:
        self._journal, self._clock = journal, clock
        self._lock = threading.Lock()
        self._queue = Queue()
        self._problem = ""

    def load(self) -> None:
        """Load the journal before anything is published: all its ledgers wait for a verdict."""
        self._queue.start(self._journal.ends("ledgers"))

    def restart(self) -> None:
        """The view was lost: all ledgers wait for a verdict again. Raises `Retry`."""
        ends = self._journal.ends("ledgers")
        with self._lock:
            self._queue.restart(ends)

    def published(self, observations: LedgerBatch | Iterable[Observation]) -> None:
        """Add observations that the journal has acknowledged."""
        ids, present = _ledgers(observations)
        with self._lock:
            self._queue.add(ids, present, self._clock())

    def tick(self) -> None:
        """Determine the positions of what was published since the last call."""
        with self._lock:
            count = self._queue.unlocated
        if not count:
            return
        try:
            ends = self._journal.ends("ledgers")
        except TrueupError as error:
            if str(error) != self._problem:
                log.warning("end offsets of the journal not available", extra={"problem": str(error)})
            self._problem = str(error)
            return
        self._problem = ""
        with self._lock:
            self._queue.locate(count, ends)

    def progress(self, progress: QueryProgress) -> None:
        """Handle a progress report of the stream; Spark sends it after a batch is committed."""
        for source in progress["sources"]:
            for topic, ends in (source.get("endOffset") or {}).items():
                if topic.endswith(".ledgers"):
                    self.taken({int(partition): end for partition, end in ends.items()})

    def taken(self, positions: Positions) -> None:
        """Remove ledgers before these positions of the ledger topic: the stream has judged them."""
        with self._lock:
            self._queue.take(positions)

    @property
    def oldest_ms(self) -> int | None:
        """Publication time of the oldest observation that waits for a verdict."""
        with self._lock:
            return self._queue.oldest_ms

    @property
    def waiting(self) -> WaitingLedgers | None:
        """Ledgers that wait now; None until the stream has reached the initial end of the journal."""
        with self._lock:
            return self._queue.waiting if self._queue.started else None


def _ledgers(observations: LedgerBatch | Iterable[Observation]) -> tuple[Column, NDArray[np.bool_]]:
    """Ids, and whether each ledger exists."""
    if isinstance(observations, LedgerBatch):
        return observations.ledgers.ledger, observations.ledgers.state != LedgerState.GONE
    values: list[Any] = [o.value for o in observations]
    rows = [(value["ledger"], value["state"]) for value in values]
    columns = np.array(rows, np.int64).reshape(-1, 2)
    return columns[:, 0], columns[:, 1] != LedgerState.GONE
