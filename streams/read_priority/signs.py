"""The health of read priorities."""

from collections.abc import Mapping
from typing import Any

from trueup.streams.runtime.format import many, short
from trueup.streams.runtime.signs import Signs


def signs(status: Mapping[str, Any]) -> Signs:
    """The health of read priorities, from the application's status."""
    found = status.get("read_priority")
    if found is None:
        return Signs()
    wrong = ", ".join(f"{short(rule)} {count:,}" for rule, count in found["rules"].items())
    attention = [f"read priorities: {wrong}"] if wrong else []
    attention += [f"read priorities: {found['problem']}"] if found["problem"] else []
    declared = f"{many(found['namespaces'], 'namespace')}, {many(found['topics'], 'topic')}"
    line = f"{declared}, {found['switched']:,} switched, {found['due']:,} due, mode {found['mode']}"
    return Signs(
        well=f"read priority of {many(found['topics'], 'topic')} as declared" if found["topics"] else "",
        attention=attention,
        lines=[("Reads", line)],
    )


def trends(status: Mapping[str, Any]) -> Mapping[str, float]:
    """Changes that are due, and topics whose priority was switched."""
    found = status["read_priority"] or {"due": 0, "switched": 0}
    return {"changes due": found["due"], "switched": found["switched"]}
