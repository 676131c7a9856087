"""The part of one stream in the health of the application, and its lines of `trueup status`."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from trueup.state.common.counts import many
from trueup.streams.rows import Row
from trueup.streams.runtime.format import age

NAMED = 3


class Total(float):
    """A number that only grows, such as copied records. Its trend is its growth per second."""

    __slots__ = ()


class Signs(NamedTuple):
    """The part of one stream in the health of the application, and its lines of `trueup status`."""

    well: str = ""
    """The part of the stream in the headline while the application is healthy, or empty."""
    blind: Sequence[str] = ()
    """The reasons for the level blind."""
    held: Sequence[str] = ()
    """The reasons for the level held."""
    held_line: str = ""
    """The headline while the stream is held."""
    attention: Sequence[str] = ()
    """The reasons for the level attention."""
    blinding: Sequence[str] = ()
    """The names of the sources without which no finding of the stream is reliable."""
    named: Sequence[str] = ()
    """The names of sources and the prefixes of problems that the reasons for attention already cover."""
    lines: Sequence[tuple[str, str]] = ()
    """The lines of `trueup status`, as (title, text)."""


def signs_of(subject: Row) -> Signs:
    """The signs of a stream computed from its counts: every state other than ``true`` requires attention."""
    counts, oldest = subject["counts"], subject["oldest_ms"]
    wrong = {what: count for what, count in counts.items() if what != "true" and count}
    since = f", the oldest for {age(oldest)}" if oldest else ""
    text = ", ".join(f"{count:,} {what}" for what, count in counts.items()) or "nothing"
    return Signs(
        well=f"{counts['true']:,} of {subject['name']} true" if counts.get("true") else "",
        attention=[f"{subject['name']}: {count:,} {what}{since}" for what, count in wrong.items()],
        lines=[(subject["name"], f"{text}, mode {subject['mode']}" + ", paused" * subject["paused"])],
    )


def first(names: Sequence[str]) -> str:
    """The first of these names, and the number of the others."""
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def lost(names: Sequence[str], what: str) -> Iterable[str]:
    """A reason for attention if any resource of this kind is lost."""
    return [f"{many(len(names), what)} lost: {first(names)}"] if names else []
