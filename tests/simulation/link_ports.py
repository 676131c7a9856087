"""The ports of replication over the simulated log clusters, with faults: requests and responses are lost, workers are
killed, and what a dead sender sent arrives later."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.simulation.faults import Crash, Faults
from tests.simulation.logs import LogCluster, LogClusters, StoredLog, StoredRecord, StoredTopic
from trueup.connectors.closing import Closing
from trueup.connectors.contract import Endpoint, Lease, LogId
from trueup.connectors.replication.headers import MARK, mark_of
from trueup.connectors.replication.ports import Columns, GroupCommits, Read, SystemPorts, Written
from trueup.connectors.replication.resume import LATE_S
from trueup.connectors.replication.tail import Bounds, CopiedRecord, TailSearch
from trueup.state.common.errors import Retry, Stop, TrueupError
from trueup.state.replication.provenance import HEADER

SLOW_S = 0.4
"""The time of a poll without records, which is longer than asked for: idle leases have few polls."""
MOST = 6
LOST = Retry("a response", "none", "ask again")
Row = tuple[bytes | None, bytes, int, tuple[tuple[str, bytes | None], ...]]


class WorkerKilled(BaseException):
    """The process of a worker ends here."""


class Watching(Protocol):
    """What the ports report to the checkers."""

    def wrote(self, worker: "WorkerPorts", lease: Lease, topic: StoredTopic, log: LogId, rows: Sequence[Any]) -> None:
        """A link appends these records to a log of its target."""

    def lost(self, ports: "WorkerPorts", answer: Any) -> None:
        """A worker returns a result."""

    def delayed(self, lease: Lease, rows: Sequence[Any]) -> None:
        """These records may arrive after their sender died."""

    def group_set(self, link: str, cluster: LogCluster, group: str, offsets: GroupCommits) -> None:
        """A link is about to set the offsets of a group."""


@dataclass
class WorkerPorts:
    """The ports of one process. ``stray``: whether this process is dead for its driver; what it sends arrives within
    ``stray`` seconds, and nobody receives the response."""

    clusters: LogClusters
    faults: Faults
    checkers: Watching
    epoch: int | None = 0
    kills: float = 0.0
    stray: float = 0.0
    trusting: bool = False
    """Whether readers believe the headers of every record: a planted defect."""
    lost: dict[LogId, set[int]] = field(default_factory=dict)
    """The offsets that this process skipped because the source had deleted them, by log."""
    told: dict[LogId, int] = field(default_factory=dict)
    """The number of such offsets that this process reported, by log."""
    ended: BaseException | None = None
    """Why this process ended; it makes no request any more, also where its code cleans up."""

    def seam(self, acts: bool = False) -> None:
        """Called between two steps; the process may end here."""
        if self.ended is not None:
            raise self.ended
        try:
            self.faults.seam(acts)
        except Crash as crash:
            self.ended = crash
            raise

    def kill(self) -> None:
        """The process ends."""
        self.ended = WorkerKilled()
        raise self.ended

    def medium(self, system: str) -> SystemPorts:
        """Reader and writer of a system."""
        del system
        return SystemPorts(lambda lease: LogReader(self, lease), lambda lease: LogWriter(self, lease))

    def called(self, cluster: LogCluster) -> None:
        """A request to a cluster."""
        self.seam()
        if cluster.down:
            raise Retry(f"{cluster.name} to respond", "connection refused", "it is asked again")
        if self.faults.happens(0.02):
            raise LOST
        if self.faults.happens(self.kills * 0.1):
            self.kill()


class LogEnd(Closing):
    """The common part of the reader and the writer of a lease. ``meant``: the id of each topic."""

    def __init__(self, ports: WorkerPorts, endpoint: Endpoint, meant: Mapping[str, str]) -> None:
        self.ports, self.endpoint = ports, endpoint
        self.cluster = ports.clusters.by_name[endpoint.name]
        self.lag_s = self.cluster.can.ends_lag_s
        there = self.cluster.topics
        self._meant = {name: given or (there[name].id if name in there else "") for name, given in meant.items()}

    def cluster_id(self) -> str:
        return self.cluster.name

    def shown(self, log: StoredLog) -> Bounds:
        return Bounds(log.start, log.shown(int(self.ports.clusters.time_ms) - self.cluster.lag_ms))

    def bounds(self, logs: Iterable[LogId]) -> dict[LogId, Bounds | TrueupError]:
        self.ports.called(self.cluster)
        return {log: self._bounds(log) for log in logs}

    def _bounds(self, log: LogId) -> Bounds | TrueupError:
        if (wrong := self.wrong(log)) is not None:
            return wrong
        held = self.cluster.log(log)
        assert held is not None, "it is not wrong"
        return self.shown(held)

    def wrong(self, log: LogId) -> TrueupError | None:
        """Why a log cannot be used."""
        topic = self.cluster.topics.get(log.topic)
        if log.topic in self.cluster.hidden:
            return Stop(f"rights to {log.topic}", "none", "grant them")
        if topic is None or log not in topic.logs:
            return Stop(f"{log} in {self.cluster.name}", "no such log", "create it")
        if topic.id != (self._meant.get(log.topic) or topic.id):
            return Stop(f"the topic {log.topic} with its id", "another one", "reset the link")
        return None

    def unsure(self, logs: Iterable[LogId]) -> dict[LogId, TrueupError]:
        self.ports.seam()
        if not self.cluster.can.topic_ids:
            return {}
        if self.cluster.down:
            return dict.fromkeys(logs, LOST)
        return {log: error for log in logs if (error := self.wrong(log)) is not None}

    def close(self) -> None:
        """Nothing to close."""


class LogReader(LogEnd):
    """Implements `connectors.replication.ports.Reader`."""

    def __init__(self, ports: WorkerPorts, lease: Lease) -> None:
        super().__init__(ports, lease.source, {a.source.topic: a.source_id for a in lease.assignments})
        self._places: dict[LogId, int] = {}

    def seek(self, places: Mapping[LogId, int]) -> None:
        self._places = dict(places)

    def poll(self, most: int, wait_s: float) -> dict[LogId, Read]:
        del most
        self.ports.seam()
        if self.ports.faults.happens(self.ports.kills * 0.1):
            self.ports.kill()
        found = {log: self._read(log, at) for log, at in sorted(self._places.items())}
        self._places.update({log: read.next for log, read in found.items() if read.error is None})
        if not any(read.records.offsets or read.lost for read in found.values()):
            self.ports.clusters.elapse(SLOW_S if wait_s else 0.0)
        return found

    def _read(self, log: LogId, at: int) -> Read:
        if self.cluster.down or self.ports.faults.happens(0.02):
            return Read(Columns(), at, error=LOST)
        if (wrong := self.wrong(log)) is not None:
            return Read(Columns(), at, error=wrong)
        held = self.cluster.log(log)
        assert held is not None, "it is not wrong"
        if at < held.end and self.ports.faults.happens(0.1):
            self.ports.clusters.retain(self.cluster, held)
        start, end = self.shown(held)
        if at > end:
            return Read(Columns(), at, error=Retry(f"{log} from {at} on", f"that it ends at {end}", "look"))
        if at < start:
            self.ports.lost.setdefault(log, set()).update(range(at, start))
            return Read(Columns(), start, lost=start - at, bounds=Bounds(start, end))
        rows = [row for row in held.records(at) if row[0] < end][: self.ports.faults.rng.randint(1, MOST)]
        following = rows[-1][0] + 1 if rows else end
        foreign = sum(not row.link and row.tagged for _, row in rows)
        return Read(
            self._columns(rows), following, idle=following == end, bounds=Bounds(start, end), foreign_tags=foreign
        )

    def _columns(self, rows: Sequence[tuple[int, StoredRecord]]) -> Columns:
        return Columns(
            [at for at, _ in rows],
            [row.key for _, row in rows],
            [row.value for _, row in rows],
            [row.stamp for _, row in rows],
            [self._believed(row) for _, row in rows],
        )

    def _believed(self, row: StoredRecord) -> list[tuple[str, bytes | None]]:
        """The headers without those of Trueup, except the path of a record that a link wrote."""
        believed = bool(row.link) or self.ports.trusting
        return [header for header in row.headers if header[0] != MARK and (believed or header[0] != HEADER)]


class LogWriter(LogEnd):
    """Implements `connectors.replication.ports.Writer`."""

    def __init__(self, ports: WorkerPorts, lease: Lease) -> None:
        super().__init__(ports, lease.target, {a.target.topic: a.target_id for a in lease.assignments})
        self.lease = lease

    def write(self, batches: Mapping[LogId, Columns]) -> Mapping[LogId, Written]:
        write = self.prepare(batches)
        write.send()
        return write.written()

    def prepare(self, batches: Mapping[LogId, Columns]) -> "LogWrite":
        return LogWrite(self, batches)

    def tails(self) -> "LogTails":
        return LogTails(self)

    def logs_of(self, topic: str) -> Sequence[LogId]:
        self.ports.called(self.cluster)
        held = self.cluster.topics.get(topic)
        return sorted(held.logs) if held is not None else []

    def append(self, topic: StoredTopic, log: LogId, rows: Sequence[Row]) -> list[int]:
        """The cluster appends records. Returns their offsets."""
        if not rows:
            return []
        self.ports.checkers.wrote(self.ports, self.lease, topic, log, rows)
        now_ms = int(self.ports.clusters.time_ms)
        return [
            topic.append(
                log, StoredRecord(row[1].split()[0].decode(), row[0], row[1], row[2], row[3], now_ms, self.lease.link)
            )
            for row in rows
        ]

    def late(self, topic: StoredTopic, log: LogId, rows: Sequence[Row]) -> None:
        """Records of a sender that does not receive the response arrive, unless the topic was replaced."""
        there = self.cluster.topics.get(topic.name)
        if there is topic or (there is not None and not topic.id and log in there.logs):
            self.append(there, log, rows)

    def delay(self, topic: StoredTopic, log: LogId, rows: Sequence[Row]) -> None:
        """These records arrive later."""
        if rows:
            self.ports.checkers.delayed(self.lease, rows)
            within_s = max(LATE_S, self.ports.stray) * self.ports.faults.rng.random()
            self.ports.clusters.delay(within_s, lambda: self.late(topic, log, rows))


class LogWrite:
    """Implements `connectors.replication.ports.Write`. What happens to the records is decided when they are sent."""

    def __init__(self, writer: LogWriter, batches: Mapping[LogId, Columns]) -> None:
        self._writer, self._ports = writer, writer.ports
        self._batches = {log: columns.columns() for log, columns in batches.items()}
        self._written: dict[LogId, Written] = {}

    def send(self) -> None:
        self._ports.seam(acts=True)
        for log, columns in sorted(self._batches.items()):
            rows: list[Row] = [
                (key, value or b"", stamp, tuple(headers))
                for key, value, stamp, headers in zip(
                    columns.keys, columns.values, columns.stamps, columns.headers, strict=True
                )
            ]
            self._written[log] = self._sent(log, rows)
        self._ports.seam()

    def written(self) -> Mapping[LogId, Written]:
        self._ports.seam()
        return self._written

    def _sent(self, log: LogId, rows: list[Row]) -> Written:
        writer, faults = self._writer, self._ports.faults
        if writer.cluster.down:
            return Written((), error=LOST)
        if (wrong := writer.wrong(log)) is not None:
            return Written((), error=wrong)
        topic = writer.cluster.topics[log.topic]
        fits = next((at for at, row in enumerate(rows) if len(row[1]) > topic.limit), len(rows))
        part = rows[: faults.rng.randint(0, fits)]
        if self._ports.stray:
            writer.delay(topic, log, rows[:fits])
            self._ports.kill()
        if faults.happens(self._ports.kills):
            if faults.happens(0.5):
                writer.append(topic, log, part)
            else:
                writer.delay(topic, log, part)
            self._ports.kill()
        if faults.happens(faults.unknown * 0.3):
            if faults.happens(0.5):
                writer.append(topic, log, part)
            else:
                writer.delay(topic, log, part)
            return Written((), error=LOST)
        if len(rows) > 1 and faults.happens(0.03):
            return Written((), refused="too large together")
        offsets = writer.append(topic, log, rows[:fits])
        refused = f"the value has more than {topic.limit} bytes" if fits < len(rows) else ""
        return Written(offsets, refused, alone=bool(refused))


class LogTails:
    """Implements `connectors.replication.tail.Tails`."""

    def __init__(self, writer: LogWriter) -> None:
        self._writer = writer

    def run(self, searches: Mapping[LogId, TailSearch]) -> dict[LogId, TrueupError]:
        self._writer.ports.called(self._writer.cluster)
        failed = dict[LogId, TrueupError]()
        for log, search in searches.items():
            held = self._writer.cluster.log(log)
            if held is None:
                failed[log] = Stop(f"{log} to be there", "no such log", "create it")
                continue
            while (span := search.span()) is not None:
                rows = [(at, row) for at, row in held.records(span[0]) if at < span[1] and row.link]
                marks = [(mark_of(list(row.headers)), at) for at, row in rows]
                search.read(span[0], [(mark[0], CopiedRecord(mark[1], at)) for mark, at in marks if mark is not None])
        return failed
