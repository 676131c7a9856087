"""A row of the history."""

from typing import NamedTuple

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
