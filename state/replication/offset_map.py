"""Translation of offsets between source and target: exact, built from acknowledgements.

A map consists of **runs**: a number of records from a source offset on are at the target from a target offset on.
Between runs the source has records that were not copied (dropped by the loop filter, filtered, control records,
compacted) and the target has records of other writers. Both columns increase, as a link keeps the order of a partition.

A committed offset of a consumer group is the next one that it reads. Its **low** translation is the offset after
the last earlier record that the target has: no unread record is before it, whatever its writer. Its
**high** translation is the offset of the first record from it on that the target has. Within a run they are equal.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.int64]
PART = 4_096
"""Runs per record."""
HEAD = -1
"""The part number of the record without runs."""
ROOM = 64
_NUMBERS = ("begin", "until", "clear", "sure", "floor", "base", "again", "cut", "number")
LISTS = ("source", "target", "count")
"""The columns, by their names in records."""


class Translation(NamedTuple):
    """An offset on the other side, or None and the reason."""

    offset: int | None
    reason: str = ""


def _none() -> Column:
    return np.zeros(0, np.int64)


class _Rows:
    """Runs of successive maps, in columns with spare room; each map uses its first rows. Extending the last run of the
    newest map also changes older maps, which do not translate offsets from their ``until`` on."""

    __slots__ = ("columns", "used")

    def __init__(self, columns: Sequence[Column], used: int, room: int) -> None:
        self.columns, self.used = np.empty((3, used + room), np.int64), used
        for column, mine in zip(self.columns, columns, strict=True):
            column[:used] = mine[:used]

    def put(self, at: int, rows: Column) -> None:
        """Write runs from this row on; no later row is in use."""
        self.used = at + len(rows)
        self.columns[:, at : self.used] = rows.T


@dataclass(frozen=True, slots=True, eq=False)
class OffsetMap:
    """The runs of one source partition in one target partition, as int64 columns. A map is immutable, and the cost of
    an append does not depend on the size of the map."""

    source: Column = field(default_factory=_none)
    target: Column = field(default_factory=_none)
    count: Column = field(default_factory=_none)
    begin: int = -1
    """The first source offset that the map covers, -1 if nothing was ever copied."""
    until: int = -1
    """The source offset before which all records are acknowledged, dropped or dismissed."""
    clear: int = -1
    """A target offset. No record from source offset ``until`` on is before it. -1 if unknown."""
    sure: int = -1
    """The source offset from which records between runs are known to be absent from the target."""
    floor: int = -1
    """The low translation of ``begin`` after older runs were pruned, otherwise -1."""
    base: int = -1
    """A target offset. Copies of records of an earlier log of the source may be before it, which this map does not
    contain. -1: none are."""
    again: int = -1
    """The source offset before which records are copied a second time, from an offset on that an operator set. The
    first copies are not in the map. -1: none are, or the second copies are complete."""
    cut: int = 0
    """1 if an operator ended a repetition before it came to ``again``."""
    number: int = 0
    """The number of pruned runs."""
    _rows: _Rows | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.source)

    @property
    def end(self) -> int:
        """The target offset after the last run; -1: there is none."""
        return int(self.target[-1] + self.count[-1]) if len(self) else -1

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        yield from zip(self.source.tolist(), self.target.tolist(), self.count.tolist(), strict=True)

    def extend(
        self, runs: Iterable[Sequence[int]], until: int = -1, begin: int = -1, clear: int = -1, whole: bool = True
    ) -> "OffsetMap":
        """The map with further runs (source, target, records), all of them before source offset ``until``.

        ``begin``: where the copy began, for an empty map. ``clear``: the end of the target, observed
        at a time from which on everything sent before is acknowledged and in these runs. Not ``whole``: there
        are records at the target with unknown offsets.

        Known runs change nothing, in any order. A run that contradicts the map (target recreated, link reset,
        records written twice) wins, and runs at or after it on either side are
        removed: for a record that exists twice, the newer offset is used.
        """
        rows = np.array([tuple(run) for run in runs], np.int64).reshape(-1, 3)
        rows = rows[(rows[:, 2] > 0) & ~self._has(rows)]
        extended = self._appended(rows)
        if extended is None:
            extended = self
            for source, target, count in rows.tolist():
                extended = extended._with(source, target, count)
        first = int(extended.source[0]) if len(extended) else until
        last = int(extended.source[-1] + extended.count[-1]) if len(extended) else -1
        begins = [at for at in (extended.begin if extended.begin >= 0 else begin, first) if at >= 0]
        reached = max(last, until if until >= 0 else extended.until)
        return replace(
            extended,
            begin=min(begins, default=-1),
            until=reached,
            clear=clear if clear >= 0 else extended.clear,
            sure=extended.sure if whole else reached,
            again=max(self.again, self.until) if reached < self.until else self._left_again(reached),
        )

    def _left_again(self, reached: int) -> int:
        return -1 if reached >= self.again and not self.cut else self.again

    def jumped(self, offset: int) -> "OffsetMap":
        """The map of a copy that an operator sets to a source offset."""
        return replace(self, cut=1) if self.until < min(self.again, offset) else self

    def _has(self, rows: Column) -> NDArray[np.bool_]:
        """Which of these runs the map contains already."""
        if not len(self):
            return np.zeros(len(rows), bool)
        at = np.maximum(np.searchsorted(self.source, rows[:, 0], "right") - 1, 0)
        source, target, count = self.source[at], self.target[at], self.count[at]
        inside: NDArray[np.bool_] = (source <= rows[:, 0]) & (rows[:, 0] + rows[:, 2] <= source + count)
        inside &= target - source == rows[:, 1] - rows[:, 0]
        return inside

    def _appended(self, rows: Column) -> "OffsetMap | None":
        """The map with runs that follow the map's, and each other, on both sides; None if they do not."""
        kept = max(0, len(self) - 1)
        last = np.stack([self.source[kept:], self.target[kept:], self.count[kept:]], 1)
        source, target, count = np.concatenate([last, rows]).T
        step, hop = source[1:] - (source + count)[:-1], target[1:] - (target + count)[:-1]
        if (step < 0).any() or (hop < 0).any():
            return None
        if not len(rows):
            return self
        heads = np.flatnonzero(np.concatenate([[True], (step > 0) | (hop > 0)]))
        return self._grown(kept, np.stack([source[heads], target[heads], np.add.reduceat(count, heads)], 1))

    def _grown(self, kept: int, rows: Column) -> "OffsetMap":
        """The map with these runs after its first ``kept`` ones; at most the last one is replaced."""
        store, end = self._rows, kept + len(rows)
        # Rows that another map appended, or that were sliced, must not be overwritten.
        if (
            store is None
            or store.used != len(self)
            or self.source.base is not store.columns
            or end > len(store.columns[0])
        ):
            store = _Rows((self.source, self.target, self.count), kept, len(rows) + max(ROOM, kept))
        store.put(kept, rows)
        source, target, count = store.columns[:, :end]
        return replace(self, source=source, target=target, count=count, _rows=store)

    def _with(self, source: int, target: int, count: int) -> "OffsetMap":
        """The map with one run inserted at its position."""
        before = (self.source + self.count <= source) & (self.target + self.count <= target)
        after = (self.source >= source + count) & (self.target >= target + count)
        same = (self.target - self.source == target - source) & ~before & ~after
        if not (before | after | same).all():
            left = np.minimum(self.count, np.minimum(source - self.source, target - self.target))
            rows = np.stack([self.source, self.target, left], 1)[left > 0]
            rows = np.concatenate([rows, [[source, target, count]]])
        else:
            start = min(source, int(self.source[same].min(initial=source)))
            end = max(source + count, int((self.source + self.count)[same].max(initial=source + count)))
            mine = np.stack([self.source, self.target, self.count], 1)
            rows = np.concatenate([mine[before], [[start, start + target - source, end - start]], mine[after]])
        offset_map = replace(self, source=_none(), target=_none(), count=_none())._appended(rows)
        assert offset_map is not None, "runs rise on both sides"
        return offset_map

    def translate(self, offset: int) -> Translation:
        """The target offset where a group that reads ``offset`` of the source next continues: low, so never past an
        unread record. Use ``min(offset, until)`` for a group that is ahead of the copy."""
        problem = self.outside(offset)
        if not problem and (self._may_precede(offset) or self._is_copied_again(offset)):
            problem = "not all records at the target are known"
        target = None if problem else _low(self.source, self.target, self.count, offset, self.floor)
        return Translation(target, "" if target is not None else problem or "the target has no such record yet")

    def backward(self, offset: int) -> Translation:
        """The source offset where a group that reads ``offset`` of the target next continues: low. Past the last
        copied record it is the offset right after it."""
        if not len(self):
            return Translation(None, "nothing was copied yet")
        lowest = self.floor if self.floor >= 0 else int(self.target[0])
        if offset < lowest:
            return Translation(None, f"before target offset {lowest}, where the map begins")
        return Translation(_low(self.target, self.source, self.count, offset, self.begin))

    def outside(self, offset: int) -> str:
        """Why the map does not cover a source offset; empty if it does."""
        if self.begin < 0:
            return "nothing was copied yet"
        if offset < self.begin:
            return f"before source offset {self.begin}, where the map begins"
        return f"past source offset {self.until}, the end of the copied records" if offset > self.until else ""

    def _may_precede(self, offset: int) -> bool:
        """Whether the target may have records before the first run, from ``offset`` on."""
        return offset < self.sure and self.floor < 0 and (not len(self) or offset < int(self.source[0]))

    def _is_copied_again(self, offset: int) -> bool:
        """Whether records from ``offset`` on may be at the target before the place that the map has for them."""
        if offset >= self.again:
            return False
        at = int(np.searchsorted(self.source, offset, "right")) - 1
        return self.until < self.again or at < 0 or offset >= self.source[at] + self.count[at]

    def prune(self, before: int) -> "OffsetMap":
        """The map without runs before a source offset."""
        before = min(before, self.until)
        floor = self.translate(before).offset
        if before <= self.begin or floor is None:
            return self
        cut = np.maximum(before - self.source, 0)
        kept = cut < self.count
        return replace(
            self,
            source=(self.source + cut)[kept],
            target=(self.target + cut)[kept],
            count=(self.count - cut)[kept],
            begin=before,
            floor=floor,
            number=self.number + int((~kept).sum()),
        )

    def records(self, parts: Collection[int] | None = None) -> list[dict[str, Any]]:
        """The map as plain data, in parts: the head (part -1), then the runs; all parts, or the chosen ones. Only the
        last parts change when a map grows, so a compacted topic keyed by part stays small."""
        head = [self._head()] if parts is None or HEAD in parts else []
        return [*head, *({"part": part, **self._slice(rows)} for part, rows in self._parts(parts))]

    def digests(self) -> dict[int, int]:
        """`digest` of each of `records`, without creating them."""
        columns = self.source, self.target, self.count
        parts = {part: _digest(column[rows] for column in columns) for part, rows in self._parts(None)}
        return {HEAD: digest(self._head()), **parts}

    def _head(self) -> dict[str, Any]:
        return {"part": HEAD, "runs": len(self), **{name: getattr(self, name) for name in _NUMBERS}}

    def _parts(self, parts: Collection[int] | None) -> Iterator[tuple[int, slice]]:
        """Parts and their rows."""
        last = (self.number + len(self) - 1) // PART
        for part in range(self.number // PART, last + 1) if len(self) else ():
            if parts is None or part in parts:
                yield part, slice(max(0, part * PART - self.number), (part + 1) * PART - self.number)

    def _slice(self, rows: slice) -> dict[str, list[int]]:
        return {name: getattr(self, name)[rows].tolist() for name in LISTS}


def digest(record: Mapping[str, Any]) -> int:
    """A number that detects changes of one of `OffsetMap.records`, within this process."""
    if record["part"] == HEAD:
        return hash((record["runs"], *(record.get(name, -1) for name in _NUMBERS)))
    return _digest(np.array(record[name], np.int64) for name in LISTS)


def _digest(columns: Iterable[Column]) -> int:
    return hash(tuple(column.tobytes() for column in columns))


def from_records(records: Iterable[Mapping[str, Any]]) -> OffsetMap:
    """The map from `records`. A missing part is a gap; parts that the head does not include are ignored."""
    parts = {record["part"]: record for record in records}
    head = parts.pop(HEAD, None)
    if head is None:
        return OffsetMap()
    first, last = head["number"] // PART, (head["number"] + head["runs"] - 1) // PART
    live = [parts[part] for part in sorted(parts) if first <= part <= last]
    runs = [run for part in live for run in zip(part["source"], part["target"], part["count"], strict=True)]
    offset_map = OffsetMap(**{name: head[name] for name in _NUMBERS if name not in ("until", "clear")})
    return offset_map.extend(runs, head["until"], clear=head["clear"], whole=len(runs) >= head["runs"])


def _low(starts: Column, others: Column, count: Column, offset: int, floor: int) -> int | None:
    at = int(np.searchsorted(starts, offset, "left")) - 1
    if at < 0:
        return floor if floor >= 0 else int(others[0]) if len(others) else None
    return int(others[at] + min(offset - starts[at], count[at]))
