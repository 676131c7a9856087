"""The generic pump between logs in memory, with any sequence of lost responses, refusals, errors and killed copiers:
every record of the source is at the target, in order, and reports are true."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import product
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from trueup.connectors.closing import Closing
from trueup.connectors.contract import Assignment, Endpoint, Lease, LogId, Position
from trueup.connectors.replication import pump, resume
from trueup.connectors.replication.headers import mark_of, prefix_of
from trueup.connectors.replication.ports import Columns, Read, SystemPorts, Written
from trueup.connectors.replication.pump import Pump
from trueup.connectors.replication.tail import Bounds, CopiedRecord, TailSearch
from trueup.state.common.errors import Retry, TrueupError
from trueup.state.replication.provenance import HEADER
from trueup.streams.replication.links.checkpoints import Copy

EVENTS = 400
SOURCES, TARGET, LETTERS = [LogId("a", 0), LogId("b", 0)], LogId("t", 0), LogId("letters", 0)
WRITER_ID, MOST = 3, 4
LOST = Retry("a response", "none", "ask again")
Row = tuple[int, int]
"""Number of the source log, and source offset, of a record at the target; (-1, n): of another writer."""
LENGTH = 40
ROWS: dict[bytes, Row] = {b"%d %d" % row: row for row in product(range(len(SOURCES)), range(LENGTH))}
"""The records by key."""


class Killed(BaseException):
    """The process of the copier ends here."""


class Claim(NamedTuple):
    """A report: number of the source log, position, and the target offset of its next record at the earliest."""

    log: int
    position: Position
    end: int


class World:
    """Two source logs with gaps, the target log of both, and faults in the first `EVENTS` events."""

    def __init__(self, seed: int) -> None:
        self.chance, self.now_s, self.events = Random(seed), 0.0, 0
        self.rate = self.chance.choice((0.02, 0.1, 0.3))
        self.logs = [sorted(self.chance.sample(range(LENGTH), self.chance.randrange(25))) for _ in SOURCES]
        self.starts, self.ends = [0, 0], [log[-1] + 1 if log else 0 for log in self.logs]
        """The bounds of the source logs. Retention moves the starts."""
        rows = [(number, offset) for number, log in enumerate(self.logs) for offset in log]
        self.poison = {row for row in rows if self.chance.random() < self.chance.choice((0.0, 0.1))}
        """The target refuses these records."""
        self.home = {row for row in rows if self.chance.random() < self.chance.choice((0.0, 0.2))} - self.poison
        """These records came from the target."""
        self.lag_s = self.chance.choice((0.0, 0.5))
        """The target shows a record after this time."""
        self.target: list[Row] = []
        self.times: list[float] = []
        """The time at which the target appended each record."""
        self.letters: list[Row] = []
        self.late: list[tuple[float, Row]] = []
        """The target appends these records at their times."""
        self.clean = True
        """No copier was dead when the target appended its records."""

    def fault(self, kinds: int, times: float = 1.0) -> int:
        """The fault of this event, from 1 to ``kinds``; 0: none. ``times``: how likely, compared with others."""
        self.events += 1
        if self.events > EVENTS or self.chance.random() > self.rate * times:
            return 0
        return self.chance.randint(1, kinds)

    def time(self) -> SimpleNamespace:
        """In place of the module ``time``."""
        return SimpleNamespace(monotonic=self._tick, time=self._tick, sleep=self.elapse)

    def _tick(self) -> float:
        self.elapse(0.001)
        return self.now_s

    def elapse(self, seconds: float) -> None:
        """Time passes, and delayed rows arrive."""
        self.now_s += seconds
        while self.late and self.late[0][0] <= self.now_s:
            due_s, row = self.late.pop(0)
            self.target.append(row)
            self.times.append(due_s)

    def delay(self, rows: Sequence[Row]) -> None:
        """The target appends rows up to `resume.LATE_S` later."""
        due_s = self.now_s + self.chance.random() * resume.LATE_S
        self.late += [(max(due_s, self.late[-1][0] if self.late else 0.0), row) for row in rows]

    def append(self, rows: Sequence[Row]) -> None:
        """The target appends rows."""
        self.target += rows
        self.times += [self.now_s] * len(rows)

    @property
    def shown(self) -> int:
        """The end that the target reports."""
        # Sums of seconds differ in their last digits: what is shown after exactly the lag is shown.
        return sum(at_s <= self.now_s - self.lag_s + 1e-6 for at_s in self.times)

    def delete(self, number: int) -> None:
        """Retention deletes the first record of a source log."""
        if self.logs[number]:
            self.starts[number] = self.logs[number].pop(0) + 1


class Side(Closing):
    """The common part of reader and writer."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.lag_s = world, name, world.lag_s

    def cluster_id(self) -> str:
        return self.name

    def unsure(self, logs: Iterable[LogId]) -> dict[LogId, TrueupError]:
        return dict.fromkeys(logs, LOST) if self.world.fault(4) == 1 else {}

    def close(self) -> None:
        """Nothing to close."""

    def check(self) -> None:
        """An event at which the cluster may not respond, others may write, or the copier may be killed."""
        match self.world.fault(6):
            case 1:
                raise LOST
            case 2:
                raise Killed
            case 0:
                pass
            case _:
                self.world.append([(-1, len(self.world.target))])


