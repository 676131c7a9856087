"""Writes findings to their topic, for external consumers. The board takes only the ages of findings from it.

The topic converges to the board: what the journal did not accept is written with the next answer, and findings of
earlier runs are removed once all buckets have answered in this run.
"""

import logging
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from trueup.connectors.bookkeeper.metadata.bulk import keys
from trueup.state.common.errors import TrueupError
from trueup.state.common.rules import Verdict
from trueup.state.placement.board import ClearedFindings, FindingAges
from trueup.state.placement.rules import RULES
from trueup.state.placement.view import NO_FINDINGS, Rows
from trueup.streams.journal.encode import encode_columns
from trueup.streams.journal.journal import Journal
from trueup.streams.placement.topics import FINDINGS

log = logging.getLogger(__name__)
_NUMBERS = ("ledger", "since_ms", "version", "mzxid", "copies", "racks", "fragment")


class FindingsTopic:
    """Writes findings as they arrive. Not thread-safe."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._there: set[int] | None = None
        self._equal = False

    def load(self) -> FindingAges:
        """Load the findings of earlier runs, before any caller waits. Returns their ages."""
        since = {record["ledger"]: record["since_ms"] for record in self._journal.newest(FINDINGS).values()}
        self._there = {*since}
        rows = np.array(sorted(since.items()), np.int64).reshape(-1, 2)
        return FindingAges(rows[:, 0], rows[:, 1])

    def publish(
        self, findings: Sequence[Rows], cleared: Iterable[ClearedFindings], everything: Callable[[], Rows | None]
    ) -> None:
        """Publish findings that answers added and cleared. ``everything``: all findings of the board, None while they
        are not all known."""
        try:
            if not self._equal and (rows := everything()) is not None:
                self._start_over(rows)
            else:
                self._add(
                    np.concatenate([NO_FINDINGS, *findings]), [i for part in cleared for i in part.ledger.tolist()]
                )
        except TrueupError as error:
            # The state of the topic is not known now.
            self._equal, self._there = False, None
            log.warning("findings not published", extra={"problem": str(error)})

    def restart(self) -> None:
        """The board starts empty: compare the topic with it when it is complete."""
        self._equal, self._there = False, None

    def _start_over(self, rows: Rows) -> None:
        """Replace the contents of the topic by the board."""
        if self._there is None:
            self.load()
        assert self._there is not None, "set by load"
        self._add(rows, sorted(self._there.difference(rows["ledger"].tolist())))
        self._equal, self._there = True, None

    def _add(self, findings: Rows, gone: Sequence[int]) -> None:
        rows = findings[findings["verdict"] != Verdict.TRUE]
        if self._there is not None:
            self._there.update(rows["ledger"].tolist())
        ids = np.array(gone, np.int64)
        self._journal.send([(FINDINGS, keys(ids), [None] * len(ids)), (FINDINGS, keys(rows["ledger"]), bodies(rows))])


def bodies(rows: Rows) -> list[bytes]:
    """Findings as records of their topic, each with an Avro body."""
    if not len(rows):
        return []
    texts = {
        "rule": [RULES[code].id for code in rows["rule"].tolist()],
        "verdict": [Verdict(code).name.lower() for code in rows["verdict"].tolist()],
    }
    return encode_columns(FINDINGS, {**{name: rows[name] for name in _NUMBERS}, **texts})
