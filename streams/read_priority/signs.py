"""The field of read priorities in the status, and the health that it shows."""

from collections.abc import Mapping
from dataclasses import dataclass

from trueup.state.common.counts import many
from trueup.streams.runtime.fields import StatusFields
from trueup.streams.runtime.format import short
from trueup.streams.runtime.signs import Signs


@dataclass(frozen=True, slots=True)
class ReadPriorityStatus:
    """The read priorities of one Pulsar cluster."""

    mode: str
    rules: Mapping[str, int]
    """Findings by rule."""
    copies: Mapping[str, int]
    """Ledgers by TIER:STATE of their copy there."""
    due: int
    """Changes that are due."""
    namespaces: int
    topics: int
    switched: int
    """Topics whose priority is switched to the other tier."""
    brokers: int
    at_ms: int
    """The time of the observation; 0 before the first one."""
    problem: str
    incomplete: str


@dataclass(frozen=True, slots=True)
class ReadPriorityFields(StatusFields):
    """The read priority stream in the status."""

    read_priority: ReadPriorityStatus | None = None
    """None if the stream does not run."""

    def signs(self) -> Signs:
        """The health of read priorities."""
        if (status := self.read_priority) is None:
            return Signs()
        wrong = ", ".join(f"{short(rule)} {count:,}" for rule, count in status.rules.items())
        attention = [f"read priorities: {wrong}"] if wrong else []
        attention += [f"read priorities: {status.problem}"] if status.problem else []
        declared = f"{many(status.namespaces, 'namespace')}, {many(status.topics, 'topic')}"
        return Signs(
            well=f"read priority of {many(status.topics, 'topic')} as declared" if status.topics else "",
            attention=attention,
            lines=[("Reads", f"{declared}, {status.switched:,} switched, {status.due:,} due, mode {status.mode}")],
        )

    def trends(self) -> Mapping[str, float]:
        """Changes that are due, and topics whose priority was switched."""
        status = self.read_priority
        return {"changes due": status.due if status else 0, "switched": status.switched if status else 0}
