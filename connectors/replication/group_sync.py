"""Moves consumer groups between clusters: their committed offsets are translated and committed at the other cluster.

A group may run at one cluster only. Where it has no members its offsets are set, so that its consumers continue with
the first record that they may not have read. This works in both directions, so a group that moved can move back. An
offset that a link committed does not show that the group ran there: it does not replace an offset in a cluster from
which it came (`GroupCommits`).

Offsets of a group with members belong to the members: the states of groups are read first, and systems that can
detect it refuse a commit from outside if a member joined meanwhile. Consumers that commit without joining their group
cannot be detected.

An offset is valid for one log only. Therefore a map applies only to topics with the ids for which it was built: offsets
of another topic with that name are not translated, and the target's topic ids are read before any commit.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from trueup.connectors.contract import LogId
from trueup.connectors.replication.ports import (
    NEVER,
    SHARE,
    WITHOUT_MEMBERS,
    Answer,
    GroupCommits,
    GroupOffsets,
    Refusals,
)
from trueup.state.common.errors import TrueupError
from trueup.state.common.patterns import matches
from trueup.state.replication.group_offsets import Hop, TargetWriter, across
from trueup.state.replication.offset_map import OffsetMap, Translation

TRUST_S = 10.0
"""The interval at which the offsets of a group at the target are read again; they are also read before any commit."""
SURE_S = 0.5
"""The time for which the target's topic ids are cached. A failed request ends it."""
TOGETHER = 100
"""Maximum number of groups whose offsets are committed after one read of the ids."""
NO_COMMITS = GroupCommits()


@dataclass(frozen=True, slots=True)
class OffsetMapping:
    """The translation of the offsets of one partition here to the offsets of a partition there.

    "Here" is the cluster whose groups move. "There" is the cluster to which these groups move.
    """

    to: LogId
    """The partition there."""
    there: OffsetMap
    """The map of the link from here to there."""
    way: Sequence[Hop] = ()
    """The links that copy the records of the partition there to the partition here. Empty if there are none."""
    writers: Sequence[TargetWriter] = ()
    """Other links that copy to the partition there."""
    reverse: bool = False
    """Whether only a link from there to here exists. ``there`` is then the map of this link."""
    ids: tuple[str, str] = ("", "")
    """The id of the topic here and the id of the topic there to which the maps apply. Empty: the id is unknown."""
    start: int = -1
    """The first offset of the log here. A group with a lower offset continues at this offset. -1: unknown."""
    restored: int = 0
    """An offset here. Records below it may have been restored by a refill. The maps do not contain their copies there,
    which were made before the loss."""
    blocked_reason: str = ""
    """Why no map applies now. Empty if the maps apply."""

    def translate(self, offset: int) -> tuple[Translation, int]:
        """The offset there, never past the copied records, and the number of records by which it is behind: of offsets
        here that are not copied, or of offsets there that follow an unread record of another link."""
        if self.blocked_reason:
            return Translation(None, self.blocked_reason), 0
        if offset < self.start:  # retention deleted the records that the group would have read next
            translation, ahead = replace(self, start=-1).translate(self.start)
            return translation._replace(reason=translation.reason or f"no record before {self.start} exists"), ahead
        if self.reverse:
            return self.there.backward(offset), 0
        reached = min(offset, self.there.until) if self.there.until >= 0 else offset
        if reached < self.restored:
            return Translation(None, f"before offset {self.restored}, the end of the refilled records"), 0
        translation, behind = across(self.there, self.way, self.writers, reached)
        return translation, max(offset - reached, behind)


class Checkpoint(NamedTuple):
    """The result for one group and partition after one pass. For "here" and "there", see `OffsetMapping`."""

    group: str
    source: LogId
    target: LogId
    committed: int
    """The offset that is committed here. -1: none, or unknown."""
    translated: int = NEVER
    """The translation of the offset that is committed here; of the first offset here if none is committed. -1:
    unknown."""
    present: int = NEVER
    """The offset that is committed there. -1: none."""
    lag: int = 0
    """The number of records by which the translation is behind (see `OffsetMapping.translate`)."""
    action: str = "waiting"
    """One of these words:

    moved    the translated offset was committed there
    due      the translated offset would be committed there, but changes are not permitted
    kept     the translated offset is committed there already, or the group is ahead there, or a link committed the
             offset here by translation of the offset there (``reason``)
    active   the group has members there; nothing is changed
    waiting  there is no translation yet, or the topic there is not the copied one, or nothing is committed here and
             another partition here, in which the group has an offset, is copied to the same one there (``reason``)
    failed   a cluster refused the request, or did not respond (``reason``)
    """
    reason: str = ""
    path: int = 0
    """The clusters from which links translated the offset that is committed here (see `GroupCommits`). 0: none."""


