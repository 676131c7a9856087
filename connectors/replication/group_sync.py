"""Consumer groups that can go on at the other cluster: what they committed here, translated and committed there.

A group may run at one cluster only. Where it has no members its offsets are set, so that its consumers go on with the
first record that they may not have read. The same is done the other way round, so a group that moved can move back.
Offsets of a group with members are the members' own: the states of groups are read first, and a system that can tell
refuses an offset from outside if a member came meanwhile. Of consumers that commit without joining their group nobody
can know.

An offset means something in one log only. So a map holds for the topics with the ids that it was made of: what was
committed in another topic of that name is not translated, and the target is asked for its ids before anything is set.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from trueup.connectors.contract import LogId
from trueup.connectors.replication.ports import NEVER, WITHOUT_MEMBERS, Answer, GroupOffsets, Refusals
from trueup.state.common.errors import TrueupError
from trueup.state.common.patterns import matches
from trueup.state.replication.offset_map import OffsetMap, Translation, across

TRUST_S = 10.0
"""What a group has at the target is read again after so long, and before anything is set."""
SURE_S = 0.5
"""So long the ids of the target's topics hold. A request that failed ends that."""
TOGETHER = 100
"""Groups whose offsets are set at once, after one look at the ids."""


@dataclass(frozen=True, slots=True)
class Way:
    """How offsets of one partition here are told as offsets of ``to`` there.

    ``there``: map of the link from here to there, ``back``: of the opposite link over the same partitions (None:
    there is none). ``reverse``: only a link from there to here exists, and ``there`` is its map. ``ids``: of the topics
    here and there that the maps speak of (empty: not known). ``blocked_reason``: why no map holds now.
    """

    to: LogId
    there: OffsetMap
    back: OffsetMap | None = None
    reverse: bool = False
    ids: tuple[str, str] = ("", "")
    blocked_reason: str = ""

    def translate(self, offset: int) -> tuple[Translation, int]:
        """The offset there, never past what was copied, and how many offsets of here it leaves out for that."""
        if self.blocked_reason:
            return Translation(None, self.blocked_reason), 0
        if self.reverse:
            return self.there.backward(offset), 0
        reached = min(offset, self.there.until) if self.there.until >= 0 else offset
        found = across(self.there, self.back, reached)
        if found.offset is None and self._nothing(reached):
            found = Translation(self.there.clear)
        return found, offset - reached

    def _nothing(self, offset: int) -> bool:
        """Whether nothing from ``offset`` on stands there, and what will come will stand from a known place on."""
        known = self.there
        return self.back is None and not len(known) and 0 <= known.begin <= offset >= known.sure and known.clear >= 0


class Checkpoint(NamedTuple):
    """One group and partition, after one pass.

    ``committed``: here; ``translated``: what that is there (-1: not known); ``present``: what is committed there (-1:
    nothing); ``lag``: offsets of here between what was copied and ``committed``. ``action``:

    moved    ``translated`` was committed there
    due      it would be, but nothing was to be changed
    kept     the target has it, or is further (``reason``)
    active   the group has members there; nothing is touched
    waiting  there is no translation yet (``reason``)
    failed   the other cluster refused, or did not answer (``reason``)
    """

    group: str
    source: LogId
    target: LogId
    committed: int
    translated: int = NEVER
    present: int = NEVER
    lag: int = 0
    action: str = "waiting"
    reason: str = ""


class Commits(NamedTuple):
    """What groups committed at a cluster, and the ids of the topics in question that it has."""

    groups: Mapping[str, Answer]
    ids: Mapping[str, str] = {}


