"""Rows of a benchmark: the metric, the values of Trueup and of the peer, and whether the target is reached."""

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDTH = 100
AIR = 1.1
"""A ratio below this multiple of its target counts as missed: runs differ by about as much."""


class Row(NamedTuple):
    """One figure. The target is reached if ``ratio`` >= `AIR` * ``target``. A target of 0 means that the figure is only
    reported.

    ``ratio`` is peer / ours if lower is better, and ours / peer if higher is better.
    """

    what: str
    unit: str
    peer: float
    ours: float
    ratio: float
    target: float


def less(what: str, unit: str, peer: Sequence[float], ours: Sequence[float], target: float = 0.0) -> Row:
    """A figure for which lower is better. Values are medians."""
    theirs, own = median(peer), median(ours)
    return Row(what, unit, round(theirs, 3), round(own, 3), round(theirs / max(own, 1e-9), 2), target)


def more(what: str, unit: str, peer: Sequence[float], ours: Sequence[float], target: float = 0.0) -> Row:
    """A figure for which higher is better. Values are medians."""
    theirs, own = median(peer), median(ours)
    return Row(what, unit, round(theirs, 3), round(own, 3), round(own / max(theirs, 1e-9), 2), target)


def alone(what: str, unit: str, ours: Sequence[float]) -> Row:
    """A figure without a peer, as median."""
    return Row(what, unit, 0.0, round(median(ours), 3), 0.0, 0.0)


def worst(rounds: Sequence[Row]) -> Row:
    """The figure of several rounds: medians, and the ratio of the worst round."""
    peer, ours = median(row.peer for row in rounds), median(row.ours for row in rounds)
    return rounds[0]._replace(peer=round(peer, 3), ours=round(ours, 3), ratio=min(row.ratio for row in rounds))


def beside_earlier(path: Path, found: Sequence[Row]) -> list[Row]:
    """The new rows, and those of earlier runs whose figure was not measured now. A row that begins with a space belongs
    to the figure before it."""
    before = [Row(**row) for row in json.loads(path.read_text())] if path.exists() else []
    figures = _figures(before) | _figures(found)
    return [row for rows in figures.values() for row in rows]


def _figures(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    head = ""
    for row in rows:
        head = head if row.what.startswith(" ") else row.what
        found.setdefault(head, []).append(row)
    return found


def text(rows: Sequence[Row]) -> str:
    """The rows as JSON."""
    return json.dumps([row._asdict() for row in rows], indent=1) + "\n"


def write(path: Path, rows: Sequence[Row]) -> None:
    """Write the rows as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text(rows))


def show(rows: Sequence[Row], note: str) -> None:
    """Print the rows as a table."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    made.add_column("what")
    made.add_column("unit", no_wrap=True)
    for title in ("peer", "ours", "ratio", "target"):
        made.add_column(title, justify="right", no_wrap=True)
    made.add_column("", no_wrap=True)
    for row in rows:
        verdict = Text("reached", "green") if row.ratio >= AIR * row.target else Text("missed", "red")
        target = (f"{row.target:g}", verdict) if row.target else ("-", Text(""))
        beside = (figure(row.peer), figure(row.ours), f"{row.ratio:.2f}") if row.peer else ("-", figure(row.ours), "-")
        made.add_row(row.what, row.unit, *beside, *target)
    console = Console(width=WIDTH, highlight=False)
    console.print(made)
    console.print(note)


def figure(value: float) -> str:
    """A number with about three significant digits."""
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.1f}" if value >= 100 else f"{value:.2f}"