class FaultyReader(Side):
    """Implements `ports.Reader`."""

    def bounds(self, logs: Iterable[LogId]) -> dict[LogId, Bounds | TrueupError]:
        self.check()
        return {log: self._bounds(SOURCES.index(log)) for log in logs}

    def _bounds(self, number: int) -> Bounds:
        return Bounds(self.world.starts[number], self.world.ends[number])

    def seek(self, places: Mapping[LogId, int]) -> None:
        self.places = dict(places)

    def poll(self, most: int, wait_s: float) -> dict[LogId, Read]:
        del most
        self.check()
        found = dict[LogId, Read]()
        for log, at in self.places.items():
            number = SOURCES.index(log)
            offsets = [offset for offset in self.world.logs[number] if offset >= at][
                : self.world.chance.randint(1, MOST)
            ]
            if self.world.fault(1, 0.2):
                found[log] = Read(Columns(), at, error=LOST)
                continue
            if self.world.fault(1, 0.2):
                self.world.delete(number)
            start, end = self._bounds(number)
            if at < start:
                found[log] = Read(Columns(), start, lost=start - at)
                self.places[log] = start
                continue
            following = offsets[-1] + 1 if offsets else max(at, end)
            texts = [b"%d %d" % (number, offset) for offset in offsets]
            headers = [[(HEADER, b"west#1")] if (number, offset) in self.world.home else [] for offset in offsets]
            rows = Columns(offsets, texts, texts, offsets, headers)
            found[log] = Read(rows, following, idle=following == end, bounds=Bounds(start, end))
            self.places[log] = following
        if not any(read.records.offsets for read in found.values()):
            self.world.elapse(wait_s)
        return found


class FaultyWriter(Side):
    """Implements `ports.Writer`."""

    def bounds(self, logs: Iterable[LogId]) -> dict[LogId, Bounds | TrueupError]:
        self.check()
        return dict.fromkeys(logs, Bounds(0, self.world.shown))

    def tails(self) -> "FaultyWriter":
        return self

    def run(self, searches: Mapping[LogId, TailSearch]) -> dict[LogId, TrueupError]:
        self.check()
        for search in searches.values():
            while (span := search.span()) is not None:
                rows = list(enumerate(self.world.target))[slice(*span)]
                search.read(
                    span[0],
                    [
                        (prefix_of(WRITER_ID, SOURCES[log]), CopiedRecord(offset, at))
                        for at, (log, offset) in rows
                        if log >= 0
                    ],
                )
        return {}

    def logs_of(self, topic: str) -> list[LogId]:
        del topic
        return [LETTERS]

    def write(self, batches: Mapping[LogId, Columns]) -> dict[LogId, Written]:
        flight = self.prepare(batches)
        flight.send()
        return flight.written()

    def prepare(self, batches: Mapping[LogId, Columns]) -> "FaultyWrite":
        [(log, rows)] = batches.items()
        return FaultyWrite(self.world, log, rows)


