"""A row of the history."""

from typing import NamedTuple

from trueup.streams.journal.topic import Record

ACTIONS = "trueup.actions"
"""The logger of executed actions."""


class HistoryRow(NamedTuple):
    """One action."""

    at_ms: int
    id: str
    kind: str
    outcome: str
    ledger: int | None = None
    """The ledger that the action concerns, or None."""
    link: str | None = None
    """The link that the action concerns, or None."""
    broker: str | None = None
    """The broker that the action concerns, or None."""
    rule: str = ""
    """The rule that is the reason for the action; empty for a request of an operator."""
    detail: str = ""
    who: str = ""
    """The initiator of the action; empty for the initiator of the thread that adds the row."""


def history_row(record: Record) -> HistoryRow:
    """A record of the topic as a row."""
    return HistoryRow(**record)
