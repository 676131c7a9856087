"""Translates the committed offsets of a link's consumer groups to its target, and back.

A separate loop observes the committed offsets of the source. They are translated to the target whenever copying
advances, also while the source does not respond, so that a group continues at its last committed offset if the source
cluster fails.

A group that moved to the target can move back: without an opposite link, the offset map of this link is read in
reverse. Only groups without members are changed.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from trueup.connectors.contract import LogId
from trueup.connectors.replication.group_sync import Checkpoint, CommittedOffsets, GroupSync, OffsetMapping
from trueup.state.common.counts import many
from trueup.state.common.errors import Retry
from trueup.state.common.patterns import matches
from trueup.streams.replication.links.group_maps import mappings, mappings_back
from trueup.streams.replication.links.link import Link, Note
from trueup.streams.runtime.stream import AWAITING, PlanRow

NOTED_MS, STALE_MS = 60_000, 15_000
PARTS, PART = 4, 25
"""Maximum number of parts of a pass, because each part needs separate requests, and minimum number of groups per
part."""
NO_OFFSETS = "a share group has no offset per partition (KIP-932), so it starts at the target by its own settings"
SHOWN = 5
"""Maximum number of partitions in one row of the history."""


class Mover:
    """The groups of one link. One thread each calls `look`, `reconcile` and `sync_back`. ``links``: the function that
    returns all links."""

    def __init__(
        self,
        link: Link,
        there: GroupSync,
        back: GroupSync,
        opposite: Callable[[], Link | None],
        links: Callable[[], Collection[Link]],
        note: Note,
    ) -> None:
        self._link, self._there, self._back, self._note = link, there, back, note
        self._opposite, self._links = opposite, links
        self._approved: set[str] = set()
        self._noted: dict[str, tuple[frozenset[str], int]] = {}
        self._committed, self._looked_ms = CommittedOffsets({}), 0
        self._to_target: Sequence[Checkpoint] = ()
        self._to_source: Sequence[Checkpoint] = ()
        self._lock = threading.Lock()

    @property
    def names(self) -> Sequence[str]:
        """Groups of the source, from the last observation."""
        return tuple(self._committed.groups)

    @property
    def checkpoints(self) -> Sequence[Checkpoint]:
        """The result for each group and partition of the last pass in each direction."""
        return [*self._to_target, *self._to_source]

    @property
    def _stale(self) -> bool:
        """Whether the offsets at the source were not observed for too long to know by how much groups are behind."""
        return self._link.now_ms() - self._looked_ms > STALE_MS

    def look(self) -> None:
        """Observe the offsets committed at the source. If it does not respond, the last observation is kept. Raises a
        `TrueupError`; `Retry` only if the source responds to the other loops, and has not responded here for
        `STALE_MS`."""
        try:
            committed = self._there.committed(self._link.declared.groups, self._topics(back=False))
        except Retry:
            if not self._stale or self._link.snapshot.facts.source.problem:
                return
            raise
        self._looked_ms = self._link.now_ms()
        if committed != self._committed:
            self._committed = committed
            self._link.grown.set()

    def reconcile(self) -> None:
        """One pass to the target, in parts: observations made during one part apply to the next. Raises a
        `TrueupError`."""
        patterns, checkpoints = self._link.declared.groups, list[Checkpoint]()
        names = [name for name in self._committed.groups if matches(patterns, name)]
        size = max(PART, -(-len(names) // PARTS))
        for start in range(0, len(names), size):
            now = self._committed
            part = {name: now.groups[name] for name in names[start : start + size] if name in now.groups}
            checkpoints += self._sync(self._there, now._replace(groups=part), mappings(self._link, self._links()))
        self._to_target = checkpoints
        self._end(checkpoints)

    def sync_back(self) -> None:
        """One pass to the source, if no link copies back. Raises a `TrueupError`."""
        checkpoints: list[Checkpoint] = []
        if self._opposite() is None and (by := mappings_back(self._link, self._links())):
            checkpoints = self._sync(
                self._back, self._back.committed(self._link.declared.groups, self._topics(back=True)), by
            )
        self._to_source = checkpoints
        self._end(checkpoints)

    def _topics(self, back: bool) -> set[str]:
        with self._link.lock:
            return {(copy.target if back else copy.source).topic for copy in self._link.copies.values()}

    def _sync(
        self, groups: GroupSync, committed: CommittedOffsets, by: Mapping[LogId, OffsetMapping]
    ) -> list[Checkpoint]:
        mode, answers = self._link.declared.mode, committed.groups
        may = {name for name in answers if mode == "enforce" or (mode == "approve" and name in self._approved)}
        permitted = committed._replace(groups={name: answer for name, answer in answers.items() if name in may})
        rest = committed._replace(groups={name: answer for name, answer in answers.items() if name not in may})
        return [*groups.sync_commits(permitted, by), *groups.sync_commits(rest, by, change=False)]

    def _end(self, checkpoints: Sequence[Checkpoint]) -> None:
        """Forget used approvals and note the results."""
        with self._lock:
            self._approved &= {row.group for row in self.checkpoints if row.action == "due"}
            for outcome in ("moved", "failed"):
                self._note_groups(outcome, [row for row in checkpoints if row.action == outcome])

    def _note_groups(self, outcome: str, rows: Sequence[Checkpoint]) -> None:
        """Add a pass to the history as one row; passes with the same groups at most once a minute."""
        groups, now_ms = {row.group for row in rows}, self._link.now_ms()
        noted, at_ms = self._noted.get(outcome, (frozenset[str](), 0))
        if not groups or (groups <= noted and now_ms - at_ms < NOTED_MS):
            return
        self._noted[outcome] = frozenset(groups if now_ms - at_ms >= NOTED_MS else groups | noted), now_ms
        changes = [
            f"{row.group}: {row.source} {row.committed} translates to {row.target} {row.translated}"
            + (f" ({row.reason})" if row.reason else "")
            for row in rows
        ]
        more = f"; and {many(len(changes) - SHOWN, 'partition')} more" if len(changes) > SHOWN else ""
        head = f"{many(len(groups), 'group')}, {many(len(changes), 'partition')}: "
        self._note(
            self._link.name, "group", outcome, head + "; ".join(changes[:SHOWN]) + more, "replication.group-behind"
        )

    def rows(self) -> list[PlanRow]:
        """Groups whose offsets are due, as rows of the plan."""
        due: dict[str, list[Checkpoint]] = {}
        for row in self.checkpoints:
            if row.action == "due":
                due.setdefault(row.group, []).append(row)
        return [self._row(group, rows) for group, rows in due.items()]

    def _row(self, group: str, rows: Sequence[Checkpoint]) -> PlanRow:
        waits = self._link.declared.mode == "approve" and group not in self._approved
        offsets = ", ".join(f"{row.target} to {row.translated}" for row in rows)
        return PlanRow(
            f"group-{self._link.name}-{group}",
            "group",
            "replication.group-behind",
            f"group {group}: {offsets}",
            AWAITING if waits else "planned",
            {"link": self._link.name, "topic": ""},
        )

    def approve(self, ids: Iterable[str]) -> None:
        """Approve these actions. The next pass executes them."""
        head = f"group-{self._link.name}-"
        with self._lock:
            self._approved |= {name.removeprefix(head) for name in ids if name.startswith(head)}

    def untranslated(self) -> dict[str, str]:
        """The groups without an offset at the target, each with the reason."""
        reasons = dict.fromkeys(self._there.shares, NO_OFFSETS)
        for row in self._to_target:
            held = row.committed < 0 <= row.translated  # the offset is in the row of the partition with a commit
            if row.action in ("waiting", "failed") and row.group not in reasons and not held:
                reasons[row.group] = (
                    f"{row.source} at {row.committed}: {row.reason}" if row.committed >= 0 else row.reason
                )
        return reasons

    def lag(self) -> int:
        """The maximum number of records by which a group is behind at the target; -1: unknown."""
        rows = self.checkpoints
        unread = any(row.committed < 0 and row.action == "failed" for row in rows)
        unknown = self._link.declared.groups and (self._stale or unread)
        return -1 if unknown else max((row.lag for row in rows), default=0)
