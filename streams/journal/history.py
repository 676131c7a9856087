"""The history of the actions of all streams, with their time, user and rule. The newest rows are in memory; all rows
are in the journal for journal.history_days.

A separate loop writes added rows to the journal, so that actions do not wait for it.
"""

import logging
import threading
import uuid
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from itertools import islice

from trueup.state.common.errors import Retry
from trueup.streams.journal.history_row import ACTIONS, HistoryRow
from trueup.streams.journal.journal import Journal
from trueup.streams.journal.topic import HISTORY
from trueup.streams.rows import Row

actions = logging.getLogger(ACTIONS)
SAVE_S = 0.5
KEPT, UNSAVED, AT_ONCE = 10_000, 100_000, 5_000
"""Maximum rows in memory; rows that wait while the journal does not respond; rows of one write."""
DETAIL = 2_000
ITSELF, ANONYMOUS, TOPIC = "trueup", "anonymous", "config topic"
"""Initiators: Trueup itself, a caller without a verified name, and a writer of the config topic."""
WHO: ContextVar[str] = ContextVar("who", default=ITSELF)
"""The initiator of the actions of the present thread: Trueup itself, or the caller and address of a request."""


class History:
    """The history of one application. Without a journal it is in memory only; one that does not act only reads the
    journal. Safe to use from several threads."""

    def __init__(self, journal: Journal | None = None, acts: bool = True) -> None:
        self._journal, self._acts = journal, acts
        self._lock, self._saving = threading.Lock(), threading.Lock()
        self._rows: deque[HistoryRow] = deque(maxlen=KEPT)
        self._unsaved: list[HistoryRow] = []
        self._run, self._saved = uuid.uuid4().hex[:8], 0

    def load(self) -> None:
        """Load the newest rows of earlier runs. From now on, rows are added."""
        self._acts = True
        self._rows.extend(self._read(KEPT))

    def add(self, *rows: HistoryRow) -> None:
        """Add rows, oldest first."""
        who = WHO.get()
        added = [
            row
            if row.who and len(row.detail) <= DETAIL  # `_replace` would dominate the time of many repairs
            else row._replace(who=row.who or who, detail=row.detail[:DETAIL])
            for row in rows
        ]
        if actions.isEnabledFor(logging.INFO):
            for row in added:
                actions.info(
                    "action", extra={name: value for name, value in row._asdict().items() if value is not None}
                )
        with self._lock:
            self._rows.extend(added)
            if self._journal is not None:
                self._unsaved += added[: max(0, UNSAVED - len(self._unsaved))]

    def save(self, within_s: float = 30.0) -> None:
        """Write unsaved rows to the journal. Rows that could not be written are retried later, with the same key."""
        with self._saving:
            while self._journal is not None and self._unsaved:
                with self._lock:
                    some = self._unsaved[:AT_ONCE]
                keyed = enumerate(some, self._saved)
                try:
                    self._journal.put(((HISTORY, f"{self._run}-{n}".encode(), row) for n, row in keyed), within_s)
                except Retry:
                    # The status reports the journal as a source of its own.
                    return
                with self._lock:
                    del self._unsaved[: len(some)]
                    self._saved += len(some)

    def latest(self, limit: int, predicate: Callable[[Row], bool] | None = None) -> list[Row]:
        """The newest rows for the API, newest first. If memory does not hold enough, they are read from the journal.
        ``predicate``: selects from the rows in memory."""
        rows = self.rows() if self._acts else self._read(KEPT if predicate else limit)
        if limit > len(rows) == KEPT and not predicate:
            self.save()
            rows = self._read(limit) or rows
        newest = sorted(rows, key=lambda row: -row.at_ms)
        if predicate is None:
            return [row._asdict() for row in newest[:limit]]
        return list(islice(filter(predicate, (row._asdict() for row in newest)), limit))

    def rows(self, ledger: int | None = None) -> list[HistoryRow]:
        """The rows in memory, oldest first, of one ledger or of all."""
        with self._lock:
            return [row for row in self._rows if ledger is None or row.ledger == ledger]

    def _read(self, limit: int) -> list[HistoryRow]:
        """At least this number of the newest rows, or all."""
        if self._journal is None:
            return []
        offsets = limit
        while True:
            records = {record.key: record.value for record in self._journal.read(HISTORY, last=offsets)}
            rows = [row for row in records.values() if row is not None]
            # Transactions also occupy offsets, so there may be more rows among more offsets.
            if len(rows) >= limit or offsets >= self._journal.span(HISTORY):
                return rows
            offsets *= 2
