"""The progress of each source partition of a link, and its records in the journal.

The offset map of a partition grows by a few runs per lease, so only changed parts of it are written.
"""

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Self

from trueup.connectors.contract import Assignment, LogId, Position, Progress, ResumeState, log_of
from trueup.state.common.errors import Retry
from trueup.state.replication.offset_map import HEAD, LISTS, OffsetMap, digest, from_records
from trueup.state.replication.provenance import Refill
from trueup.streams.journal.codec import WRONG
from trueup.streams.journal.journal import Journal
from trueup.streams.journal.topic import Put, Record
from trueup.streams.replication.topics import LINKS, OFFSETS

log = logging.getLogger(__name__)
REFILL, RESTORED = "refill", "restored"
"""Keys of a refill in the journal: in place of the name of a path, and of `Copy.restored` beside its numbers."""
_NOWHERE = LogId("", -1)


@dataclass(slots=True)
class Copy:
    """The copy of one source partition."""

    source: LogId
    target: LogId
    start: int
    position: Position = field(default_factory=Position)
    map: OffsetMap = field(default_factory=OffsetMap)
    path: str = ""
    resume_states: dict[str, ResumeState] = field(default_factory=dict)
    reset: str = ""
    sets: int = 0
    """The number of times that a command set the position in this run."""
    set_back: bool = False
    """Whether a command set the position after the running lease began."""
    last: Progress | None = None
    """The newest report of this run. None if there is none, or if the copy was restarted since."""
    at_ms: int = 0
    """The time of the newest report of this run, in ms since the epoch; 0 if there is none."""
    error: str = ""
    stopped: bool = False
    again_ms: int = 0
    """The earliest time of the next lease, in ms since the epoch; 0 if the next lease may begin at once."""
    excluded: bool = False
    """Whether the partition gets no lease before a reset or a refill."""
    placed: bool = True
    """Whether the position is known: false while its record in the journal is not readable and no command set another.
    """
    source_id: str = ""
    """The id of the source topic at the start of the copy or at the last reset; empty if it is unknown."""
    target_id: str = ""
    """The id of the target topic at the start of the copy or at the last reset; empty if it is unknown."""
    foreign: int = 0
    """The number of target offsets between the link's records, in this run, that hold no record of the link."""
    refill: Refill | None = None
    """The refill in progress, or None."""
    refilled: bool = False
    """Whether a refill reached its end in this run and no command set the position since."""
    restored: int = 0
    """The target offset after the last record that a refill restored. Known after the end of the refill."""
    written: dict[int, int] = field(default_factory=dict)
    """The digest of each part of the map that is in the journal, by the number of the part."""

    @classmethod
    def waiting(cls, source: LogId, start: int, source_id: str, setting: str) -> Self:
        """The first offset of a partition that may not be copied yet. Only the journal has such a copy: it says where
        the copy begins by ``setting``, the text of ``start``, also if the application restarts before."""
        return cls(source, _NOWHERE, start, source_id=source_id, reset=setting)

    @property
    def waits(self) -> bool:
        """Whether this is only a first offset: see `waiting`."""
        return self.target == _NOWHERE

    @property
    def offset(self) -> int:
        """The first source offset that is not copied yet."""
        return self.position.offset if self.position.offset >= 0 else self.start

    @property
    def copied_end(self) -> int:
        """The target offset after the last acknowledged record; -1: unknown."""
        return self.map.end

    def place(self, path: str) -> Position:
        """The position for a path. A path cannot interpret the resume state of another path; the path changes only if
        the journal is exact, so the new path starts at the stored offset."""
        if path == self.path or not self.path:
            return self.position
        return Position(self.position.offset, self.resume_states.get(path, {}), chosen=self.position.offset >= 0)

    def follow(self, path: str) -> None:
        """Set the path before the first lease."""
        self.path = path

    def moved(self, target: LogId) -> None:
        """Restart in another target partition; progress in the former one does not apply."""
        self.target, self.position, self.map, self.last = target, Position(), OffsetMap(), None
        self.path, self.resume_states, self.target_id, self.refilled, self.restored = "", {}, "", False, 0

    def exclude(self, why: str) -> None:
        """Exclude the partition from leases until a reset."""
        self.error, self.stopped, self.excluded = why, True, True

    def set(self, offset: int, reason: str, ids: tuple[str, str] = ("", ""), ends: tuple[int, int] = (-1, -1)) -> None:
        """Continue at an offset that an operator set, between the topics with these ids (empty: the topic does not
        exist or has no id).

        ``ends``: the end offsets of both partitions (-1: unknown). If a topic was replaced, if the target lost
        acknowledged records, or if a source without ids lost copied ones, the offset map concerns logs that are gone
        and begins again.
        """
        end = self._end_of_copies(ids[1], ends[1])
        other = self.source_id != ids[0] if self.source_id else not ids[0] and 0 <= ends[0] < self.position.offset
        if other or end is None:
            self._clear(offset, end)
        if self.refill is not None and end is not None:
            self.restored = max(end, 0)
        self.map = self.map.jumped(offset)
        self.position, self.resume_states = Position(offset, chosen=True), {}
        self.reset, self.set_back, self.again_ms, self.sets = reason, True, 0, self.sets + 1
        self.error, self.stopped, self.excluded, self.placed = "", False, False, True
        self.source_id, self.target_id = ids
        self.refill, self.refilled = None, False

    def _clear(self, offset: int, end: int | None) -> None:
        """Clear what is known of the copies. ``offset``: where the next ones begin; ``end``: see `_end_of_copies`."""
        self.map, self.start, self.foreign = OffsetMap(base=-1 if end is None else end), offset, 0
        if end is None:
            self.restored = 0

    def _end_of_copies(self, target_id: str, target_end: int) -> int | None:
        """The target offset before which all earlier copies are; None: the target lost them. ``target_id``: the present
        id of the topic. ``target_end``: the present end of the partition; -1: unknown."""
        if (self.target_id and self.target_id != target_id) or 0 <= target_end < self.copied_end:
            return None
        return max(target_end, self.copied_end)

    def anew(
        self,
        offset: int,
        reason: str,
        ids: tuple[str, str],
        refill: Refill | None = None,
        ends: tuple[int, int] = (-1, -1),
    ) -> None:
        """Copy from this offset as if nothing had been copied, because a log was replaced or lost its records.
        ``ends``: see `set`."""
        end = None if refill is not None else self._end_of_copies(ids[1], ends[1])
        self.set(offset, reason, ids)
        self._clear(offset, end)
        self.last, self.refill = None, refill

    def meet(self, ids: tuple[str, str]) -> None:
        """Store the topic ids of both ends that were unknown."""
        self.source_id, self.target_id = self.source_id or ids[0], self.target_id or ids[1]

    def holds(self, held: Assignment) -> bool:
        """Whether a lease of this assignment copied between the present topics."""
        ends = (held.source_id, self.source_id), (held.target_id, self.target_id)
        return held.target == self.target and all(not then or then == now for then, now in ends)

    def cover(self) -> None:
        """Extend the map to the position without claiming what the target has of the records before it: the records of
        the map were lost or are older than the position."""
        if self.map.until < self.position.offset:
            self.map = self.map.extend((), self.position.offset, self.start, whole=False)

    def take(self, progress: Progress, now_ms: int) -> None:
        """Apply acknowledged progress."""
        self.last, self.at_ms = progress, now_ms
        self.foreign += progress.foreign
        if not self.excluded:
            self.error, self.stopped = progress.error, progress.stopped
        if self.set_back and not len(self.map):
            return  # that lease may have written to a log that is gone
        if self.map.begin < 0:
            self.cover()
        records = sum(run.records for run in progress.runs)
        self.map = self.map.extend(
            progress.runs,
            progress.position.offset,
            self.start,
            progress.target_end,
            whole=records >= progress.copied + progress.skipped,
        )
        if self.set_back:
            return
        self.position, self.path = progress.position, progress.path or self.path
        self.resume_states[self.path] = progress.position.resume_state
        if self.refill is not None and self.offset >= self.refill.until:
            self.refill, self.refilled, self.restored = None, True, max(self.map.end, self.map.floor, 0)
        if progress.source_start > self.map.begin:
            self.map = self.map.prune(progress.source_start)

    def records(self, link: str, now_ms: int) -> Iterator[Put]:
        """The records that are not in the journal yet."""
        base = f"{link}/{self.source}"
        yield LINKS, base.encode(), self._record(link, now_ms)
        digests = self.map.digests()
        for number in self.written.keys() - digests.keys():
            yield OFFSETS, f"{base}/{number}".encode(), None
        where = {"link": link, "topic": self.source.path, "partition": self.source.number}
        changed = {number for number, part_digest in digests.items() if self.written.get(number) != part_digest}
        for part in self.map.records(changed):
            yield OFFSETS, f"{base}/{part['part']}".encode(), {**where, **_as_record(part)}
        self.written = digests

    def forgotten(self, link: str) -> Iterator[Put]:
        """The records that delete the copy from the journal."""
        base = f"{link}/{self.source}"
        yield LINKS, base.encode(), None
        for number in self.written:
            yield OFFSETS, f"{base}/{number}".encode(), None

    def _record(self, link: str, now_ms: int) -> dict[str, object]:
        refill = {} if self.refill is None else self.refill._asdict()
        kept = {**self.resume_states, REFILL: {**refill, **({RESTORED: self.restored} if self.restored else {})}}
        resume_state = {f"{path}/{name}": number for path, state in kept.items() for name, number in state.items()}
        return {
            "link": link,
            "topic": self.source.path,
            "partition": self.source.number,
            "target_topic": self.target.path,
            "target_partition": self.target.number,
            "start": self.start,
            "offset": self.position.offset,
            "carry": resume_state,
            "chosen": self.position.chosen,
            "path": self.path,
            "reset": self.reset,
            "source_id": self.source_id,
            "target_id": self.target_id,
            "at_ms": now_ms,
        }