class FaultyWrite:
    """Implements `ports.Write`."""

    def __init__(self, world: World, log: LogId, rows: Columns) -> None:
        self._world, self._log = world, log
        self._rows: list[Row] = [ROWS[key] for key in rows.keys if key is not None]
        if log == TARGET:
            prefixes = {prefix_of(WRITER_ID, source): number for number, source in enumerate(SOURCES)}
            marks = [mark for mark in map(mark_of, rows.headers) if mark is not None]
            assert [(prefixes[prefix], offset) for prefix, offset in marks] == self._rows

    def send(self) -> None:
        """The rows leave; `written` decides when the target appends them."""

    def written(self) -> dict[LogId, Written]:
        return {self._log: self._append() if self._log == TARGET else self._letter()}

    def _letter(self) -> Written:
        fault = self._world.fault(2)
        self._world.letters += self._rows if fault < 2 else []
        return Written((), error=LOST) if fault else Written([0])

    def _append(self) -> Written:
        world, rows, first = self._world, self._rows, len(self._world.target)
        refused = next((at for at, row in enumerate(rows) if row in world.poison), len(rows))
        part = rows[: world.chance.randint(0, refused)]
        match world.fault(6, 3.0):
            case 1:  # the response is lost
                world.append(part)
                return Written((), error=LOST)
            case 2:  # the same, and the target appends later
                world.delay(part)
                return Written((), error=LOST)
            case 3:
                world.append(part)
                raise Killed
            case 4:
                world.delay(part)
                raise Killed
            case 5 if len(rows) > 1:
                return Written((), refused="too large together")
            case 6:
                world.append(part)
                error = LOST if len(part) < len(rows) else None
                return Written(range(first, first + len(part)), error=error)
        world.append(rows[:refused])
        why = "too large" if refused < len(rows) else ""
        return Written(range(first, first + refused), refused=why, alone=bool(why))


