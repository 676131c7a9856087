"""Consumer groups of a link: what they committed at its source is committed at its target, and back.

A group that moved to the target can move back: where no link copies the other way, the map of this one is read
backwards. Only groups without members are ever touched.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from connectors.contract import Partition
from connectors.kafka.groups import Checkpoint, Groups, Way
from streams.copies import Copy
from streams.link import Link, Note
from streams.words import many

Row = dict[str, Any]
TOLD_MS = 60_000
SHOWN = 5
"""Partitions of a round that the history names."""


class Mover:
    """The groups of one link. Used by one thread, read by several."""

    def __init__(
        self, link: Link, there: Groups, back: Groups, opposite: Callable[[], Link | None], note: Note
    ) -> None:
        self._link, self._there, self._back, self._opposite, self._note = link, there, back, opposite, note
        self._approved: set[str] = set()
        self._told: dict[str, tuple[frozenset[str], int]] = {}
        self.names: Sequence[str] = ()
        self.checkpoints: Sequence[Checkpoint] = ()

    def turn(self) -> None:
        """One pass in both directions. Raises our errors."""
        declared, opposite = self._link.declared, self._opposite()
        self.names = self._there.names(declared.groups)
        found = self._sync(self._there, self.names, ways(self._link, opposite), declared.mode)
        if opposite is None:
            found += self._sync(self._back, self._back.names(declared.groups), ways_back(self._link), declared.mode)
        self.checkpoints = found
        self._approved &= {row.group for row in found if row.action == "due"}
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

    def _sync(self, groups: Groups, names: Sequence[str], by: Mapping[Partition, Way], mode: str) -> list[Checkpoint]:
        if not names or not by:
            return []
        may = [name for name in names if mode == "enforce" or (mode == "approve" and name in self._approved)]
        rest = [name for name in names if name not in may]
        found = groups.sync(may, by) if may else []
        return [*found, *(groups.sync(rest, by, change=False) if rest else [])]

    def rows(self) -> list[Row]:
        """Groups whose offsets would be set."""
        due: dict[str, list[Checkpoint]] = {}
        for row in self.checkpoints:
            if row.action == "due":
                due.setdefault(row.group, []).append(row)
        return [self._row(group, rows) for group, rows in due.items()]

    def _row(self, group: str, rows: Sequence[Checkpoint]) -> Row:
        waits = self._link.declared.mode == "approve" and group not in self._approved
        offsets = ", ".join(f"{row.target} to {row.translated}" for row in rows)
        return {
            "id": f"group-{self._link.name}-{group}", "kind": "group", "ledger": None, "link": self._link.name,
            "topic": "", "rule": "replication.group-behind", "reason": f"group {group}: {offsets}", "copies": None,
            "racks": None, "stage": "awaiting approval" if waits else "planned", "next_ms": None, "requirements": {},
            "evidence": {},
        }  # fmt: skip

    def approve(self, ids: Iterable[str]) -> None:
        """An operator's yes; carried out at the next turn."""
        head = f"group-{self._link.name}-"
        self._approved |= {name.removeprefix(head) for name in ids if name.startswith(head)}

    def lag(self) -> int:
        """Records by which the copy is behind what a group committed, at worst."""
        return max((row.lag for row in self.checkpoints), default=0)


def _mapped(link: Link) -> list[Copy]:
    """Copies whose maps hold: a partition that was stopped may have another log at an end."""
    return [copy for copy in list(link.copies.values()) if not copy.barred]


def ways(link: Link, opposite: Link | None) -> dict[Partition, Way]:
    """How offsets of the source are told at the target."""
    back = {} if opposite is None else {copy.source: copy.map for copy in _mapped(opposite)}
    return {copy.source: Way(copy.target, copy.map, back.get(copy.target)) for copy in _mapped(link)}


def ways_back(link: Link) -> dict[Partition, Way]:
    """How offsets of the target are told at the source, by the map of this link alone."""
    return {copy.target: Way(copy.source, copy.map, reverse=True) for copy in _mapped(link)}