class CommittedOffsets(NamedTuple):
    """Committed offsets of groups at a cluster, and the ids of the existing topics among those requested."""

    groups: Mapping[str, Answer]
    ids: Mapping[str, str] = {}


class GroupSync:
    """Moves groups from one cluster to the other. Calls block and raise what `GroupOffsets` raises; errors of a single
    group are in its rows. ``source_s``: the value of `Capabilities.groups_s` of the source.

    A pass takes one request per coordinator on both sides, one per broker of the target, one per moved group, sent
    concurrently, and one for topic ids on either side; it sends nothing to the target for groups
    that have the translated offsets or are ahead.
    """

    def __init__(self, source: GroupOffsets, target: GroupOffsets, source_s: float = 0.0) -> None:
        self._source, self._target, self._source_s = source, target, source_s
        self._observed: tuple[float, Sequence[str], Collection[str], CommittedOffsets] | None = None
        self._present: dict[str, Answer] = {}
        self._states: Mapping[str, str] = {}
        self._read_s = 0.0
        self._ids_here: Mapping[str, str] = {}
        self._ids_there: dict[str, str] = {}
        self._sure_s = 0.0
        self.shares: Sequence[str] = ()

    def names(self, patterns: Sequence[str]) -> list[str]:
        """Groups of the source that match ``patterns`` (see `state.common.patterns.matches`), sorted. Share groups,
        which have no offsets to translate, are in ``shares`` afterwards."""
        states = (
            {name: state for name, state in self._source.states().items() if matches(patterns, name)}
            if patterns
            else {}
        )
        self.shares = sorted(name for name, state in states.items() if state == SHARE)
        return sorted(states.keys() - {*self.shares})

    def committed(self, patterns: Sequence[str], topics: Collection[str]) -> CommittedOffsets:
        """Committed offsets of the source's groups that match ``patterns``, and the ids of their topics among
        ``topics``. A topic that was recreated since the last call has none: an offset may be of the former one. Results
        younger than ``source_s`` are returned again."""
        now, seen = time.monotonic(), self._observed
        if seen is None or seen[1:3] != (patterns, topics) or now - seen[0] >= self._source_s:
            self._observed = seen = now, patterns, topics, self._committed(patterns, topics)
        return seen[3]

    def _committed(self, patterns: Sequence[str], topics: Collection[str]) -> CommittedOffsets:
        offsets = self._source.offsets(self.names(patterns))
        ids = self._source.ids(
            {place.topic for commits in offsets.values() if isinstance(commits, dict) for place in commits} & {*topics}
        )
        before, self._ids_here = self._ids_here, ids
        return CommittedOffsets(
            offsets, {topic: topic_id for topic, topic_id in ids.items() if before.get(topic, topic_id) == topic_id}
        )

    def sync(
        self, groups: Sequence[str], mappings: Mapping[LogId, OffsetMapping], change: bool = True
    ) -> list[Checkpoint]:
        """One pass over ``groups``: `sync_commits` their current offsets."""
        if not groups or not mappings:
            return []
        offsets = self._source.offsets(groups)
        return self.sync_commits(
            CommittedOffsets(offsets, self._source.ids({place.topic for place in mappings})), mappings, change
        )

    def sync_commits(
        self, committed: CommittedOffsets, mappings: Mapping[LogId, OffsetMapping], change: bool = True
    ) -> list[Checkpoint]:
        """Commit the groups' source offsets at the target; the source is not queried. Offsets at the target never
        decrease. Nothing is changed unless ``change``."""
        if not committed.groups or not mappings:
            return []
        translate, sharing = _translations(mappings, committed.ids), _sharing(mappings)
        desired = {group: _rows(group, here, mappings, sharing, translate) for group, here in committed.groups.items()}
        if asked := self._unsure(desired):
            self._read(asked)
        rows: list[Checkpoint] = []
        for group, translated in desired.items():
            here, there = committed.groups[group], self._present.get(group, NO_COMMITS)
            if isinstance(here, TrueupError) or isinstance(there, TrueupError):
                rows += _failed(group, mappings, str(here if isinstance(here, TrueupError) else there))
                continue
            state, bit = self._states.get(group, ""), self._target.bit
            rows += [_judged(row, there.get(row.target, NEVER), state, bit) for row in translated]
        return self._moved(rows, mappings) if change else rows

    def _read(self, groups: Sequence[str]) -> None:
        """Read groups at the target. The states are first: the last commit of a member that leaves meanwhile is then
        among the offsets. A system may read a state only when it is asked for."""
        states = self._target.states()
        self._states = {**self._states, **{group: states.get(group, "") for group in groups}}
        self._present |= self._target.offsets(groups)

    def _unsure(self, desired: Mapping[str, Sequence[Checkpoint]]) -> list[str]:
        """Groups whose offsets at the target must be read, because they may have to be changed."""
        now = time.monotonic()
        if now - self._read_s > TRUST_S:
            self._read_s, self._present = now, {}
        return [group for group, rows in desired.items() if not self._has(group, rows)]

    def _has(self, group: str, rows: Sequence[Checkpoint]) -> bool:
        there = self._present.get(group)
        if there is None or isinstance(there, TrueupError):
            return False
        bit = self._target.bit
        return all(
            row.translated <= (present := there.get(row.target, NEVER)) or _returns(row, present, bit) for row in rows
        )

    def _moved(self, rows: Sequence[Checkpoint], mappings: Mapping[LogId, OffsetMapping]) -> list[Checkpoint]:
        """The rows after due offsets were committed."""
        due: dict[str, list[Checkpoint]] = {}
        for row in rows:
            if row.action == "due":
                due.setdefault(row.group, []).append(row)
        names, done = list(due), dict[tuple[str, LogId], Checkpoint]()
        for start in range(0, len(names), TOGETHER):
            batch = self._set([row for name in names[start : start + TOGETHER] for row in due[name]], mappings)
            done |= {(row.group, row.source): row for row in batch}
        return [done.get((row.group, row.source), row) for row in rows]

    def _set(self, rows: Sequence[Checkpoint], mappings: Mapping[LogId, OffsetMapping]) -> list[Checkpoint]:
        """Commit due rows, with one request per group."""
        due: dict[str, GroupCommits] = {}
        try:
            rows = self._meant(rows, mappings)
            due = _commits((row for row in rows if row.action == "due"), self._source.bit)
            self._make([group for group in due if not self._states.get(group)])
            results = self._target.commit(due) if due else {}
        except TrueupError as error:
            results = {row.group: error for row in rows}
        if any(isinstance(result, TrueupError) for result in results.values()):
            self._ids_there = {}
        for group, refusals in results.items():
            there = self._present.get(group)
            if not isinstance(refusals, TrueupError) and not isinstance(there, TrueupError):
                moved = {to: at for to, at in due[group].items() if not refusals.get(to, "?")}
                self._present[group] = GroupCommits({**(there or {}), **moved})
        return [_done(row, results[row.group]) if row.action == "due" else row for row in rows]

    def _make(self, missing: Sequence[str]) -> None:
        """Create groups at the target, with the settings that they have at the source."""
        if missing:
            self._target.create({group: {} for group in missing} | {**self._source.settings(missing)})

    def _meant(self, rows: Sequence[Checkpoint], mappings: Mapping[LogId, OffsetMapping]) -> list[Checkpoint]:
        """The rows without offsets of topics that the target no longer has. Checked as late as possible: the target may
        have returned without its data since the maps were read."""
        topics = {row.target.topic for row in rows if row.action == "due"}
        if time.monotonic() - self._sure_s > SURE_S or not topics <= self._ids_there.keys():
            self._sure_s, self._ids_there = time.monotonic(), self._target.ids(topics | self._ids_there.keys())
        met = {(row.source, row.target) for row in rows}
        gone = {to for source, to in met if not _same(mappings[source].ids[1], self._ids_there.get(to.topic))}
        return [
            row._replace(action="waiting", reason=f"{row.target.topic} at the target is not the copied topic")
            if row.action == "due" and row.target in gone
            else row
            for row in rows
        ]


