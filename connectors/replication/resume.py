"""Finds the first offset of each source log that the target does not have, from the tails of the target logs.

A killed copier may still have requests in flight. Therefore the target's ends are read again, after `LATE_S` or the
maximum lag of its ends, until no more records arrive.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from trueup.connectors.contract import LogId
from trueup.connectors.replication.tail import Bounds, Tails, TailSearch
from trueup.connectors.replication.track import LogTrack
from trueup.state.common.errors import Stop, TrueupError

LATE_S = 0.25
"""The time in seconds for which the sockets of a killed copier may still deliver data."""
Ends = Callable[[Iterable[LogId]], Mapping[LogId, Bounds | TrueupError]]
"""Start and end of each log, or the error. Raises `Retry` and `Stop` for a whole cluster."""


class Resume:
    """Resumes the logs of one lease, when it opens and after each request with an unknown result. ``source`` and
    ``target``: the functions that read the bounds of the logs of each side, after everything that the servers of this
    side have is visible. ``lag_s``: the seconds by which the ends of either side may lag behind acknowledgements."""

    def __init__(self, source: Ends, target: Ends, tails: Tails, lag_s: float = 0.0) -> None:
        self._source, self._ends, self._tails, self._lag_s = source, target, tails, lag_s

    def run(self, tracks: Sequence[LogTrack], ours: bool) -> None:
        """Set each track to the first offset that the target does not have. ``ours``: records of this copier may be in
        flight; otherwise those of a predecessor. A track whose offset cannot be determined stores the error.
        Raises that error if this applies to all of them."""
        if not tracks:
            return
        if self._lag_s:
            time.sleep(self._lag_s)
        ends = self._source([track.source for track in tracks])
        for track in tracks:
            if isinstance(end := ends[track.source], TrueupError):
                track.miss(end)
            else:
                track.bounds = end  # shown also while its target cannot be read
        if there := [track for track in tracks if not isinstance(ends[track.source], TrueupError)]:
            for track in self._look(there, ours):
                _enter(track, ends[track.source])
        if not any(track.known or track.stopped for track in tracks):
            raise tracks[0].trouble

    def _look(self, tracks: Sequence[LogTrack], ours: bool) -> list[LogTrack]:
        """Read the tails of the target logs. Returns the tracks whose targets could be read."""
        ends = self._ends([track.lane.target for track in tracks])
        bounds = {target: end for target, end in ends.items() if isinstance(end, Bounds)}
        readable = _seen(tracks, ends)
        if not readable:
            return readable
        for track in readable:
            if track.chosen:
                track.floor, track.chosen = bounds[track.lane.target].end, False
        shrunk = {track: track.floor for track in readable if track.floor > bounds[track.lane.target].end}
        for track in shrunk:
            track.floor = -1
        refused: dict[LogId, TrueupError] = {}
        try:
            more = self._read(readable, bounds, ours, refused) or ours
        finally:
            for track, floor in shrunk.items():
                track.floor = floor if track.floor < 0 else track.floor  # its tail was not read
        for track in shrunk:
            if track.lane.target not in refused:
                track.shrunk(bounds[track.lane.target].end)
        while more:
            time.sleep(max(LATE_S, self._lag_s))
            later = self._ends(bounds)
            readable = _seen(readable, later)
            grown = {
                target: Bounds(bounds[target].end, end.end)
                for target, end in later.items()
                if isinstance(end, Bounds) and end.end > bounds[target].end
            }
            again = [track for track in readable if track.lane.target in grown]
            more = bool(grown) and self._read(again, grown, ours, refused)
            bounds |= grown
        return _seen(readable, {**bounds, **refused})

    def _read(
        self, tracks: Sequence[LogTrack], ends: Mapping[LogId, Bounds], ours: bool, refused: dict[LogId, TrueupError]
    ) -> bool:
        """Read the tails below ``ends``. Returns whether they contain records that no position covers. ``refused``:
        the errors of target logs that cannot be read are added; their tracks stay as they are."""
        floors: dict[LogId, dict[bytes, int]] = {}
        for track in tracks:
            floors.setdefault(track.lane.target, {})[track.prefix] = track.floor
        searches = {target: TailSearch(ends[target], by_prefix) for target, by_prefix in floors.items()}
        refused |= self._tails.run(searches)
        more = False
        for track in tracks:
            if track.lane.target in refused:
                continue
            more |= track.found(searches[track.lane.target].met[track.prefix], ours)
            track.floor = track.lane.next = track.lane.clear = ends[track.lane.target].end
        return more


def _seen(tracks: Sequence[LogTrack], ends: Mapping[LogId, Bounds | TrueupError]) -> list[LogTrack]:
    """The tracks whose targets' ends are known; the others store the error."""
    for track in tracks:
        if isinstance(end := ends[track.lane.target], TrueupError):
            track.miss(end)
    return [track for track in tracks if isinstance(ends[track.lane.target], Bounds)]


def _enter(track: LogTrack, end: Bounds | TrueupError) -> None:
    """Compare the position with the bounds of the source log."""
    if isinstance(end, TrueupError):
        track.miss(end)
        return
    if track.offset > end.end:
        track.miss(
            Stop(
                f"offset {track.offset} in {track.source}",
                f"that it ends at {end.end}",
                "it was recreated or lost records: exclude it from the link, or set another target topic",
            )
        )
        return
    if track.offset < end.start:
        track.counts.lost += end.start - track.offset if track.begun else 0
        track.offset = end.start
    track.reached, track.known, track.begun = track.offset, True, True