class Groups:
    """Carries groups from one cluster to the other. Calls block and raise what `GroupOffsets` does; what concerns one
    group alone is told in its rows.

    A pass costs one request for each coordinator on both sides, one for each broker of the target, one for each group
    that moves, of which none waits for another, and one for topic ids on either side; nothing at the target for groups
    that have what they are to have, or are further.
    """

    def __init__(self, source: GroupOffsets, target: GroupOffsets) -> None:
        self._source, self._target = source, target
        self._present: dict[str, Answer] = {}
        self._states: Mapping[str, str] = {}
        self._read_s = 0.0
        self._ids_here: Mapping[str, str] = {}
        self._ids_there: dict[str, str] = {}
        self._sure_s = 0.0

    def names(self, patterns: Sequence[str]) -> list[str]:
        """Groups of the source that are one of ``patterns`` (see `state.common.patterns.matches`), sorted."""
        return sorted(name for name in self._source.states() if matches(patterns, name)) if patterns else []

    def committed(self, patterns: Sequence[str], topics: Collection[str]) -> Commits:
        """What the groups of the source that are one of ``patterns`` committed there; ids of those of ``topics`` that
        they commit to. A topic that was made anew since the last call has none: an offset may be of the former one."""
        found = self._source.offsets(self.names(patterns))
        ids = self._source.ids(
            {place.topic for one in found.values() if isinstance(one, dict) for place in one} & {*topics}
        )
        before, self._ids_here = self._ids_here, ids
        return Commits(found, {topic: one for topic, one in ids.items() if before.get(topic, one) == one})

    def sync(
        self, groups: Sequence[str], ways: Mapping[LogId, Way], reset: Collection[str] = (), change: bool = True
    ) -> list[Checkpoint]:
        """One pass over ``groups``: `carry` what they have committed by now."""
        if not groups or not ways:
            return []
        found = self._source.offsets(groups)
        return self.carry(Commits(found, self._source.ids({place.topic for place in ways})), ways, reset, change)

    def carry(
        self, committed: Commits, ways: Mapping[LogId, Way], reset: Collection[str] = (),
        change: bool = True,
    ) -> list[Checkpoint]:  # fmt: skip
        """Set at the target what groups committed at the source, which is not asked. Offsets at the target never go
        back, but for groups in ``reset``. Nothing is changed unless ``change``."""
        if not committed.groups or not ways:
            return []
        told = _translations(ways, committed.ids)
        found = {group: _rows(group, here, ways, told) for group, here in committed.groups.items()}
        if asked := self._unsure(found, reset):
            self._present |= self._target.offsets(asked)
            self._states = self._target.states()
        rows: list[Checkpoint] = []
        for group, translated in found.items():
            here, there = committed.groups[group], self._present.get(group, {})
            if isinstance(here, TrueupError) or isinstance(there, TrueupError):
                rows += _failed(group, ways, str(here if isinstance(here, TrueupError) else there))
                continue
            state, again = self._states.get(group, ""), group in reset
            rows += [_judged(row, there.get(row.target, NEVER), state, again) for row in translated]
        return self._moved(rows, ways) if change else rows

    def _unsure(self, found: Mapping[str, Sequence[Checkpoint]], reset: Collection[str]) -> list[str]:
        """Groups of which it must be read what they have at the target: those that may have to be set."""
        now = time.monotonic()
        if now - self._read_s > TRUST_S:
            self._read_s, self._present = now, {}
        return [group for group, rows in found.items() if group in reset or not self._has(group, rows)]

    def _has(self, group: str, rows: Sequence[Checkpoint]) -> bool:
        there = self._present.get(group)
        if there is None or isinstance(there, TrueupError):
            return False
        return all(row.translated <= there.get(row.target, NEVER) for row in rows)

    def _moved(self, rows: Sequence[Checkpoint], ways: Mapping[LogId, Way]) -> list[Checkpoint]:
        """The rows once what is due was committed."""
        due: dict[str, list[Checkpoint]] = {}
        for row in rows:
            if row.action == "due":
                due.setdefault(row.group, []).append(row)
        names, done = list(due), dict[tuple[str, LogId], Checkpoint]()
        for start in range(0, len(names), TOGETHER):
            found = self._set([row for name in names[start : start + TOGETHER] for row in due[name]], ways)
            done |= {(row.group, row.source): row for row in found}
        return [done.get((row.group, row.source), row) for row in rows]

    def _set(self, rows: Sequence[Checkpoint], ways: Mapping[LogId, Way]) -> list[Checkpoint]:
        """Commit rows that are due, of each group in one request."""
        due: dict[str, dict[LogId, int]] = {}
        try:
            rows = self._meant(rows, ways)
            for row in rows:
                if row.action == "due":
                    due.setdefault(row.group, {})[row.target] = row.translated
            told = self._target.commit(due) if due else {}
        except TrueupError as error:
            told = {row.group: error for row in rows}
        if any(isinstance(one, TrueupError) for one in told.values()):
            self._ids_there = {}
        for group, refusals in told.items():
            there = self._present.get(group)
            if not isinstance(refusals, TrueupError) and not isinstance(there, TrueupError):
                moved = {to: at for to, at in due[group].items() if not refusals.get(to, "?")}
                self._present[group] = {**(there or {}), **moved}
        return [_done(row, told[row.group]) if row.action == "due" else row for row in rows]

    def _meant(self, rows: Sequence[Checkpoint], ways: Mapping[LogId, Way]) -> list[Checkpoint]:
        """The rows without offsets of topics that the target no longer has. Asked as late as possible: the target may
        have come back without its data since the maps were taken."""
        topics = {row.target.topic for row in rows if row.action == "due"}
        if time.monotonic() - self._sure_s > SURE_S or not topics <= self._ids_there.keys():
            self._sure_s, self._ids_there = time.monotonic(), self._target.ids(topics | self._ids_there.keys())
        met = {(row.source, row.target) for row in rows}
        gone = {to for source, to in met if not _same(ways[source].ids[1], self._ids_there.get(to.topic))}
        return [
            row._replace(action="waiting", reason=f"{row.target.topic} there is not the topic that was copied to")
            if row.action == "due" and row.target in gone
            else row
            for row in rows
        ]


