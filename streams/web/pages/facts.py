"""Descriptions of resources as facts and tables, and series of numbers as lines of a small chart."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from trueup.streams.rows import Row
from trueup.streams.runtime.format import age, since, size
from trueup.streams.runtime.signs import Total

SIZES = {"bytes", "total", "usable", "used", "length", "incoming", "outgoing", "to_copy", "copied_bytes"}
EPOCH_MS = 10**12
"""Times are larger, durations are smaller."""
UNKNOWN = -1
"""Stands for a number that is not known, or that does not exist, in rows of the API."""
PLAIN = ("ledger", "version", "broker")
"""Numbers that are names."""
WORDS = {"ctime_ms": "created", "mzxid": "last write, zxid"}
ROWS, COLUMNS, POINTS = 100, 10, 60
WIDTH, HEIGHT = 120.0, 24.0


class FactTable(NamedTuple):
    """A list of rows in a description, as a table."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int
    """The number of rows that are not shown."""


def words(name: str) -> str:
    """A field in words: since_ms is since."""
    return WORDS.get(name) or name.removesuffix("_ms").replace("_", " ")


def text(name: str, value: object, now_ms: int) -> str:
    """The value of a field for a reader."""
    match value:
        case _ if value in (None, "", [], {}):  # the pattern {} matches every mapping
            return "-"
        case bool():
            return "yes" if value else "no"
        case int() | float() if value == UNKNOWN:
            return "-"
        case int() | float() if name.endswith("_ms"):
            return _time(int(value), now_ms)
        case int() | float() if name in SIZES:
            return size(value) if value >= 0 else "-"
        case float():
            return f"{value:,.3g}"
        case int():
            return f"{value:#x}" if name == "mzxid" else str(value) if name in PLAIN else f"{value:,}"
        case dict():
            return ", ".join(f"{words(key)} {text(key, part, now_ms)}" for key, part in value.items())
        case list() | tuple():
            return "; ".join(_item(part, now_ms) for part in value)
    return str(value)


def _time(ms: int, now_ms: int) -> str:
    if ms <= EPOCH_MS:
        return age(ms) if ms >= 0 else "-"
    return f"in {age(ms - now_ms)}" if ms > now_ms else f"{since(now_ms, ms)} ago"


def _item(value: object, now_ms: int) -> str:
    parts = value.items() if isinstance(value, dict) else [("", value)]
    return " ".join(text(name, part, now_ms) for name, part in parts if part not in (None, ""))


def facts(description: Row, now_ms: int, shown: Collection[str] = ()) -> list[tuple[str, str]]:
    """The single values of a description. Empty ones are left out, and those that the page shows elsewhere."""
    return [
        (words(name), text(name, value, now_ms))
        for name, value in description.items()
        if name not in shown and not _is_rows(value) and value not in (None, "", [], {})
    ]


def tables(description: Row, now_ms: int, shown: Collection[str] = ()) -> Iterator[FactTable]:
    """The lists of rows in a description, likewise. Columns without a value are left out."""
    for name, rows in description.items():
        if name not in shown and _is_rows(rows):
            columns = [key for key in rows[0] if any(row.get(key) not in (None, "", [], {}) for row in rows)][:COLUMNS]
            cells = [[text(key, row.get(key), now_ms) for key in columns] for row in rows[:ROWS]]
            yield FactTable(words(name), [words(key) for key in columns], cells, max(0, len(rows) - ROWS))


def _is_rows(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) for row in value)


def clock(at_ms: int) -> str:
    """A time in UTC, with seconds."""
    return datetime.fromtimestamp(at_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")


class Spark(NamedTuple):
    """A series as a small chart."""

    name: str
    lines: Sequence[str]
    """The points of each line without a gap."""
    now: float | None
    """The present number of the series; None if there is none."""
    most: float
    """The largest number of the series."""


def sparks(trends: Row, numbers: Mapping[str, float]) -> list[Spark]:
    """The series of `Engine.trends`. Each of at most `POINTS` points is the largest number of its time. ``numbers``:
    the present numbers, as samples are older than the rest of the page; only samples contain the growth of a
    `Total`."""
    return [_spark(name, values, numbers.get(name)) for name, values in trends["series"].items()]


def _spark(name: str, values: Sequence[float | None], number: float | None) -> Spark:
    step = max(1, -(-len(values) // POINTS))
    points = [_most(values[at : at + step]) for at in range(0, len(values), step)]
    most = max((value for value in points if value is not None), default=0.0)
    across = WIDTH / max(1, len(points) - 1)
    lines, line = [], list[str]()
    for at, value in enumerate([*points, None]):
        if value is not None:
            high = HEIGHT - 1 - (HEIGHT - 2) * (value / most if most else 0.0)
            line.append(f"{at * across:.1f},{high:.1f}")
        elif line:
            lines.append(" ".join(line if len(line) > 1 else [*line, *line]))
            line = []
    if isinstance(number, Total):
        number = values[-1] if values else None
    return Spark(name, lines, number, max(most, number or 0.0))


def _most(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
