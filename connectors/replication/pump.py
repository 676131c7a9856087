"""Copies records between any two systems: reads columns, writes columns, and waits for the acknowledgement.

Its guarantees are those of the path ``records``: keys, values, headers, timestamps and the order of a log are kept;
records that passed the target are dropped; a refused record stops its log, or is handled by the lease's policy. The
target's tail shows the progress, so a killed copier only costs time.

While a write is in flight, the next records are read and prepared. They are sent after all results of that write are
handled, so that a log never has two requests in flight, and nothing follows records whose fate is unknown. In memory
are the records of two reads at most.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple, cast
from zlib import crc32

from trueup.connectors.contract import Lease, LogId, Progress
from trueup.connectors.replication.failures import failure_of, policy_of
from trueup.connectors.replication.garbage import few_collections, keep_memory
from trueup.connectors.replication.headers import Header, Headers, Path, marks
from trueup.connectors.replication.ports import Columns, Native, Read, Reader, SystemPorts, Write, Writer, Written
from trueup.connectors.replication.rate_limit import Rate
from trueup.connectors.replication.resume import Resume
from trueup.connectors.replication.tail import Bounds
from trueup.connectors.replication.track import Lane, LogTrack
from trueup.connectors.replication.transforms import Attempt, Record, Transform, entry_point, returned
from trueup.state.common.errors import Retry, Stop, TrueupError
from trueup.state.replication.provenance import HEADER

BATCH = 12_000
"""Maximum records of one read. Requests cost more than records where a log gives less than a thousand at once."""
IDLE_S = 0.05
TRIES = 5
"""Maximum failures in one call; then the link is retried later."""


class Tagged(NamedTuple):
    """The rows to write for some records."""

    columns: Columns
    dropped: int
    filtered: int
    broken: str = ""
    """Why the next record cannot be written: the reader refuses it, or the transform failed. Empty if neither is the
    case."""


class Flight:
    """A write of records that were read. An error of the whole write is that of each target."""

    def __init__(self, reads: Mapping[LogId, Read], tagged: Mapping[LogId, Tagged]) -> None:
        self.reads, self.tagged = reads, tagged
        self.targets: Collection[LogId] = ()
        self._write: Write | None = None
        self._error: TrueupError | None = None

    def prepare(self, writer: Writer, batches: Mapping[LogId, Columns]) -> None:
        """Prepare what is written together."""
        self.targets = batches.keys()
        with self._kept():
            self._write = writer.prepare(batches) if batches else None

    def send(self) -> None:
        """Send it."""
        with self._kept():
            if self._write is not None:
                self._write.send()

    def written(self) -> Mapping[LogId, Written]:
        """The results; a lost response makes them unknown."""
        with self._kept():
            if self._write is not None and self._error is None:
                return self._write.written()
        return {target: Written((), error=self._error) for target in self.targets}

    @contextmanager
    def _kept(self) -> Iterator[None]:
        try:
            yield
        except TrueupError as error:
            self._error = error


class Pump:
    """The connector. ``medium``: gives the reader and the writer of a system by its name."""

    def __init__(self, medium: Callable[[str], SystemPorts]) -> None:
        self._medium = medium

    def open(self, lease: Lease) -> "PumpCopier":
        """Connect to both ends and read the position of each log at the target. Raises `TrueupError`."""
        source, target = self._medium(lease.source.system), self._medium(lease.target.system)
        keep_memory()
        return PumpCopier(lease, source.reader, target.writer)


class PumpCopier:
    """One lease. See `connectors.contract.Copier`."""

    def __init__(self, lease: Lease, reader: Callable[[Lease], Reader], writer: Callable[[Lease], Writer]) -> None:
        self._lease, self._tagging = lease, Tagging(lease)
        sources = Counter(a.target for a in lease.assignments)
        lanes = {target: Lane(target, shared=count > 1) for target, count in sources.items()}
        self._tracks = {a.source: LogTrack(a, lanes[a.target], lease.writer_id) for a in lease.assignments}
        self._rate = Rate(lease.limits, time.monotonic())
        self._reader = reader(lease)
        self._writer = writer(lease)
        self._policy = policy_of(lease, WriterLetters(self._writer))
        lag_s = max(self._reader.lag_s, self._writer.lag_s)
        self._resume = Resume(self._reader.bounds, self._writer.bounds, self._writer.tails(), lag_s)
        self._clusters_checked = False
        self._moved = set[LogId]()
        self._flight: Flight | None = None
        self._until_s, self._keep_going = 0.0, _go_on
        try:
            self._begin([*self._tracks.values()], ours=False)
        except TrueupError:
            self.close()
            raise

    def copy(self, until_s: float, keep_going: Callable[[], bool] = lambda: True) -> None:
        """Copy until ``until_s``. See `connectors.contract.Copier.copy`."""
        with few_collections():
            try:
                self._copy(until_s, keep_going)
            finally:
                self._land()
            self._clear()

    def _copy(self, until_s: float, keep_going: Callable[[], bool]) -> None:
        tries, self._until_s, self._keep_going = 0, until_s, keep_going
        while True:
            away = [track for track in self._tracks.values() if not track.known and not track.stopped]
            if away and self._active():
                self._beside(away)
            elif away:
                tries += 1
                if tries > TRIES:
                    raise Retry("both ends of the link", away[0].error, "check both clusters")
                self._begin(away, ours=True)
            now = time.monotonic()
            if now >= until_s or not keep_going():
                return
            if self._active():
                self._step(min(IDLE_S, until_s - now))
            else:
                time.sleep(min(IDLE_S, until_s - now))

    def _clear(self) -> None:
        """Observe the ends of the targets of idle logs, where their next records will be at the earliest: a resume does
        not read what others wrote before."""
        idle = [track for track in self._active() if track.idle]
        if not idle:
            return
        with suppress(TrueupError):  # the next write reports it
            ends = self._writer.bounds({track.lane.target: track.lane for track in idle})
            for track in idle:
                if isinstance(end := ends.get(track.lane.target), Bounds):
                    track.lane.clear, track.floor = end.end, max(track.floor, end.end)

    def progress(self) -> list[Progress]:
        """The progress since the last call."""
        now_ms = _now_ms()
        return [track.progress(now_ms) for track in self._tracks.values()]

    def close(self) -> None:
        """Close all connections."""
        for part in (self._policy, self._reader, self._writer):
            part.close()

    def _active(self) -> list[LogTrack]:
        return [track for track in self._tracks.values() if track.known and not track.stopped]

    def _begin(self, tracks: Sequence[LogTrack], ours: bool) -> None:
        """Read the positions of logs and continue there. ``ours``: this copier wrote to them before."""
        if not self._clusters_checked:
            here, there = self._reader.cluster_id(), self._writer.cluster_id()
            if here == there:
                raise Stop(f"link {self._lease.link} to join two clusters", f"{here} twice", "correct the link")
            self._clusters_checked = True
        self._land()
        self._resume.run(self._meant(tracks), ours)
        self._seek()

    def _beside(self, away: Iterable[LogTrack]) -> None:
        """Read the positions of those logs of which it is time, while others are copied: a server of some logs may be
        down for long."""
        began_s = time.monotonic()
        if due := [track for track in away if track.again_s <= began_s]:
            self._land()
            with suppress(Retry):  # it is the error of these logs
                self._begin(due, ours=True)
            for track in due:
                track.rest(began_s, time.monotonic())

    def _seek(self) -> None:
        """Read from the positions of the copies. Never called while records that were read are pending."""
        self._moved.clear()
        self._reader.seek({track.source: track.reached for track in self._active()})

    def _meant(self, tracks: Sequence[LogTrack]) -> list[LogTrack]:
        """Logs with the intended topics; an error is recorded for the others."""
        here = self._reader.unsure(track.source for track in tracks)
        there = self._writer.unsure(track.lane.target for track in tracks)
        for track in tracks:
            if (wrong := here.get(track.source) or there.get(track.lane.target)) is not None:
                track.miss(wrong)
        return [track for track in tracks if track.source not in here and track.lane.target not in there]

    def _step(self, wait_s: float) -> None:
        """Read the available records and send them, or wait: for a write in flight, else for the obstacle."""
        if self._moved:
            self._land()
            self._seek()
        now = time.monotonic()
        room = self._rate.records(now, BATCH)
        if room < 1:
            self._land()
            time.sleep(min(wait_s, max(0.001, self._rate.wait_s(now))))
            return
        polled = self._reader.poll(room, wait_s if self._flight is None else 0.0)
        reads = {source: read for source, read in polled.items() if self._takes(source)}
        if not reads:
            self._land()
        try:
            self._take(reads)
        except TrueupError as error:
            for source in reads:
                self._lose(self._tracks[source], error)
            raise

    def _takes(self, source: LogId) -> bool:
        track = self._tracks.get(source)
        return track is not None and track.known and not track.stopped and source not in self._moved

    def _take(self, reads: Mapping[LogId, Read]) -> None:
        """Write the records read from the intended topics."""
        failed = {source: read.error for source, read in reads.items() if read.error is not None}
        if failed:
            self._land()
        for source, error in failed.items():
            self._lose(self._tracks[source], error)
        for source, read in reads.items():
            self._tracks[source].see(*read.bounds)
        good = [self._tracks[source] for source in reads if source not in failed]
        for several in _apart(self._meant(good)):
            self._write({track.source: reads[track.source] for track in several})

    def _write(self, reads: Mapping[LogId, Read]) -> None:
        """Write records of logs that all have different targets, after the write in flight. If that one moves the
        position of a log, what was read behind it is left out."""
        while True:
            flight = self._prepared(reads)
            self._land()
            if all(map(self._takes, reads)):
                break
            reads = {source: read for source, read in reads.items() if self._takes(source)}
        for source, read in reads.items():
            self._rate.take(len(read.records.offsets), flight.tagged[source].columns.size)
        self._flight = flight
        flight.send()
        if not flight.targets:
            self._land()

    def _prepared(self, reads: Mapping[LogId, Read]) -> Flight:
        """A write of records, except those that are to be written one by one."""
        tagged = {
            source: self._tagging.many(self._tracks[source].prefix, read.records, read.refused)
            for source, read in reads.items()
        }
        flight = Flight(reads, tagged)
        flight.prepare(
            self._writer,
            {
                self._tracks[source].lane.target: rows.columns
                for source, rows in tagged.items()
                if rows.columns.offsets and self._tracks[source].careful <= 0
            },
        )
        return flight

    def _land(self) -> None:
        """Wait for the results of the write in flight, if there is one, and handle them."""
        if (flight := self._flight) is None:
            return
        self._flight = None
        try:
            self._landed(flight, flight.written())
        except TrueupError as error:
            for source in flight.reads:
                self._lose(self._tracks[source], error)
            raise

    def _landed(self, flight: Flight, written: Mapping[LogId, Written]) -> None:
        for source, read in flight.reads.items():
            track, rows = self._tracks[source], flight.tagged[source]
            if read.records.offsets:
                track.stamp, track.idle = int(read.records.stamps[0]), False
            if track.lane.target in written:
                done = self._took(track, read.records, rows.columns, written[track.lane.target])
            else:
                done = self._one_by_one(track, read.records, rows.columns)
            if done:
                self._settle(track, read, rows)

    def _sent(self, target: LogId, columns: Columns) -> Written:
        """The result of a write to one log."""
        flight = Flight({}, {})
        flight.prepare(self._writer, {target: columns})
        flight.send()
        return flight.written()[target]

    def _one_by_one(self, track: LogTrack, records: Columns, columns: Columns) -> bool:
        for at in range(len(columns.offsets)):
            part = columns.cut(at, at + 1)
            if not self._took(track, records, part, self._sent(track.lane.target, part)):
                return False
            track.careful -= 1
            if time.monotonic() >= self._until_s or not self._keep_going():
                self._moved.add(track.source)
                return False
        return True

    def _took(self, track: LogTrack, records: Columns, sent: Columns, written: Written) -> bool:
        """Process the result of sent records. Returns whether the copy can continue after them."""
        for source, target, count in _runs(sent.offsets, written.offsets):
            gap = track.lane.extend(target + count - 1, count)
            if gap < 0:
                self._lose(track, Retry(f"{track.lane.target} to grow", f"offset {target} again", "its tail is read"))
                return False
            track.counts.foreign += gap
            track.run(source, target, count)
            track.offset = track.reached = source + count
            track.floor = track.lane.next
        done = len(written.offsets)
        track.counts.copied += done
        track.counts.bytes += sent.cut(0, done).size
        if written.refused and (written.alone or len(sent.offsets) == 1):
            at = list(records.offsets).index(sent.offsets[done])
            handled = self._refuse(track, _record(track.source, records, at), written.refused)
            if done + 1 < len(sent.offsets):  # those behind it are read again
                self._moved.add(track.source)
                return False
            return handled
        if written.refused:
            track.careful = len(sent.offsets) - done
            self._lose(track, Retry(f"records accepted by {track.lane.target}", written.refused, "retried one by one"))
        elif written.error is not None:
            self._lose(track, written.error)
        return done == len(sent.offsets)

    def _settle(self, track: LogTrack, read: Read, tagged: Tagged) -> None:
        """Continue after records that are all handled."""
        track.counts.dropped += tagged.dropped
        track.counts.filtered += tagged.filtered
        track.counts.lost += read.lost
        track.counts.foreign_tags += read.foreign_tags
        if tagged.broken:
            at = len(tagged.columns.offsets) + tagged.dropped + tagged.filtered
            self._refuse(track, _record(track.source, read.records, at), tagged.broken)
            self._moved.add(track.source)
            return
        track.offset = track.reached = max(track.offset, read.next)
        if read.place >= 0:
            track.place = read.next, read.place
        track.idle = read.idle

    def _refuse(self, track: LogTrack, record: Record, reason: str) -> bool:
        """Apply the policy to a record. Returns whether the copy continues after it."""
        failure = failure_of(self._lease, track.source, record, reason)
        try:
            problem = self._policy.handle(failure, record, _now_ms())
        except Retry as error:  # the response to a dead letter was lost
            self._lose(track, error)
            return False
        if problem:
            track.stop(problem)
            self._moved.add(track.source)
            return False
        track.counts.dismissed += 1
        track.offset = track.reached = record.offset + 1
        return True

    def _lose(self, track: LogTrack, error: TrueupError) -> None:
        """Record that the fate of sent records is unknown: the target must be read before the next write."""
        track.miss(error)
        track.reached = track.offset
        self._moved.add(track.source)


class Tagging:
    """Creates the rows to write from records, for one lease."""

    def __init__(self, lease: Lease) -> None:
        ends = lease.source, lease.target, lease.forward
        self._lease, self._path = lease, Path(*ends)
        self._again = {held: Path(*ends, held) for held in (True, False)}
        self._tracks = {LogTrack(a, Lane(a.target), lease.writer_id).prefix: a for a in lease.assignments}
        self._transform: Transform | None = None
        if lease.transform:
            self._transform = entry_point(lease.transform, f"links.{lease.link}.transform")

    def many(self, prefix: bytes, records: Columns, refused: str = "") -> Tagged:
        """The rows for records of one log, up to one at which the transform fails. ``refused``: see `ports.Read`."""
        alike = self._transform is None and self._tracks[prefix].refill is None
        if isinstance(records, Native):
            if alike:
                copies = records.tagged(self._path, prefix)
                return Tagged(copies, len(records.offsets) - len(copies.offsets), 0)
            records = records.columns()
        if alike and not refused and _is_new(records):
            return Tagged(_first_copies(records, self._path.source_header, prefix), 0, 0)
        last = len(records.offsets) - 1
        rows, dropped, filtered = list[tuple[int, bytes | None, bytes | None, int, Headers]](), 0, 0
        source, add = self._tracks[prefix].source, rows.append
        for at, (offset, key, value, stamp, given, mark) in enumerate(
            zip(*records, marks(prefix, records.offsets), strict=True)
        ):
            headers = self._of(prefix, offset).tagged(given, mark)
            if headers is None:
                dropped += 1
                continue
            if refused and at == last:
                return Tagged(_columns(rows), dropped, filtered, refused)
            if self._transform is None:
                add((offset, key, value, stamp, headers))
                continue
            record: Record | None = None
            with Attempt() as attempt:
                record = returned(self._transform(_record(source, records, at)))
            if attempt.error:
                problem = f"the transform failed: {attempt.error}"
                return Tagged(_columns(rows), dropped, filtered, problem)
            if record is None:
                filtered += 1
                continue
            ours = {HEADER, mark[0]}
            kept: Headers = [h for h in record.headers if h[0] not in ours]
            kept += (h for h in headers if h[0] in ours)
            add((offset, record.key, record.value, record.timestamp, kept))
        return Tagged(_columns(rows), dropped, filtered)

    def _of(self, prefix: bytes, offset: int) -> Path:
        refill = self._tracks[prefix].refill
        return self._path if refill is None or offset >= refill.until else self._again[offset < refill.held]


class WriterLetters:
    """Implements `connectors.replication.failures.DeadLetterWriter` with a writer, which its owner closes."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def write(self, topic: str, record: Record, headers: Headers) -> str:
        """See `DeadLetterWriter`."""
        logs = self._writer.logs_of(topic)
        if not logs:
            return "the topic does not exist"
        log = logs[crc32(record.key or b"") % len(logs)]
        row = record.offset, record.key, record.value, record.timestamp, headers
        written = self._writer.write({log: _columns([row])})[log]
        if isinstance(written.error, Retry):
            raise written.error
        return written.refused or (str(written.error) if written.error is not None else "")

    def close(self) -> None:
        """No operation: the writer belongs to its owner."""


