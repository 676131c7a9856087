"""Translation of a group's offset to another cluster, where several links write to the topic.

Each cluster interleaves its own records and those of the links in order of arrival, so the order of records differs
between the clusters. The translation is the first record at the target that the group may not have read: no unread
record is skipped, records that it read may be repeated. The target log contains the records of one link, which copies
from the log that the group reads; the records that are produced there, if links copy them back; and the records of
other links.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trueup.state.replication.offset_map import Column, OffsetMap, Translation


class Hop(NamedTuple):
    """A link on the way of records to the log that the group reads, and its map."""

    link: str
    map: OffsetMap


class TargetWriter(NamedTuple):
    """Another link that copies to the target log, and its map."""

    link: str
    map: OffsetMap
    way: Sequence[Hop]
    """The links, in order, that copy the records from the source log of this link to the log that the group reads."""


def across(
    there: OffsetMap, way: Sequence[Hop], writers: Sequence[TargetWriter], offset: int
) -> tuple[Translation, int]:
    """The offset at the target where a group that reads ``offset`` next continues, and the number of target offsets by
    which ``writers`` reduce it. ``there``: the map from the log that the group reads to the target log. ``way``: the
    links that copy the target's own records back (empty: none)."""
    alone = _between(there, way, offset)
    if alone.offset is None:
        return alone, 0
    least, reason = alone.offset, alone.reason
    for writer in writers:
        limit = _limit(writer, offset)
        if limit.offset is None:
            return limit, 0
        if limit.offset < least:
            least, reason = limit.offset, f"it may not have read the next record of link {writer.link} there"
    return Translation(least, reason), alone.offset - least


def _between(there: OffsetMap, way: Sequence[Hop], offset: int) -> Translation:
    """The translation without other writers."""
    if not way:
        translation = there.translate(offset)
        return Translation(there.clear) if translation.offset is None and _nothing(there, offset) else translation
    if problem := there.outside(offset):
        return Translation(None, problem)
    theirs = _unread(way, offset)
    if theirs.offset is None:
        return theirs
    ours = _first(there, offset)
    if ours < 0:
        return Translation(None, "not all records at the target are known")
    # What the way back did not come to yet is not unread where it is a copy of the records that the group reads.
    return Translation(min(ours, _passed(there.target, there.count, theirs.offset)))


def _nothing(offset_map: OffsetMap, offset: int) -> bool:
    """Whether no record from ``offset`` on is at the target, and future ones will start at a known offset."""
    return not len(offset_map) and 0 <= offset_map.begin <= offset >= offset_map.sure and offset_map.clear >= 0


def _limit(writer: TargetWriter, offset: int) -> Translation:
    """The first record of a writer at the target that the group may not have read."""
    offset_map, first = writer.map, writer.way[0]
    if offset_map.begin < 0:
        return Translation(None, f"link {writer.link} copied nothing yet")
    unread = _unread(writer.way, offset)
    if unread.offset is None:
        return unread
    if offset_map.begin < first.map.begin and first.map.floor < 0:
        text = f"link {writer.link} copies from offset {offset_map.begin} on, link {first.link} from {first.map.begin}"
        return Translation(None, text)
    if unread.offset < offset_map.begin and offset_map.floor >= 0:
        return Translation(None, f"before offset {offset_map.begin}, where the map of link {writer.link} begins")
    place = _first(offset_map, max(unread.offset, offset_map.begin))
    return Translation(place) if place >= 0 else Translation(None, f"not all records of link {writer.link} are known")


def _unread(way: Sequence[Hop], offset: int) -> Translation:
    """The first record at the source of the first hop that a group that reads ``offset`` of the target of the last one
    may not have read."""
    for hop in reversed(way):
        offset_map = hop.map
        if offset_map.begin < 0:
            return Translation(None, f"link {hop.link} copied nothing yet")
        if offset < (first := max(offset_map.floor, offset_map.base)):
            return Translation(None, f"before offset {first}, where the map of link {hop.link} begins")
        offset = _unread_in(offset_map, offset)
    return Translation(offset)


def _unread_in(offset_map: OffsetMap, offset: int) -> int:
    """The source offset of the first record that a group that reads ``offset`` of the target may not have read."""
    if offset_map.sure > offset_map.begin:
        low = offset_map.backward(offset).offset
        low = offset_map.begin if low is None else low
        if low < offset_map.sure:
            return low
    high = _high(offset_map.target, offset_map.source, offset_map.count, offset)
    return offset_map.until if high is None else high


def _first(offset_map: OffsetMap, offset: int) -> int:
    """The target offset of the first record from a source offset on, or a lower bound of it; -1: unknown."""
    if offset < max(offset_map.sure, offset_map.again):
        place = offset_map.translate(offset).offset
        return -1 if place is None else place
    high = _high(offset_map.source, offset_map.target, offset_map.count, offset)
    if high is not None:
        return high
    return max(offset_map.end, offset_map.clear)


def _high(starts: Column, others: Column, count: Column, offset: int) -> int | None:
    at = int(np.searchsorted(starts, offset, "right")) - 1
    at += at < 0 or offset >= starts[at] + count[at]
    return int(others[at] + max(offset - starts[at], 0)) if at < len(starts) else None


def _passed(starts: Column, count: Column, offset: int) -> int:
    """The first offset from ``offset`` on that is in no run."""
    at = int(np.searchsorted(starts, offset, "right")) - 1
    if at < 0 or offset >= starts[at] + count[at]:
        return offset
    ends = (starts + count)[at:]
    gaps = np.flatnonzero(starts[at + 1 :] > ends[:-1])
    return int(ends[gaps[0]] if len(gaps) else ends[-1])
