"""A row of the history."""

from typing import NamedTuple


class HistoryRow(NamedTuple):
    """One thing that was done. ``ledger``, ``link``, ``broker``: what it is about, None: not about one; ``rule``: why,
    empty: an operator's wish; ``who``: on whose behalf, empty: of whoever adds the row."""

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
