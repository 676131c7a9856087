"""The health of log directories."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trueup.streams.runtime.format import many, short
from trueup.streams.runtime.signs import Signs

CALM = ("logdirs.cannot-cordon",)
"""Rules that an operator cannot remedy at present."""


def signs(status: Mapping[str, Any]) -> Signs:
    """The health of log directories, from the application's status."""
    rows = status["logdirs"]
    count = sum(row["directories"] for row in rows)
    return Signs(
        well=f"{many(count, 'log directory', 'log directories')} level" if rows else "",
        attention=list(_attention(rows)),
        lines=[("Dirs", _line(row)) for row in rows],
    )


def _attention(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for row in rows:
        wrong = {rule: count for rule, count in row["rules"].items() if rule not in CALM}
        if wrong:
            text = ", ".join(f"{short(rule)} on {many(count, 'broker')}" for rule, count in wrong.items())
            yield f"log directories of {row['kafka']}: {text}"


def _line(row: Mapping[str, Any]) -> str:
    skew = f"skew {row['skew']:.0%}, {row['moving']:,} moving, {row['planned']:,} planned"
    return f"{row['kafka']}: {row['directories']:,} on {many(row['brokers'], 'broker')}, {skew}"


def trends(status: Mapping[str, Any]) -> Mapping[str, float]:
    """The largest skew, moves in progress, and planned ones."""
    rows = status["logdirs"]
    return {
        "skew %": max((row["skew"] for row in rows), default=0.0) * 100,
        "moving": sum(row["moving"] for row in rows),
        "planned moves": sum(row["planned"] for row in rows),
    }
