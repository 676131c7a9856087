"""The field of log directories in the status, and the health that it shows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from trueup.state.common.counts import many
from trueup.streams.runtime.fields import StatusFields
from trueup.streams.runtime.format import short
from trueup.streams.runtime.signs import Signs

CALM = ("logdirs.cannot-cordon",)
"""Rules that an operator cannot remedy at present."""


@dataclass(frozen=True, slots=True)
class LogDirsStatus:
    """The log directories of one cluster."""

    kafka: str
    mode: str
    strategy: str
    paused: bool
    brokers: int
    directories: int
    skew: float
    """The largest skew of a broker."""
    rules: Mapping[str, int]
    """Brokers by the rule that they violate."""
    planned: int
    """Moves of the plan."""
    planned_bytes: int
    moving: int
    """Moves in progress."""
    at_ms: int
    """The time of the observation."""
    reason: str

    def line(self) -> str:
        """The text of the cluster in `trueup status`."""
        skew = f"skew {self.skew:.0%}, {self.moving:,} moving, {self.planned:,} planned"
        return f"{self.kafka}: {self.directories:,} on {many(self.brokers, 'broker')}, {skew}"


@dataclass(frozen=True, slots=True)
class LogDirFields(StatusFields):
    """The log directory stream in the status."""

    logdirs: Sequence[LogDirsStatus] = field(default_factory=list)

    def signs(self) -> Signs:
        """The health of log directories."""
        count = sum(cluster.directories for cluster in self.logdirs)
        return Signs(
            well=f"{many(count, 'log directory', 'log directories')} level" if self.logdirs else "",
            attention=list(self._attention()),
            lines=[("Dirs", cluster.line()) for cluster in self.logdirs],
        )

    def _attention(self) -> Iterator[str]:
        for cluster in self.logdirs:
            wrong = {rule: count for rule, count in cluster.rules.items() if rule not in CALM}
            if wrong:
                text = ", ".join(f"{short(rule)} on {many(count, 'broker')}" for rule, count in wrong.items())
                yield f"log directories of {cluster.kafka}: {text}"

    def trends(self) -> Mapping[str, float]:
        """The largest skew, moves in progress, and planned ones."""
        return {
            "skew %": max((cluster.skew for cluster in self.logdirs), default=0.0) * 100,
            "moving": sum(cluster.moving for cluster in self.logdirs),
            "planned moves": sum(cluster.planned for cluster in self.logdirs),
        }