def _same(meant: str, topic_id: str | None) -> bool:
    """Whether a topic is the intended one. ``topic_id``: its id, None if there is no such topic."""
    return not meant or topic_id in ("", meant)


Translate = Callable[[LogId, int], tuple[Translation, int]]


def _translations(mappings: Mapping[LogId, OffsetMapping], ids: Mapping[str, str]) -> Translate:
    """`OffsetMapping.translate` by source partition; `NEVER` is translated as the first offset. ``ids``: the ids of the
    topics in which offsets were committed, by name. Results are cached, because most groups commit the same few
    offsets."""
    meant: dict[LogId, OffsetMapping] = {}

    @cache
    def translate(source: LogId, offset: int) -> tuple[Translation, int]:
        if offset == NEVER:  # without an offset there is none of another topic with that name
            mapping = mappings[source]
            return mapping.translate(max(mapping.start, mapping.there.begin))
        if source not in meant:
            mapping = mappings[source]
            other = f"{source.topic} at the source is not the copied topic"
            same = _same(mapping.ids[0], ids.get(source.topic))
            meant[source] = mapping if same else replace(mapping, blocked_reason=other)
        return meant[source].translate(offset)

    return translate


def _sharing(mappings: Mapping[LogId, OffsetMapping]) -> Mapping[LogId, Sequence[LogId]]:
    """The source partitions of each target that has several."""
    of_target: dict[LogId, list[LogId]] = {}
    for source, mapping in mappings.items():
        of_target.setdefault(mapping.to, []).append(source)
    return {target: sources for target, sources in of_target.items() if len(sources) > 1}


