"""Combines the offset maps of all links to the mappings of group offsets of one link.

A group that continues at the target skips no record that a link copied there, and no record of the target that links
copy to the source. Therefore a mapping includes the links that bring records of the target to the source (the opposite
link, or several links in a ring), and the other links that write to the target log, each with the links that bring the
same records to the source. Records that no link brings to the source were not read by a group there, so there is no
translation in a log to which another link copies such records.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from trueup.connectors.contract import LogId
from trueup.connectors.replication.group_sync import OffsetMapping
from trueup.state.replication.group_offsets import Hop, TargetWriter
from trueup.state.replication.settings import LinkSettings as Declared
from trueup.streams.replication.links.checkpoints import Copy
from trueup.streams.replication.links.link import Link
from trueup.streams.replication.links.snapshot import differ

STOPPED = "the partition is stopped"


class CopyStep(NamedTuple):
    """The copy of one log by one link."""

    link: str
    source: str
    """The name of the cluster from which the link copies."""
    forward: bool
    copy: Copy | None
    """The copy of the log; None before the first lease of the log."""


def mappings(link: Link, links: Iterable[Link]) -> dict[LogId, OffsetMapping]:
    """Mappings of source offsets to target offsets. ``links``: all links."""
    every, copies, starts = list(links), _copies(link), link.snapshot.facts.source.logs
    source, target = link.declared.source, link.declared.target
    ways, writers = FeedingLinks(source, every), _writers(link, every, target, {copy.target for copy in copies})
    feeding = _writers(link, every, source, {copy.source for copy in copies})
    by_source = dict[LogId, OffsetMapping]()
    for copy in copies:
        start, _ = starts.get(copy.source, (-1, -1))
        back, others = ways.of(target, copy.target, copy.source), writers.get(copy.target, ())
        if len(back) == 1 and back[0].forward:  # it brings the records of the other links, except those of the source
            others = [other for other in others if other.source == source]
        # The records that the opposite link restored came from the target, so its map says where they are there.
        refills = [step for step in feeding.get(copy.source, ()) if len(back) != 1 or step.link != back[0].link]
        broken = STOPPED if copy.excluded else _broken(back, copy.target_id, copy.source, copy.source_id)
        reason = broken or _refilling(refills)
        mapping = OffsetMapping(
            copy.target,
            copy.map,
            _hops(back, whole=len(back) == 1 and _contains_restored(copy)),
            ids=(copy.source_id, copy.target_id),
            start=start,
            restored=_restored(refills),
            blocked_reason=reason,
        )
        by_source[copy.source] = mapping if reason or not others else _limited(mapping, copy, ways, others)
    return by_source


def mappings_back(link: Link, links: Iterable[Link]) -> dict[LogId, OffsetMapping]:
    """Mappings of target offsets to source offsets, from the offset map of this link only. An offset in a log to which
    several logs are copied is not translated."""
    copies, starts = _copies(link), link.snapshot.facts.target.logs
    # A link that forwards brings the records of all other links to the target.
    others = () if link.declared.forward else links
    writers = _writers(link, others, link.declared.source, {copy.source for copy in copies})
    by_target, sharing = dict[LogId, OffsetMapping](), Counter(copy.target for copy in copies)
    for copy in copies:
        start, _ = starts.get(copy.target, (-1, -1))
        reason = STOPPED if copy.excluded else ""
        if sharing[copy.target] > 1:
            reason = f"several logs of the source are copied to {copy.target}"
        if not reason and (steps := writers.get(copy.source)):
            reason = _elsewhere(steps[0].link, copy.source, copy.target)
        by_target[copy.target] = OffsetMapping(
            copy.source,
            copy.map,
            reverse=True,
            ids=(copy.target_id, copy.source_id),
            start=start,
            blocked_reason=reason,
        )
    return by_target


class FeedingLinks:
    """The links by which records of other clusters come to the cluster ``home``."""

    def __init__(self, home: str, links: Iterable[Link]) -> None:
        self._home = home
        self._leaving: dict[str, list[tuple[Link, Declared]]] = {}
        for link in links:
            self._leaving.setdefault(link.declared.source, []).append((link, link.declared))
        for leaving in self._leaving.values():
            leaving.sort(key=lambda row: row[1].target != home)

    def of(self, cluster: str, log: LogId, destination: LogId) -> Sequence[CopyStep]:
        """The shortest way from a log of a cluster to the topic of ``destination`` at ``home``; empty: there is none.
        No record comes back to a cluster."""
        pending, seen = [(cluster, log, tuple[CopyStep, ...]())] if cluster != self._home else [], {cluster}
        for at, here, steps in pending:
            for link, declared in self._leaving.get(at, ()):
                target = declared.target
                if target in seen or (steps and not declared.forward) or (place := _place(link, here)) is None:
                    continue
                way = (*steps, CopyStep(link.name, at, declared.forward, link.copies.get(here)))
                if target == self._home and place.topic == destination.topic:
                    return way
                if target != self._home:
                    seen.add(target)
                    pending.append((target, place, way))
        return ()


def _refilling(steps: Iterable[CopyStep]) -> str:
    """Why no offset of a log to which these steps copy is translated; empty if none of them is a refill."""
    links = [step.link for step in steps if step.copy is not None and step.copy.refill is not None]
    return f"link {links[0]} refills the log" if links else ""


def _contains_restored(copy: Copy) -> bool:
    """Whether a link refilled a log, and its map contains all records that it restored."""
    return copy.map.base < 0 and (copy.refill is not None or copy.restored > 0)


def _restored(steps: Iterable[CopyStep]) -> int:
    """The offset after the last record that one of these steps restored in a log to which they copy."""
    return max((step.copy.restored for step in steps if step.copy is not None), default=0)


def _copies(link: Link) -> list[Copy]:
    with link.lock:
        return list(link.copies.values())


def _place(link: Link, log: LogId) -> LogId | None:
    """Where a link copies a log; None: it does not copy it."""
    if (copy := link.copies.get(log)) is not None:
        return copy.target if _writes(link, copy) else None
    exists = log in link.snapshot.facts.source.topics.get(log.topic, ())
    return link.place(log) if exists and link.declared.mode != "observe" else None


def _writes(link: Link, copy: Copy) -> bool:
    """Whether a link wrote records of a copy, or may write them."""
    return copy.map.begin >= 0 or link.declared.mode != "observe"


def _writers(
    link: Link, links: Iterable[Link], cluster: str, logs: Collection[LogId]
) -> Mapping[LogId, list[CopyStep]]:
    """The copies of all other links to these logs of a cluster, by log."""
    topics, writers = {log.topic for log in logs}, dict[LogId, list[CopyStep]]()
    for other in links:
        declared = other.declared
        if other is link or declared.target != cluster:
            continue
        for copy in _copies(other):
            if copy.target.topic in topics and _writes(other, copy):
                step = CopyStep(other.name, declared.source, declared.forward, copy)
                writers.setdefault(copy.target, []).append(step)
    return writers


def _limited(mapping: OffsetMapping, copy: Copy, ways: FeedingLinks, others: Iterable[CopyStep]) -> OffsetMapping:
    """The mapping with the other links that write to its target."""
    writers = list[TargetWriter]()
    for other in others:
        assert other.copy is not None, "it writes to the target"
        way = ways.of(other.source, other.copy.source, copy.source)
        if not way or (other.forward and not _forwards(way)):
            return replace(mapping, blocked_reason=_elsewhere(other.link, copy.target, copy.source))
        reason = _broken((other,), "", copy.target, copy.target_id)
        reason = reason or _broken(way, other.copy.source_id, copy.source, copy.source_id)
        if reason:
            return replace(mapping, blocked_reason=reason)
        writers.append(TargetWriter(other.link, other.copy.map, _hops(way)))
    return replace(mapping, writers=writers)


def _broken(steps: Sequence[CopyStep], begin_id: str, end: LogId, end_id: str) -> str:
    """Why the maps of these steps cannot be used together; empty if they can. ``begin_id``: the id of the topic where
    the first step begins; ``end`` and ``end_id``: the log where the last step must end, and the id of its topic."""
    for step in steps:
        if (copy := step.copy) is None:
            return f"link {step.link} copied nothing yet"
        if copy.excluded or differ(begin_id, copy.source_id):
            return f"{STOPPED} in link {step.link}"
        begin_id = copy.target_id
        if step is steps[-1] and copy.target != end:
            return f"link {step.link} copies {copy.source} to {copy.target}"
    return f"{STOPPED} in link {steps[-1].link}" if steps and differ(begin_id, end_id) else ""


def _elsewhere(link: str, log: LogId, unread: LogId) -> str:
    return f"link {link} also copies to {log}, and not all of its records come to {unread}"


def _forwards(steps: Sequence[CopyStep]) -> bool:
    return all(step.forward for step in steps)


def _hops(steps: Sequence[CopyStep], whole: bool = False) -> list[Hop]:
    """The maps of these steps. One without a copy is never used: see `_broken`. ``whole``: whether the map of the link
    in question contains what the maps of these steps lack: earlier copies, which it restored."""
    maps = [(step.link, step.copy.map) for step in steps if step.copy is not None]
    return [Hop(link, replace(offset_map, base=-1) if whole else offset_map) for link, offset_map in maps]
