"""Formats durations, counts and sizes for the command line and the status page."""

from itertools import pairwise

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


def age(ms: float | None) -> str:
    """A duration: 45s, 3m12s, 20m, 5h2m, 12d; the smaller unit only if the larger is less than ten. "-" for None."""
    if ms is None:
        return "-"
    rest = max(0, int(ms) // 1000)
    for (size, unit), (below, minor) in pairwise(_UNITS):
        if rest >= size:
            count, left = divmod(rest, size)
            return f"{count}{unit}" + (f"{left // below}{minor}" if count < 10 and left >= below else "")
    return f"{rest}s"


def ago(ms: float | None) -> str:
    """The age of an observation: 45s ago; "-" for None."""
    return "-" if ms is None else f"{age(ms)} ago"


def since(now_ms: int, then_ms: int | None) -> str:
    """The time since then; "-" for never."""
    return age(now_ms - then_ms) if then_ms else "-"


def size(count: float) -> str:
    """Bytes with a binary unit: 512 B, 1.5 KiB, 20 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if count >= 10 or unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"


def cut(text: str, most: int) -> str:
    """The text truncated to ``most`` characters, with an ellipsis as the last one."""
    return text if len(text) <= most else text[: most - 1] + "…"


def bounded(value: object, most: int) -> object:
    """A copy of lists and mappings with every text `cut`."""
    if isinstance(value, str):
        return cut(value, most)
    if isinstance(value, dict):
        return {bounded(name, most): bounded(part, most) for name, part in value.items()}
    return [bounded(part, most) for part in value] if isinstance(value, list | tuple) else value


def short(rule: str) -> str:
    """A rule id without the prefix of its stream."""
    return rule.partition(".")[2] or rule