def _same(meant: str, found: str | None) -> bool:
    """Whether a topic is the one that is meant. ``found``: its id, None where there is no such topic."""
    return not meant or found in ("", meant)


Told = Callable[[LogId, int], tuple[Translation, int]]


def _translations(ways: Mapping[LogId, Way], ids: Mapping[str, str]) -> Told:
    """`Way.translate` by source partition. ``ids``: of the topics in which it was committed. Groups that keep up stand
    at the same few offsets, so each is translated once."""
    meant: dict[LogId, Way] = {}

    @cache
    def told(source: LogId, offset: int) -> tuple[Translation, int]:
        if source not in meant:
            way = ways[source]
            other = f"{source.topic} here is not the topic that was copied"
            known = _same(way.ids[0], ids.get(source.topic))
            meant[source] = way if known else replace(way, blocked_reason=other)
        return meant[source].translate(offset)

    return told


def _rows(group: str, here: Answer, ways: Mapping[LogId, Way], told: Told) -> list[Checkpoint]:
    """What is to be at the target; what is there is not known yet."""
    if isinstance(here, TrueupError):
        return []
    rows = []
    for source, offset in sorted(here.items()):
        if (way := ways.get(source)) is not None:
            found, lag = told(source, offset)
            known = NEVER if found.offset is None else found.offset
            rows.append(Checkpoint(group, source, way.to, offset, known, NEVER, lag, "waiting", found.reason))
    return _least(rows)


def _least(rows: list[Checkpoint]) -> list[Checkpoint]:
    """Where several partitions go into one, its offset is the least of theirs, and none while one has none."""
    least: dict[LogId, int] = {}
    for row in rows:
        least[row.target] = min(row.translated, least.get(row.target, row.translated))
    if len(least) == len(rows):
        return rows
    return [
        row
        if row.translated == least[row.target]
        else row._replace(
            translated=least[row.target], reason=row.reason or f"another partition goes into {row.target}"
        )
        for row in rows
    ]


def _judged(row: Checkpoint, present: int, state: str, reset: bool) -> Checkpoint:
    if row.translated == NEVER:
        return _with(row, present, row.action, row.reason)
    if row.translated == present:
        return _with(row, present, "kept")
    if state not in WITHOUT_MEMBERS:
        return _with(row, present, "active", f"the group is {state} there")
    if row.translated < present and not reset:
        return _with(row, present, "kept", f"the group is further there, at {present}")
    return _with(row, present, "due", row.reason)


def _done(row: Checkpoint, told: Refusals) -> Checkpoint:
    refusal = str(told) if isinstance(told, TrueupError) else told.get(row.target, "no answer")
    return _with(row, row.present, "failed" if refusal else "moved", refusal)


def _with(row: Checkpoint, present: int, action: str, reason: str = "") -> Checkpoint:
    """The row with these; by place, as there are thousands and names take three times as long."""
    return Checkpoint(*row[:5], present, row.lag, action, reason)


def _failed(group: str, ways: Mapping[LogId, Way], reason: str) -> list[Checkpoint]:
    return [Checkpoint(group, source, way.to, NEVER, action="failed", reason=reason) for source, way in ways.items()]