def _rows(
    group: str,
    here: Answer,
    mappings: Mapping[LogId, OffsetMapping],
    sharing: Mapping[LogId, Sequence[LogId]],
    translate: Translate,
) -> list[Checkpoint]:
    """The desired rows at the target; the present offsets there are not known yet. ``sharing``: see `_sharing`."""
    if isinstance(here, TrueupError):
        return []
    targets = {mappings[source].to for source in here if source in mappings} if sharing else set[LogId]()
    unread = [(source, NEVER) for target in targets for source in sharing.get(target, ()) if source not in here]
    rows = []
    for source, offset in sorted([*here.items(), *unread]):
        if (mapping := mappings.get(source)) is not None:
            translation, lag = translate(source, offset)
            translated = NEVER if translation.offset is None else translation.offset
            reason = f"nothing is committed in {source}" if offset == NEVER != translated else translation.reason
            path = here.paths.get(source, 0)
            rows.append(Checkpoint(group, source, mapping.to, offset, translated, NEVER, lag, "waiting", reason, path))
    return _least(rows)


def _least(rows: list[Checkpoint]) -> list[Checkpoint]:
    """If several partitions have one target, its offset is the minimum of theirs, and undefined while one has none."""
    least: dict[LogId, int] = {}
    for row in rows:
        least[row.target] = min(row.translated, least.get(row.target, row.translated))
    if len(least) == len(rows):
        return rows
    return [
        row
        if row.translated == least[row.target]
        else row._replace(
            translated=least[row.target], reason=row.reason or f"another partition has the target {row.target}"
        )
        for row in rows
    ]


def _commits(rows: Iterable[Checkpoint], bit: int) -> dict[str, GroupCommits]:
    """The offsets to commit there, by group. ``bit``: the bit of the cluster here."""
    offsets, paths = dict[str, dict[LogId, int]](), dict[str, dict[LogId, int]]()
    for row in rows:
        offsets.setdefault(row.group, {})[row.target] = row.translated
        bits = paths.setdefault(row.group, {})
        bits[row.target] = bits.get(row.target, 0) | row.path | 1 << bit
    return {group: GroupCommits(commits, paths[group]) for group, commits in offsets.items()}


def _returns(row: Checkpoint, present: int, bit: int) -> bool:
    """Whether the offset came from the cluster there, which has ``bit``, and still has an offset of the group."""
    return present != NEVER and bool(row.path >> bit & 1)


def _judged(row: Checkpoint, present: int, state: str, bit: int) -> Checkpoint:
    if NEVER in (row.translated, row.committed):
        return _with(row, present, row.action, row.reason)
    if row.translated == present:
        return _with(row, present, "kept")
    if _returns(row, present, bit):
        return _with(row, present, "kept", "a link committed the offset here, translated from the one there")
    if state not in WITHOUT_MEMBERS:
        return _with(row, present, "active", f"the group is {state} there")
    if row.translated < present:
        return _with(row, present, "kept", f"the group is ahead there, at {present}")
    return _with(row, present, "due", row.reason)


def _done(row: Checkpoint, result: Refusals) -> Checkpoint:
    refusal = str(result) if isinstance(result, TrueupError) else result.get(row.target, "no response")
    return _with(row, row.present, "failed" if refusal else "moved", refusal)


def _with(row: Checkpoint, present: int, action: str, reason: str = "") -> Checkpoint:
    """The row with these values; positional, as there are thousands of rows and keywords take three times as long."""
    return Checkpoint(*row[:5], present, row.lag, action, reason, row.path)


def _failed(group: str, mappings: Mapping[LogId, OffsetMapping], reason: str) -> list[Checkpoint]:
    return [
        Checkpoint(group, source, mapping.to, NEVER, action="failed", reason=reason)
        for source, mapping in mappings.items()
    ]
