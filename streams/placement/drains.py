"""What is left on the bookies that are drained, by the current metadata of all ledgers that may name them.

A ledger that names a draining bookie has a finding: no rule of a true ledger permits such a member. So the ledgers with
findings are read, and no other ones.
"""

from collections.abc import Callable
from typing import Protocol

from trueup.state.bookkeeper.ledgers import EMPTY, Column, Ledgers, concat
from trueup.state.bookkeeper.observations import LedgerRecord, LedgerState
from trueup.state.bookkeeper.topology import Status, Topology
from trueup.state.common.counts import many
from trueup.state.deletion.owners import claim_of
from trueup.state.placement.settings import PlacementSettings
from trueup.streams.rows import Row

AT_ONCE = 50_000
MOST_OPEN = 20
"""Maximum number of open ledgers that are named for a bookie."""


class DrainCluster(Protocol):
    """The operations of the connector that a report of drains needs."""

    def readable(self, ledgers: list[int]) -> Ledgers:
        """Current rows of these ledgers, without those that do not exist or may not be read."""

    def record(self, ledger: int) -> LedgerRecord | None:
        """Current metadata of one ledger; None if it does not exist."""


def drains(
    cluster: DrainCluster,
    policy: PlacementSettings,
    topology: Topology | None,
    findings: Callable[[], Column],
    unknown: Callable[[], str],
) -> list[Row]:
    """A row for each bookie of placement.drain. ``findings``: the ids of all ledgers with findings; ``unknown``: why
    there may be ledgers that name a bookie and have no finding, or cannot be read; empty if there are none."""
    if not policy.drain:
        return []
    status = {bookie.id: bookie.status for bookie in topology.bookies} if topology else {}
    named = _named(cluster, findings(), {*policy.drain})
    # Asked after the reading: a ledger that was judged meanwhile is in it, or is not judged yet.
    problem = unknown()
    return [_row(cluster, policy, bookie, status.get(bookie), named, problem) for bookie in sorted({*policy.drain})]


def _named(cluster: DrainCluster, ledgers: Column, bookies: set[str]) -> Ledgers:
    """Those of these ledgers that name one of the bookies."""
    parts = [EMPTY]
    for at in range(0, len(ledgers), AT_ONCE):
        rows = cluster.readable(ledgers[at : at + AT_ONCE].tolist())
        parts.append(rows.take((rows.state != LedgerState.GONE) & rows.naming(bookies)))
    return concat(parts)


def _row(
    cluster: DrainCluster, policy: PlacementSettings, bookie: str, status: Status | None, named: Ledgers, problem: str
) -> Row:
    mine = named.take(named.naming({bookie}))
    closed = int((mine.state == LedgerState.CLOSED).sum())
    waits = _waits(policy, status, closed, len(mine) - closed, problem)
    return {
        "bookie": bookie,
        "status": status.name.lower() if status else "unknown",
        "ledgers": len(mine),
        "closed": closed,
        "open": len(mine) - closed,
        "open_ledgers": _open(cluster, mine),
        "removable": not waits,
        "waits_for": waits,
    }


def _waits(policy: PlacementSettings, status: Status | None, closed: int, open_: int, problem: str) -> str:
    """What must happen before the bookie can be removed; empty if nothing must."""
    if problem:
        return problem
    if closed and policy.executor != "copy":
        return "placement.executor copy: the workers move no replicas off a live bookie"
    if closed and (policy.mode != "enforce" or policy.paused):
        state = "placement.paused is set" if policy.paused else f"placement.mode is {policy.mode}"
        return f"copies of {many(closed, 'ledger')}; {state}"
    if closed:
        return f"copies of {many(closed, 'ledger')}"
    if open_:
        return f"the writers of {many(open_, 'ledger')} to close them"
    return "the bookie to be read-only: it is still selected for new ledgers" if status is Status.WRITABLE else ""


def _open(cluster: DrainCluster, rows: Ledgers) -> list[Row]:
    """The first ledgers that are not closed, each with its owner by its metadata."""
    ids = sorted(rows.ledger[rows.state != LedgerState.CLOSED].tolist())[:MOST_OPEN]
    records = ((ledger, cluster.record(ledger)) for ledger in ids)
    return [{"ledger": ledger, "owner": claim_of(record["custom"]).owner} for ledger, record in records if record]
