"""What the status of one stream means for the health of the whole, and its lines of `trueup status`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trueup.streams.runtime.format import age, many

NAMED = 3


@dataclass(frozen=True, slots=True)
class Signs:
    """``well``: a part of the headline of a healthy application, empty if there is nothing to say. ``blind``, ``held``,
    ``attention``: reasons for these levels of health; ``held_line``: the headline while the stream is held.

    ``blinding``: sources without which nothing that is shown is known to hold. ``named``: names under which problems
    and sources are listed whose faults are among ``attention`` already. ``lines``: of `trueup status`, (title, text).
    """

    well: str = ""
    blind: Sequence[str] = ()
    held: Sequence[str] = ()
    held_line: str = ""
    attention: Sequence[str] = ()
    blinding: Sequence[str] = ()
    named: Sequence[str] = ()
    lines: Sequence[tuple[str, str]] = ()


def signs_of(subject: Mapping[str, Any]) -> Signs:
    """The signs of a stream by its counts alone; those that are ``true`` are well, all others need attention."""
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
    """Some of these names, and how many more there are."""
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def lost(names: Sequence[str], what: str) -> Iterable[str]:
    """A reason if anything of that kind is lost."""
    return [f"{many(len(names), what)} lost: {first(names)}"] if names else []
