"""A row of the history."""

from collections.abc import Mapping
from typing import Any, NamedTuple

ACTIONS = "trueup.actions"
"""The logger of executed actions."""


class HistoryRow(NamedTuple):
    """One action. ``ledger``, ``link``, ``broker``: its resource, None: does not apply; ``rule``: its reason, empty: a
    request of an operator; ``who``: its initiator, empty: that of the thread that adds the row."""

    at_ms: int
    id: str
    kind: str
    outcome: str
    ledger: int | None = None
    link: str | None = None
    broker: str | None = None
    rule: str = ""
    detail: str = ""
    who: str = ""


def history_row(record: Mapping[str, Any]) -> HistoryRow:
    """A record of the topic as a row."""
    return HistoryRow(**record)