class Unsaved:
    """Records to be written to the journal. Records that could not be written are retried with the next ones. Safe to
    use from several threads. ``problem``: why the last write failed; empty if it succeeded."""

    def __init__(self, journal: Journal) -> None:
        self._journal, self._lock, self._writing = journal, threading.Lock(), threading.Lock()
        self._records: dict[tuple[str, bytes], Put] = {}
        self.problem = ""

    def add(self, records: Iterable[Put]) -> None:
        """Add newer records, in the order of their creation."""
        with self._lock:
            self._records.update({record[:2]: record for record in records})

    def put(self, must: bool = False) -> None:
        """Write all records to the journal. With ``must``, raises `Retry` if that fails. One call writes at a time: an
        older record of a key must not follow a newer one."""
        with self._writing:
            self._put(must)

    def _put(self, must: bool) -> None:
        with self._lock:
            unsaved = dict(self._records)
        if not unsaved:
            return
        try:
            self._journal.put(unsaved.values())
        except Retry as error:
            self.problem = f"positions are not in the journal yet: {error}"
            if must:
                raise
            return
        self.problem = ""
        with self._lock:
            for key, record in unsaved.items():
                if self._records.get(key) is record:
                    del self._records[key]


def load(journal: Journal, problems: MutableMapping[bytes, str] | None = None) -> dict[str, dict[LogId, Copy]]:
    """The copies of every link in the journal, by source partition. ``problems``: a mapping that receives the problems
    of records that are not readable, by key; see `Journal.newest`."""
    by_link: dict[str, dict[LogId, Copy]] = {}
    for link, copy in journal.newest(LINKS, problems).values():
        by_link.setdefault(link, {})[copy.source] = copy
    parts: dict[tuple[str, LogId], dict[int, Record]] = {}
    for link, source, part in journal.newest(OFFSETS).values():
        parts.setdefault((link, source), {})[part["part"]] = part
    for (link, source), records in parts.items():
        if (owner := by_link.get(link, {}).get(source)) is not None:
            try:
                owner.map = from_records(records.values())
            except WRONG as error:  # parts that do not belong together; translation begins anew
                log.warning("offset map not readable", extra={"link": link, "log": str(source), "problem": str(error)})
            owner.written = {number: digest(part) for number, part in records.items()}
    for copy in (copy for copies in by_link.values() for copy in copies.values()):
        # What lies before a chosen position was skipped, as an operator decided.
        if not copy.position.chosen:
            copy.cover()
    return by_link