class Run:
    """Leases one after another, as a worker holds them; reports are journaled at some of their ends."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.journal = [Position() for _ in SOURCES]
        self.copies = [Copy(log, TARGET, 0) for log in SOURCES]
        self.claims: list[Claim] = []
        self.stops: list[str] = []
        self.runs: list[tuple[int, int, int, int]] = []
        medium = SystemPorts(
            lambda lease: FaultyReader(world, lease.source.name), lambda lease: FaultyWriter(world, "west")
        )
        self._pump = Pump(lambda system: medium)

    def open(self) -> Any:
        """A copier at the journaled positions."""
        lease = Lease(
            "l",
            Endpoint("east", "e", 0),
            Endpoint("west", "w", 1),
            WRITER_ID,
            "records",
            tuple(Assignment(log, TARGET, position, 0) for log, position in zip(SOURCES, self.journal, strict=True)),
            failures="dead-letter",
            dead_letters="letters",
        )
        return self._pump.open(lease)

    def lease(self) -> bool:
        """One copier until it fails, is killed, or has nothing to do. Returns whether all is copied."""
        self.world.clean &= not self.world.late
        with suppress(Killed, TrueupError):
            copier = self.open()
            for _ in range(6):
                copier.copy(self.world.now_s + 0.2, lambda: self._report(copier))
                self._report(copier)
        return all(at.offset >= end for at, end in zip(self.journal, self.world.ends, strict=True))

    def _report(self, copier: Any) -> bool:
        if self.world.chance.random() < 0.5:
            return True
        for number, found in enumerate(copier.progress()):
            copy = self.copies[number]
            copy.take(found, 0)
            self.stops.append(copy.error if copy.stopped else "")
            self.claims.append(Claim(number, copy.position, max(copy.map.end, copy.map.clear)))
            self.runs += [(number, *run) for run in found.runs]
            self.journal[number] = copy.position
        return self.world.fault(1, 0.5) == 0


@contextmanager
def clock(world: World) -> Iterator[None]:
    with mock.patch.object(pump, "time", world.time()), mock.patch.object(resume, "time", world.time()):
        yield


def done(seed: int) -> Run:
    world = World(seed)
    run = Run(world)
    with clock(world):
        for _ in range(300):
            if run.lease() and world.events > EVENTS:
                return run
    raise AssertionError("the copy does not end")


def copies(world: World, number: int) -> list[tuple[int, int]]:
    """Target and source offset of each record of a log at the target."""
    return [(at, offset) for at, (log, offset) in enumerate(world.target) if log == number]


def untrue(world: World, claims: Iterable[Claim]) -> list[Claim]:
    """The claims that are false for a record of the source."""
    places = [{offset: at for at, offset in copies(world, number)} for number in range(len(SOURCES))]
    return [
        claim
        for claim in claims
        if any(offset >= claim.position.offset and at < claim.end for offset, at in places[claim.log].items())
    ]


SEEDS = given(st.integers(0, 1 << 40))


@settings(max_examples=40, deadline=None)
@SEEDS
def test_every_record_is_at_the_target_and_none_that_came_from_there(seed: int) -> None:
    world = done(seed).world
    left = {(number, offset) for number, log in enumerate(world.logs) for offset in log}
    assert (left - world.poison - world.home - {*world.target}, world.home & {*world.target}) == (set(), set())


@settings(max_examples=40, deadline=None)
@SEEDS
def test_records_are_in_order_unless_a_dead_copier_writes_late(seed: int) -> None:
    world = done(seed).world
    there = [list(dict.fromkeys(offset for _, offset in copies(world, number))) for number in (0, 1)]
    assert not world.clean or there == [sorted(offsets) for offsets in there]


@settings(max_examples=40, deadline=None)
@SEEDS
def test_every_refused_record_is_a_dead_letter(seed: int) -> None:
    world = done(seed).world
    left = {(number, offset) for number, log in enumerate(world.logs) for offset in log}
    assert world.poison & left - {*world.letters} == set()


@settings(max_examples=40, deadline=None)
@SEEDS
def test_a_lost_response_to_a_dead_letter_stops_no_log(seed: int) -> None:
    assert [stop for stop in done(seed).stops if stop] == []


@settings(max_examples=40, deadline=None)
@SEEDS
def test_no_record_is_repeated_unless_a_dead_copier_writes_late(seed: int) -> None:
    world = done(seed).world
    twice = [row for row in world.target if row[0] >= 0 and world.target.count(row) > 1]
    assert not world.clean or twice == []


@settings(max_examples=40, deadline=None)
@SEEDS
def test_reported_runs_and_ends_are_true(seed: int) -> None:
    run = done(seed)
    target = run.world.target
    wrong = [each for each in run.runs for n in range(each[3]) if target[each[2] + n] != (each[0], each[1] + n)]
    assert (untrue(run.world, run.claims), wrong) == ([], [])


@settings(max_examples=40, deadline=None)
@SEEDS
def test_no_position_goes_back(seed: int) -> None:
    claims = done(seed).claims
    found = [[claim.position.offset for claim in claims if claim.log == number] for number in (0, 1)]
    assert found == [sorted(offsets) for offsets in found]


def test_a_late_record_of_a_dead_copier_does_not_move_the_position_of_a_new_link_back() -> None:
    """The position is read again after a lost response; behind the last record is only the late one."""
    world, lost = World(0), iter([1])
    world.logs, world.ends, world.poison, world.home, world.lag_s = [[*range(10)], []], [10, 0], set(), set(), 0.0
    with clock(world), mock.patch.object(world, "fault", return_value=0):
        copier = Run(world).open()
        copier.copy(world.now_s + 0.2)
    world.append([(0, 1)])
    world.logs[0].append(10)
    world.ends[0] = 11
    with clock(world), mock.patch.object(world, "fault", lambda kinds, times=1.0: next(lost, 0) if times > 1 else 0):
        copier.copy(world.now_s + 0.5)
    assert [offset for _, offset in copies(world, 0)] == [*range(10), 1, 10]
