"""Helpers for life cycles that are defined as tables."""

from collections.abc import Iterable, Mapping
from typing import Any


def diagram(transitions: Mapping[Any, str], ends: Iterable[str], begin: str = "planned") -> str:
    """Render a table of (stage, event) to stage as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {begin}"]
    lines += [f"    {before} --> {after}: {event}" for (before, event), after in transitions.items()]
    return "\n".join([*lines, *(f"    {end} --> [*]" for end in sorted(ends))]) + "\n"