def unreadable(problems: Mapping[bytes, str]) -> dict[str, dict[LogId, str]]:
    """The problems that `load` found, by link and source partition."""
    by_link: dict[str, dict[LogId, str]] = {}
    for key, problem in problems.items():
        link, _, log_name = key.decode(errors="replace").partition("/")
        path, _, number = log_name.rpartition("-")
        if number.isdecimal():
            by_link.setdefault(link, {})[log_of(path, int(number))] = problem
    return by_link


def copy_of(value: Record) -> tuple[str, Copy]:
    """A record of the topic ``links`` as its link and a copy."""
    resume_states: dict[str, ResumeState] = {}
    for key, number in value["carry"].items():
        path, _, name = key.partition("/")
        resume_states[path] = {**resume_states.get(path, {}), name: number}
    refill = {**resume_states.pop(REFILL, {})}
    restored = refill.pop(RESTORED, 0)
    return value["link"], Copy(
        source=log_of(value["topic"], value["partition"]),
        target=log_of(value["target_topic"], value["target_partition"]),
        start=value["start"],
        position=Position(value["offset"], resume_states.get(value["path"], {}), value["chosen"]),
        path=value["path"],
        resume_states=resume_states,
        reset=value["reset"],
        source_id=value["source_id"],
        target_id=value["target_id"],
        refill=Refill(**refill) if refill else None,
        restored=restored,
    )


def _as_record(part: Record) -> dict[str, object]:
    numbers = {name: value for name, value in part.items() if name not in (*LISTS, "part")}
    return {"part": part["part"], "head": numbers, **{name: part.get(name, []) for name in LISTS}}


def part_of(value: Record) -> tuple[str, LogId, Record]:
    """A record of the topic ``offsets`` as its link, its log and a part in the form of `OffsetMap.records`. Raises one
    of `WRONG` for a part that no map has."""
    lists = {name: value[name] for name in LISTS} if value["part"] != HEAD else {}
    part = {"part": value["part"], **value["head"], **lists}
    if len({len(items) for items in lists.values()}) > 1:
        raise ValueError(f"expected {', '.join(LISTS)} of one length; found others")
    from_records([part])
    return value["link"], log_of(value["topic"], value["partition"]), part
