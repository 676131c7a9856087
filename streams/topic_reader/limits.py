"""Limits of a read as an operator writes them: a message id or a time."""

from datetime import UTC, datetime

from trueup.state.common.errors import Stop
from trueup.state.read_priority.positions import EntryPosition, position_of
from trueup.streams.topic_reader.reader import Range


def range_of(begin: str, end: str) -> Range:
    """The range from ``begin`` (or earliest) to ``end`` (or latest). Raises `Stop`."""
    first, from_ms = limit_of(begin, "earliest")
    last, to_ms = limit_of(end, "latest")
    return Range(first, last, from_ms, to_ms)


def limit_of(text: str, none: str) -> tuple[EntryPosition | None, int | None]:
    """A position, or a time in ms since the epoch. ``none``: the word for no limit. Raises `Stop`."""
    if text == none:
        return None, None
    try:
        return position_of(text), None
    except Stop:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        expected = f"{none}, a message id LEDGER:ENTRY or a time such as 2026-01-31T12:00:00Z"
        raise Stop(expected, repr(text[:100]), "correct it") from None
    return None, int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000)
