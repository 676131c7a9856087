"""Brings flows to where the target says that they stand, and looks again for what a predecessor had on the wire."""

import time
from collections.abc import Iterable, Mapping, Sequence

from trueup.connectors.contract import Lease, LogId
from trueup.connectors.kafka.client.cluster import Cluster
from trueup.connectors.kafka.replication.records.clients import Bounds, bounds
from trueup.connectors.kafka.replication.records.partitions import Flow
from trueup.connectors.kafka.replication.records.target_tail import Search, Tails
from trueup.state.common.errors import Stop, TrueupError

LATE_S = 0.25
"""After a killed copier its sockets still deliver what they hold."""


class Resume:
    """Opens flows of one lease, again and again. ``target`` None: its options are such that it cannot be asked whether
    its leaders have what they do not show."""

    def __init__(self, lease: Lease, target: Cluster | None) -> None:
        self._lease, self._target = lease, target
        self._tails = Tails(lease.target)

    def run(self, flows: Sequence[Flow], ours: bool) -> None:
        """Set each flow to the first offset that the target does not have. ``ours``: records of this copier may be on
        the wire. Where that cannot be found out the flow says why. Raises `Retry` when it can for none of them."""
        if not flows:
            return
        ends = bounds(self._lease.source, [flow.source for flow in flows])
        if known := self._look(flows, ours):
            for flow in known:
                _enter(flow, ends[flow.source])
        if not any(flow.known or flow.stopped for flow in flows):
            raise flows[0].trouble

    def _look(self, flows: Sequence[Flow], ours: bool) -> list[Flow]:
        """Take what stands in the tails of the targets; those flows for which this could be done."""
        ends = self._ends([flow.lane.target for flow in flows])
        found = {target: end for target, end in ends.items() if isinstance(end, Bounds)}
        known = _seen(flows, ends)
        for flow in known:
            if flow.chosen:
                flow.floor, flow.chosen = found[flow.lane.target].end, False
        shrunk = [flow for flow in known if flow.floor > found[flow.lane.target].end]
        for flow in shrunk:
            flow.floor = -1
        more = self._read(known, found, ours) or ours
        for flow in shrunk:
            flow.shrunk(found[flow.lane.target].end)
        while more:
            time.sleep(LATE_S)
            later = self._ends(found)
            known = _seen(known, later)
            grown = {
                target: Bounds(found[target].end, end.end)
                for target, end in later.items()
                if isinstance(end, Bounds) and end.end > found[target].end
            }
            more = bool(grown) and self._read([f for f in known if f.lane.target in grown], grown, ours)
            found |= grown
        return known

    def _ends(self, targets: Iterable[LogId]) -> Mapping[LogId, Bounds | TrueupError]:
        """Where targets start and end, once all that their leaders have is replicated: before that they do not show
        it, and it may be ours."""
        wanted = set(targets)
        if self._target is None:
            return bounds(self._lease.target, wanted)
        self._target.refresh(target.topic for target in wanted)
        settled = self._target.settled(wanted)
        wrong = {target: end for target, end in settled.items() if isinstance(end, TrueupError)}
        return {**bounds(self._lease.target, wanted), **wrong}

    def _read(self, flows: Sequence[Flow], ends: Mapping[LogId, Bounds], ours: bool) -> bool:
        """Read the tails below ``ends``. Whether records were found that no position told of."""
        floors: dict[LogId, dict[bytes, int]] = {}
        for flow in flows:
            floors.setdefault(flow.lane.target, {})[flow.prefix] = flow.floor
        searches = {target: Search(ends[target], wanted) for target, wanted in floors.items()}
        self._tails.run(searches)
        more = False
        for flow in flows:
            more |= flow.found(searches[flow.lane.target].met[flow.prefix], ours)
            flow.floor = flow.lane.next = ends[flow.lane.target].end
        return more

    def close(self) -> None:
        """Let go of connections."""
        self._tails.close()


def _seen(flows: Sequence[Flow], ends: Mapping[LogId, Bounds | TrueupError]) -> list[Flow]:
    """Those whose targets' ends are known; the others say why."""
    for flow in flows:
        if isinstance(end := ends[flow.lane.target], TrueupError):
            flow.miss(end)
    return [flow for flow in flows if isinstance(ends[flow.lane.target], Bounds)]


def _enter(flow: Flow, end: Bounds | TrueupError) -> None:
    """Hold the position against what the source has."""
    if isinstance(end, TrueupError):
        flow.miss(end)
        return
    flow.bounds = end
    if flow.offset > end.end:
        flow.miss(Stop(
            f"offset {flow.offset} in {flow.source}", f"that it ends at {end.end}",
            "it was made anew or lost records: take it out of the link, or give it another topic at the target",
        ))  # fmt: skip
        return
    if flow.offset < end.start:
        flow.counts.lost += end.start - flow.offset if flow.begun else 0
        flow.offset = end.start
    flow.reached, flow.known = flow.offset, True
