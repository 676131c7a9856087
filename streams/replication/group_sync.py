"""Consumer groups of a link: what they committed at its source is committed at its target, and back.

The source is asked in a loop of its own. What it said last is carried to the target whenever more is known to be
copied, also while the source does not answer: so a group goes on where it stood when its cluster died.

A group that moved to the target can move back: where no link copies the other way, the map of this one is read
backwards. Only groups without members are ever touched.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from trueup.connectors.contract import LogId
from trueup.connectors.replication.group_sync import Checkpoint, Commits, Groups, OffsetMapping
from trueup.state.common.errors import Retry
from trueup.state.common.patterns import matches
from trueup.streams.replication.checkpoints import Copy
from trueup.streams.replication.link import Link, Note
from trueup.streams.runtime.format import many
from trueup.streams.runtime.stream import AWAITING, PlanRow

TOLD_MS = 60_000
PARTS, PART = 4, 25
"""Parts of a pass at most, as each costs requests of its own, and groups of one at least."""
SHOWN = 5
"""Partitions of a round that the history names."""


class Mover:
    """The groups of one link. Each of `look`, `turn` and `turn_back` is called by one thread."""

    def __init__(
        self, link: Link, there: Groups, back: Groups, opposite: Callable[[], Link | None], note: Note
    ) -> None:
        self._link, self._there, self._back, self._opposite, self._note = link, there, back, opposite, note
        self._approved: set[str] = set()
        self._told: dict[str, tuple[frozenset[str], int]] = {}
        self._committed = Commits({})
        self._forth: Sequence[Checkpoint] = ()
        self._home: Sequence[Checkpoint] = ()
        self._lock = threading.Lock()

    @property
    def names(self) -> Sequence[str]:
        """Groups of the source, as it was seen last."""
        return tuple(self._committed.groups)

    @property
    def checkpoints(self) -> Sequence[Checkpoint]:
        """What became of each group and partition in the last pass of either direction."""
        return [*self._forth, *self._home]

    def look(self) -> None:
        """Ask the source what its groups committed. While it does not answer, what it said last stays."""
        try:
            committed = self._there.committed(self._link.declared.groups, self._topics(back=False))
        except Retry:
            return
        if committed != self._committed:
            self._committed = committed
            self._link.grown.set()

    def reconcile(self) -> None:
        """One pass to the target, in parts: what is learnt while one is carried counts for the next. Raises our
        errors."""
        patterns, found = self._link.declared.groups, list[Checkpoint]()
        names = [name for name in self._committed.groups if matches(patterns, name)]
        size = max(PART, -(-len(names) // PARTS))
        for start in range(0, len(names), size):
            now = self._committed
            part = {name: now.groups[name] for name in names[start : start + size] if name in now.groups}
            found += self._carry(self._there, now._replace(groups=part), ways(self._link, self._opposite()))
        self._forth = found
        self._end(found)

    def turn_back(self) -> None:
        """One pass to the source, where no link copies back. Raises our errors."""
        found: list[Checkpoint] = []
        if self._opposite() is None and (by := ways_back(self._link)):
            found = self._carry(
                self._back, self._back.committed(self._link.declared.groups, self._topics(back=True)), by
            )
        self._home = found
        self._end(found)

    def _topics(self, back: bool) -> set[str]:
        with self._link.lock:
            return {(copy.target if back else copy.source).topic for copy in self._link.copies.values()}

    def _carry(self, groups: Groups, committed: Commits, by: Mapping[LogId, OffsetMapping]) -> list[Checkpoint]:
        mode, told = self._link.declared.mode, committed.groups
        may = {name for name in told if mode == "enforce" or (mode == "approve" and name in self._approved)}
        chosen = committed._replace(groups={name: answer for name, answer in told.items() if name in may})
        rest = committed._replace(groups={name: answer for name, answer in told.items() if name not in may})
        return [*groups.carry(chosen, by), *groups.carry(rest, by, change=False)]

    def _end(self, found: Sequence[Checkpoint]) -> None:
        """Forget the approvals that were used, and note what was done."""
        with self._lock:
            self._approved &= {row.group for row in self.checkpoints if row.action == "due"}
            for outcome in ("moved", "failed"):
                self._tell(outcome, [row for row in found if row.action == outcome])

    def _tell(self, outcome: str, rows: Sequence[Checkpoint]) -> None:
        """Put a round into the history as one row; rounds that go on with the same groups once a minute."""
        groups, now_ms = {row.group for row in rows}, self._link.now_ms()
        told, at_ms = self._told.get(outcome, (frozenset[str](), 0))
        if not groups or (groups <= told and now_ms - at_ms < TOLD_MS):
            return
        self._told[outcome] = frozenset(groups if now_ms - at_ms >= TOLD_MS else groups | told), now_ms
        said = [
            f"{row.group}: {row.source} {row.committed} is {row.target} {row.translated}"
            + (f" ({row.reason})" if row.reason else "")
            for row in rows
        ]
        more = f"; and {many(len(said) - SHOWN, 'partition')} more" if len(said) > SHOWN else ""
        head = f"{many(len(groups), 'group')}, {many(len(said), 'partition')}: "
        self._note(self._link.name, "group", outcome, head + "; ".join(said[:SHOWN]) + more, "replication.group-behind")

    def rows(self) -> list[PlanRow]:
        """Groups whose offsets would be set."""
        due: dict[str, list[Checkpoint]] = {}
        for row in self.checkpoints:
            if row.action == "due":
                due.setdefault(row.group, []).append(row)
        return [self._row(group, rows) for group, rows in due.items()]

    def _row(self, group: str, rows: Sequence[Checkpoint]) -> PlanRow:
        waits = self._link.declared.mode == "approve" and group not in self._approved
        offsets = ", ".join(f"{row.target} to {row.translated}" for row in rows)
        return PlanRow(
            f"group-{self._link.name}-{group}", "group", "replication.group-behind", f"group {group}: {offsets}",
            AWAITING if waits else "planned", {"link": self._link.name, "topic": ""},
        )  # fmt: skip

    def approve(self, ids: Iterable[str]) -> None:
        """An operator's yes; carried out at the next turn."""
        head = f"group-{self._link.name}-"
        with self._lock:
            self._approved |= {name.removeprefix(head) for name in ids if name.startswith(head)}

    def lag(self) -> int:
        """Records by which the copy is behind what a group committed, at worst."""
        return max((row.lag for row in self.checkpoints), default=0)


