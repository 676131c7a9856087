"""Replicas that readers reported as missing or damaged.

A report is evidence from any client of the API, and may be wrong or forged. It is therefore only a reason for Trueup to
read the replica itself: until then the finding is unknown, and a report that the own read refutes is dropped. No report
and no finding of these rules leads to a change of the cluster.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from trueup.state.common.counts import many
from trueup.state.common.rules import Rule
from trueup.state.placement.rules import DAMAGE_RULES

MOST = 1_000
"""Maximum number of replicas that are remembered."""
MOST_AT_ONCE = 100
"""Maximum number of replicas in one report."""
AGAIN_MS = 60_000
"""Interval between reads of a replica whose bookie did not respond."""
CONFIRMED_MS = 600_000
"""Interval between reads of a replica that was found damaged, until it is repaired."""
_CONFIRMED, _REPORTED = DAMAGE_RULES
_BOOKIE = re.compile(r"[A-Za-z0-9._:-]{1,255}")
_KINDS = {"missing": True, "digest": False}
_LARGEST = (1 << 63) - 1


class ReplicaRange(NamedTuple):
    """A range of entries of a ledger on one bookie."""

    ledger: int
    bookie: str
    first: int
    """The first entry of the range."""
    last: int
    """The last entry of the range, inclusive."""


class ReplicaDamage(NamedTuple):
    """A reported replica."""

    replica: ReplicaRange
    missing: bool
    """Whether the reported entries were missing; otherwise their digest was wrong."""
    reporter: str
    """The user and the address from which the first report came; they are not verified."""
    at_ms: int
    """The time of the first report, ms since the epoch."""
    confirmed: bool = False
    """Whether Trueup read the replica and found it damaged."""
    checked_ms: int = 0
    """The time of the last attempt to read the replica, ms since the epoch; 0 if there was none in this run."""
    detail: str = ""
    """The result of the last read, or why the read failed; empty before the first read."""

    @property
    def rule(self) -> Rule:
        """The rule of its finding."""
        return _CONFIRMED if self.confirmed else _REPORTED

    def due(self, now_ms: int) -> bool:
        """Whether Trueup should read the replica now."""
        wait_ms = CONFIRMED_MS if self.confirmed else AGAIN_MS
        return not self.checked_ms or now_ms - self.checked_ms >= wait_ms


class ReplicaRead(NamedTuple):
    """Trueup's own read of a replica: the number of entries read, and those that are missing or damaged."""

    read: int
    missing: tuple[int, ...]
    damaged: tuple[int, ...]

    @property
    def whole(self) -> bool:
        """Whether every entry that was read is intact."""
        return not self.missing and not self.damaged

    @property
    def detail(self) -> str:
        """What was found, as text."""
        parts = [("missing", self.missing), ("with a wrong digest", self.damaged)]
        words = [f"{len(entries):,} {what}, first {entries[0]}" for what, entries in parts if entries]
        return f"of {many(self.read, 'entry', 'entries')} that Trueup read: {'; '.join(words) or 'all intact'}"


def reported(body: Mapping[str, Any]) -> list[tuple[ReplicaRange, bool]] | None:
    """The replicas of a report, and whether their entries were missing; None if the report is malformed."""
    replicas = body.get("replicas")
    if set(body) != {"replicas"} or not isinstance(replicas, list) or not 1 <= len(replicas) <= MOST_AT_ONCE:
        return None
    parsed = [_replica(replica) for replica in replicas]
    return None if None in parsed else [replica for replica in parsed if replica is not None]


def _replica(fields: Any) -> tuple[ReplicaRange, bool] | None:
    if not isinstance(fields, dict) or set(fields) != {"ledger", "bookie", "first", "last", "found"}:
        return None
    ids = [fields["ledger"], fields["first"], fields["last"]]
    if not all(type(number) is int and 0 <= number <= _LARGEST for number in ids) or ids[1] > ids[2]:
        return None
    bookie, kind = fields["bookie"], fields["found"]
    if not isinstance(bookie, str) or not _BOOKIE.fullmatch(bookie) or kind not in ("missing", "digest"):
        return None
    return ReplicaRange(ids[0], bookie, ids[1], ids[2]), _KINDS[kind]


def crowded_out(damages: Iterable[ReplicaDamage], most: int = MOST) -> list[ReplicaDamage]:
    """What to forget so that at most ``most`` remain: the oldest reports without confirmation, and only then the oldest
    confirmed ones. Forged reports therefore displace no confirmed damage before they are confirmed themselves."""
    every = sorted(damages, key=lambda report: (report.confirmed, report.at_ms))
    return every[: max(0, len(every) - most)]
