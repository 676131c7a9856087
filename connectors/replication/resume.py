"""Brings flows to where the target says that they stand, and looks again for what a predecessor had on the wire."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from trueup.connectors.contract import LogId
from trueup.connectors.replication.tail import Bounds, Search, Tails
from trueup.connectors.replication.track import LogTrack
from trueup.state.common.errors import Stop, TrueupError

LATE_S = 0.25
"""After a killed copier its sockets still deliver what they hold."""


Ends = Callable[[Iterable[LogId]], Mapping[LogId, Bounds | TrueupError]]
"""Where each log starts and ends, or why that is not known. Raises `Retry` and `Stop` for a whole cluster."""


class Resume:
    """Opens tracks of one lease, again and again. ``target``: ends of the target, once all is shown that its servers
    have. ``lag_s``: by how much the ends of either side may lag what was acknowledged."""

    def __init__(self, source: Ends, target: Ends, tails: Tails, lag_s: float = 0.0) -> None:
        self._source, self._ends, self._tails, self._lag_s = source, target, tails, lag_s

    def run(self, flows: Sequence[LogTrack], ours: bool) -> None:
        """Set each flow to the first offset that the target does not have. ``ours``: records of this copier may be on
        the wire. Where that cannot be found out the flow says why. Raises `Retry` when it can for none of them."""
        if not flows:
            return
        if self._lag_s:
            time.sleep(self._lag_s)
        ends = self._source([flow.source for flow in flows])
        if known := self._look(flows, ours):
            for flow in known:
                _enter(flow, ends[flow.source])
        if not any(flow.known or flow.stopped for flow in flows):
            raise flows[0].trouble

    def _look(self, flows: Sequence[LogTrack], ours: bool) -> list[LogTrack]:
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
            time.sleep(max(LATE_S, self._lag_s))
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

    def _read(self, flows: Sequence[LogTrack], ends: Mapping[LogId, Bounds], ours: bool) -> bool:
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


def _seen(flows: Sequence[LogTrack], ends: Mapping[LogId, Bounds | TrueupError]) -> list[LogTrack]:
    """Those whose targets' ends are known; the others say why."""
    for flow in flows:
        if isinstance(end := ends[flow.lane.target], TrueupError):
            flow.miss(end)
    return [flow for flow in flows if isinstance(ends[flow.lane.target], Bounds)]


def _enter(flow: LogTrack, end: Bounds | TrueupError) -> None:
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