def _go_on() -> bool:
    return True


def _now_ms() -> int:
    return int(time.time() * 1_000)


def _is_new(records: Columns) -> bool:
    """Whether no link copied any of these records before."""
    return HEADER not in {name for headers in records.headers for name, _ in headers}


def _first_copies(records: Columns, passed: Header, prefix: bytes) -> Columns:
    """The rows to write for such records."""
    own = marks(prefix, records.offsets)
    headers = [[*given, passed, mark] for given, mark in zip(records.headers, own, strict=True)]
    return records._replace(headers=cast("Sequence[Sequence[tuple[str, bytes | None]]]", headers))


def _columns(rows: Sequence[tuple[int, bytes | None, bytes | None, int, Headers]]) -> Columns:
    return Columns(*zip(*rows, strict=True)) if rows else Columns()


def _runs(sources: Sequence[int], targets: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Source offset, target offset and number of written records, for each part without a gap on either side."""
    count, first = min(len(sources), len(targets)), 0
    if count and all(map(_consecutive, (sources[:count], targets[:count]))):
        yield sources[0], targets[0], count
        return
    for at in range(1, count + 1):
        if at == count or sources[at] != sources[at - 1] + 1 or targets[at] != targets[at - 1] + 1:
            yield sources[first], targets[first], at - first
            first = at


def _consecutive(numbers: Sequence[int]) -> bool:
    whole = range(numbers[0], numbers[0] + len(numbers))
    return numbers == whole if isinstance(numbers, range) else list(numbers) == [*whole]


def _record(source: LogId, records: Columns, at: int) -> Record:
    """A row in the form that operators' code receives."""
    records = records.columns()
    return Record(
        source.topic,
        source.number,
        records.offsets[at],
        records.stamps[at],
        records.keys[at],
        records.values[at],
        tuple(records.headers[at]),
    )


def _apart(tracks: Iterable[LogTrack]) -> list[list[LogTrack]]:
    """Groups of tracks without a common target log."""
    groups: list[dict[LogId, LogTrack]] = []
    for track in tracks:
        group = next((group for group in groups if track.lane.target not in group), None)
        if group is None:
            groups.append(group := {})
        group[track.lane.target] = track
    return [list(group.values()) for group in groups]
