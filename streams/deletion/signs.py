"""The health of deletions."""

from collections.abc import Mapping
from typing import Any

from trueup.streams.runtime.format import many, size
from trueup.streams.runtime.signs import Signs


def signs(status: Mapping[str, Any]) -> Signs:
    """Health from the unreferenced ledgers and deletions in the application's status."""
    found = status["deletion"]
    if found is None:
        return Signs()
    text = f"{many(found['unreferenced'], 'unreferenced ledger')}, {size(found['bytes'])}, mode {found['mode']}"
    stages = ", ".join(f"{count:,} {stage}" for stage, count in found["deletions"].items() if count)
    paused = ", paused" if found["paused"] else ""
    return Signs(blinding=["owners"], lines=[("Deletion", text + paused + (f"; {stages}" if stages else ""))])


def trends(status: Mapping[str, Any]) -> Mapping[str, float]:
    """Unreferenced ledgers, their bytes, and deletions in progress."""
    found = status["deletion"] or {"unreferenced": 0, "bytes": 0, "deletions": {}}
    return {
        "unreferenced": found["unreferenced"],
        "unreferenced bytes": found["bytes"],
        "deletions in progress": sum(found["deletions"].values()),
    }
