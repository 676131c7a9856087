"""The field of links in the status, and the health that it shows."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from trueup.state.common.counts import many
from trueup.streams.runtime.fields import StatusFields
from trueup.streams.runtime.signs import Signs, Total, first

TROUBLED = ("stopped", "down", "stalled", "waiting", "slow")
"""States of a link that require attention."""


@dataclass(frozen=True, slots=True)
class LinkRow:
    """One link. Counts of records are those since the start of this run."""

    link: str
    source: str
    target: str
    mode: str
    paused: bool
    state: str
    reason: str
    down: Mapping[str, str]
    """The clusters that do not respond, with the reason."""
    path: str
    path_reason: str
    topics: int
    partitions: int
    lag_records: int
    """-1 if it is unknown."""
    lag_ms: int
    """The age of the oldest record that is not copied; 0 if there is none, -1 if it is unknown."""
    leases: int
    rounds: int
    taken_ms: int
    copied: int
    bytes: int
    dropped: int
    skipped: int
    dismissed: int
    filtered: int
    lost: int
    repeated: int
    foreign: int
    foreign_tags: int
    stopped: int
    """Partitions that require an operator."""
    error: str
    heartbeat_age_ms: int
    """-1 if no heartbeat arrived."""
    heartbeat_lag_ms: int
    differences: int
    """Changes that are due at the target; -1 before the first comparison."""
    groups: int
    group_lag: int
    """Records by which a group is behind at the target; -1 if it is unknown."""


@dataclass(frozen=True, slots=True)
class LinkFields(StatusFields):
    """The replication stream in the status."""

    links: Sequence[LinkRow] = field(default_factory=list)

    def signs(self) -> Signs:
        """The health of links."""
        links = self.links
        states = Counter(link.state for link in links)
        return Signs(
            well=", ".join(f"{many(count, 'link')} {state}" for state, count in states.items()),
            attention=list(self._attention()),
            named=[f"link {link.link}" for link in links],
            lines=[("Links", ", ".join(f"{count:,} {state}" for state, count in states.items()))] if links else [],
        )

    def _attention(self) -> Iterator[str]:
        """One text per cluster that does not respond, whatever the number of its links, and one per other link."""
        down: dict[str, list[LinkRow]] = {}
        for link in self.links:
            for cluster in link.down:
                down.setdefault(cluster, []).append(link)
        for cluster, some in down.items():
            names = first([link.link for link in some])
            text = f"cluster {cluster} does not respond, {'link' if len(some) == 1 else 'links'} {names}"
            yield f"{text}: {some[0].down[cluster]}"
        for link in self.links:
            if link.state in TROUBLED and not link.down:
                yield f"link {link.link} is {link.state}" + (f": {link.reason}" if link.reason else "")

    def trends(self) -> Mapping[str, float]:
        """Copied records and bytes a second, and records that are not copied yet, if they are known of every link."""
        lags = [link.lag_records for link in self.links]
        return {
            "records/s": Total(sum(link.copied for link in self.links)),
            "bytes/s": Total(sum(link.bytes for link in self.links)),
            **({"lag records": sum(lags)} if min(lags, default=-1) >= 0 else {}),
            "stopped partitions": sum(link.stopped for link in self.links),
        }