def ways(link: Link, opposite: Link | None) -> dict[LogId, OffsetMapping]:
    """How offsets of the source are told at the target."""
    with link.lock:
        found = {copy.source: _way(copy, copy.target) for copy in link.copies.values()}
    if opposite is None:
        return found
    with opposite.lock:
        back = {copy.source: _way(copy, copy.target) for copy in opposite.copies.values()}
    return {source: _joined(source, way, back.get(way.to)) for source, way in found.items()}


def ways_back(link: Link) -> dict[LogId, OffsetMapping]:
    """How offsets of the target are told at the source, by the map of this link alone."""
    with link.lock:
        return {copy.target: _way(copy, copy.source, reverse=True) for copy in link.copies.values()}


def _way(copy: Copy, to: LogId, reverse: bool = False) -> OffsetMapping:
    """By one copy alone. Of a partition that is stopped either log may be gone, so its map does not hold."""
    ids = copy.source_id, copy.target_id
    reason = "the partition is stopped" if copy.excluded else ""
    return OffsetMapping(to, copy.map, reverse=reverse, ids=ids[::-1] if reverse else ids, blocked_reason=reason)


def _joined(source: LogId, way: OffsetMapping, back: OffsetMapping | None) -> OffsetMapping:
    """With the map of the opposite link. Without it records born at the target would be passed over unread, so the map
    of this link alone does not hold where the opposite one has none of the same two logs."""
    if back is None or back.to != source or way.blocked_reason:
        return way
    logs = zip(way.ids, back.ids[::-1], strict=True)
    if back.blocked_reason or any(one and other and one != other for one, other in logs):
        return replace(way, blocked_reason="the partition is stopped in the opposite link")
    return replace(way, back=back.there)
