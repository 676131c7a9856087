"""A log system in memory that differs from Kafka as far as the ports allow: log numbers are sparse and belong to a
place, ends lag behind acknowledged records, topics have no ids.

`MemoryServer` serves one cluster from a thread of the process that creates it. It keeps its records over `kill` and
`up`, like a replicated store. All other parts connect to it, from any process.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Client, Connection, Listener
from multiprocessing.context import AuthenticationError
from typing import Any, NamedTuple, cast

from tests.conformance.harness import CLUSTERS, TOO_LARGE, Written
from tests.replication.audit import OURS
from trueup.connectors.closing import Closing
from trueup.connectors.contract import Endpoint, Lease, LogId
from trueup.connectors.replication.headers import MARK, mark_of
from trueup.connectors.replication.ports import (
    WITHOUT_MEMBERS,
    Answer,
    Capabilities,
    Columns,
    GroupCommits,
    Log,
    Read,
    Refusals,
    Sample,
    SystemPorts,
    TopicState,
)
from trueup.connectors.replication.ports import Written as Result
from trueup.connectors.replication.pump import Pump
from trueup.connectors.replication.tail import Bounds, CopiedRecord, TailSearch
from trueup.state.common.errors import Retry, Stop, TrueupError
from trueup.state.replication.config_sync import Action, ChangeKind, Right
from trueup.state.replication.provenance import HEADER
from trueup.state.replication.settings import Start
from trueup.streams.replication.clusters import MEDIA, imported

SYSTEM, KEY = "memory", b"tests"
LAG_S = 0.15
_OURS = frozenset({HEADER, MARK})
"""Delay in seconds until an acknowledged record appears in ends and reads."""
TAIL = 100
Headers = Sequence[tuple[str, bytes | None]]


class Row(NamedTuple):
    """A record. ``at_s``: time of the acknowledgement, on the monotonic clock; ``linked``: a link wrote it."""

    key: bytes | None
    value: bytes | None
    stamp: int
    headers: Headers
    at_s: float
    linked: bool = False


def log_name(topic: str, index: int) -> LogId:
    """The log at this index of a topic. Three places alternate, and the numbers have gaps."""
    return LogId(topic, 7 + 1_000 * index, f"store-{index % 3}")


class MemoryServer:
    """One cluster. ``address``: a port on loopback."""

    def __init__(self, name: str) -> None:
        self.name, self.id = name, f"memory-{name}"
        self._topics: dict[str, dict[LogId, list[Row]]] = {}
        self._most: dict[str, int] = {}
        self._groups: dict[str, dict[LogId, tuple[int, int]]] = {}
        self._lock, self._open = threading.RLock(), set[Connection]()
        self._listener: Listener | None = Listener(("127.0.0.1", 0), authkey=KEY)
        self.port = int(self._listener.address[1])
        self._serve(self._listener)

    def up(self) -> None:
        """Listen again on the same port."""
        self._listener = Listener(("127.0.0.1", self.port), authkey=KEY)
        self._serve(self._listener)

    def kill(self) -> None:
        """Close every connection, including those with requests in progress."""
        with self._lock:
            listener, self._listener = self._listener, None
            if listener is not None:
                with suppress(OSError):  # wakes the thread that waits for the next connection
                    Client(("127.0.0.1", self.port), authkey=KEY).close()
                listener.close()
            for connection in self._open:
                connection.close()
            self._open.clear()

    def _serve(self, listener: Listener) -> None:
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def _accept(self, listener: Listener) -> None:
        while self._listener is listener:
            try:
                connection = listener.accept()
            except (OSError, EOFError, AuthenticationError):
                continue
            with self._lock:
                self._open.add(connection)
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: Connection) -> None:
        with suppress(OSError, EOFError, TypeError):  # TypeError: another thread closed the connection during a call
            while True:
                what, given = connection.recv()
                with self._lock:
                    if connection not in self._open:
                        return
                    answer = self.ask(what, *given)
                connection.send(answer)

    def ask(self, what: str, *given: object) -> Any:
        """The response to a request without a connection. Also works while the server is killed."""
        with self._lock:
            return getattr(self, f"do_{what}")(*given)

    def do_all(self, log: LogId) -> list[Row]:
        """All acknowledged records."""
        return list(self._rows(log) or [])

    def do_id(self) -> str:
        return self.id

    def do_names(self) -> list[str]:
        return sorted(self._topics)

    def do_create(self, topic: str, logs: int, most: int) -> None:
        held = self._topics.setdefault(topic, {})
        for index in range(logs):
            held.setdefault(log_name(topic, index), [])
        self._most[topic] = most

    def do_delete(self, topic: str) -> None:
        self._topics.pop(topic, None)

    def do_logs(self, topic: str) -> list[LogId]:
        return sorted(self._topics.get(topic, {}))

    def do_ends(self, logs: Sequence[LogId]) -> list[tuple[int, int] | None]:
        """Visible start and end of each log. None if the log does not exist."""
        return [(0, len(self._shown(log))) if self._rows(log) is not None else None for log in logs]

    def do_count(self, log: LogId) -> int:
        """Number of acknowledged records."""
        return len(self._rows(log) or [])

    def do_read(self, log: LogId, offset: int, most: int) -> list[Row] | None:
        shown = self._shown(log)
        return None if self._rows(log) is None or offset > len(self._rows(log) or []) else shown[offset : offset + most]

    def do_write(self, log: LogId, rows: Sequence[Row]) -> tuple[list[int], str]:
        """Offsets of the accepted records, and the reason why the next record was rejected."""
        held, offsets = self._rows(log), list[int]()
        if held is None:
            return [], f"there is no log {log}"
        for row in rows:
            if len(row.value or b"") > self._most[log.topic]:
                return offsets, f"the value has more than {self._most[log.topic]} bytes"
            offsets.append(len(held))
            held.append(row._replace(at_s=time.monotonic()))
        return offsets, ""

    def do_commit(self, group: str, offsets: Mapping[LogId, tuple[int, int]]) -> None:
        self._groups.setdefault(group, {}).update(offsets)

    def do_groups(self) -> dict[str, dict[LogId, tuple[int, int]]]:
        return {name: dict(offsets) for name, offsets in self._groups.items()}

    def _rows(self, log: LogId) -> list[Row] | None:
        return self._topics.get(log.topic, {}).get(log)

    def _shown(self, log: LogId) -> list[Row]:
        rows, seen_s = self._rows(log) or [], time.monotonic() - LAG_S
        end = next((at for at in range(len(rows), 0, -1) if rows[at - 1].at_s <= seen_s), 0)
        return rows[:end]


class MemoryLink:
    """Requests of one client. Raises `Retry` if the cluster does not respond."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._lock = threading.Lock()
        self._connection: Connection | None = None

    def call(self, what: str, *given: object) -> Any:
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = Client(("127.0.0.1", int(self.endpoint.address)), authkey=KEY)
                self._connection.send((what, given))
                return self._connection.recv()
            except (OSError, EOFError, AuthenticationError) as error:
                self._drop()
                raise Retry(f"{self.endpoint.name} to answer", repr(error), "it is asked again") from error

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            with suppress(OSError):
                self._connection.close()
            self._connection = None


class MemoryEnd(Closing):
    """Common part of the reader, the writer and the admin."""

    lag_s = LAG_S

    def __init__(self, endpoint: Endpoint) -> None:
        self.link = MemoryLink(endpoint)

    def cluster_id(self) -> str:
        return str(self.link.call("id"))

    def bounds(self, logs: Iterable[LogId]) -> dict[LogId, Bounds | TrueupError]:
        asked = list(logs)
        return {
            log: Bounds(*ends) if ends is not None else Stop(f"{log} to be there", "no such log", "make it")
            for log, ends in zip(asked, self.link.call("ends", asked), strict=True)
        }

    def unsure(self, logs: Iterable[LogId]) -> dict[LogId, TrueupError]:
        """Empty, because topics have no ids."""
        del logs
        return {}

    def close(self) -> None:
        self.link.close()


class MemoryReader(MemoryEnd):
    """Implements `connectors.replication.ports.Reader`."""

    def __init__(self, lease: Lease) -> None:
        super().__init__(lease.source)
        self._places: dict[LogId, int] = {}

    def seek(self, places: Mapping[LogId, int]) -> None:
        self._places = dict(places)

    def poll(self, most: int, wait_s: float) -> dict[LogId, Read]:
        until_s = time.monotonic() + wait_s
        each = max(1, most // max(1, len(self._places)))
        while True:
            found = {log: self._read(log, offset, each) for log, offset in self._places.items()}
            self._places.update({log: read.next for log, read in found.items() if read.error is None})
            if time.monotonic() >= until_s or any(r.records.offsets or r.error or r.lost for r in found.values()):
                return found
            time.sleep(0.01)

    def _read(self, log: LogId, offset: int, most: int) -> Read:
        rows = self.link.call("read", log, offset, most)
        if rows is None:
            return Read(Columns(), offset, error=Retry(f"{log} from {offset} on", "another log", "it is looked at"))
        bounds = Bounds(*self.link.call("ends", [log])[0])
        foreign = sum(not row.linked and not _OURS.isdisjoint(dict(row.headers)) for row in rows)
        idle = len(rows) < most
        return Read(_columns(offset, rows), offset + len(rows), idle=idle, bounds=bounds, foreign_tags=foreign)


class CompletedWrite:
    """A write of a system that sends and waits in one call."""

    def __init__(self, write: Callable[[], Mapping[LogId, Result]]) -> None:
        self._write = write
        self._written: Mapping[LogId, Result] = {}

    def send(self) -> None:
        self._written = self._write()

    def written(self) -> Mapping[LogId, Result]:
        return self._written


class MemoryWriter(MemoryEnd):
    """Implements `connectors.replication.ports.Writer`."""

    def __init__(self, lease: Lease) -> None:
        super().__init__(lease.target)

    def write(self, batches: Mapping[LogId, Columns]) -> dict[LogId, Result]:
        found: dict[LogId, Result] = {}
        for log, given in batches.items():
            columns = given.columns()
            rows = [
                Row(*row, 0.0, True)
                for row in zip(columns.keys, columns.values, columns.stamps, columns.headers, strict=True)
            ]
            try:
                offsets, refused = self.link.call("write", log, rows)
                found[log] = Result(offsets, refused)
            except Retry as error:
                found[log] = Result((), error=error)
        return found

    def prepare(self, batches: Mapping[LogId, Columns]) -> CompletedWrite:
        return CompletedWrite(partial(self.write, batches))

    def tails(self) -> "MemoryTails":
        return MemoryTails(self.link)

    def logs_of(self, topic: str) -> list[LogId]:
        return cast("list[LogId]", self.link.call("logs", topic))


class MemoryTails:
    """Implements `connectors.replication.tail.Tails`."""

    def __init__(self, link: MemoryLink) -> None:
        self._link = link

    def run(self, searches: Mapping[LogId, TailSearch]) -> dict[LogId, TrueupError]:
        for log, search in searches.items():
            while (span := search.span()) is not None:
                rows = self._link.call("read", log, span[0], span[1] - span[0]) or []
                marks = ((mark_of(list(row.headers)), at) for at, row in enumerate(rows, span[0]) if row.linked)
                search.read(span[0], [(mark[0], CopiedRecord(mark[1], at)) for mark, at in marks if mark is not None])
        return {}


class MemoryAdmin(MemoryEnd):
    """Implements `connectors.replication.ports.ClusterAdmin`."""

    can = Capabilities(topic_ids=False, ends_lag_s=LAG_S, configs=False, rights=False)

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.endpoint = endpoint

    def names(self) -> list[str]:
        return cast("list[str]", self.link.call("names"))

    def topics(self, names: Iterable[str], configs: bool = True) -> dict[str, TopicState]:
        del configs
        there = set(self.names())
        return {name: TopicState(name, tuple(self.link.call("logs", name))) for name in {*names} & there}

    def logs(self, logs: Iterable[LogId], committed_only: bool = True) -> dict[LogId, Log]:
        del committed_only
        return {
            log: Log(error=str(ends)) if isinstance(ends, TrueupError) else Log(*ends)
            for log, ends in self.bounds(logs).items()
        }

    def starts(self, logs: Iterable[LogId], start: Start) -> dict[LogId, int | TrueupError]:
        if start.kind not in ("earliest", "latest"):
            raise Stop(f"{self.endpoint.name} to find a {start.kind}", "that it cannot", "give earliest or latest")
        return {
            log: ends if isinstance(ends, TrueupError) else ends[start.kind == "latest"]
            for log, ends in self.bounds(logs).items()
        }

    def sizes(self, logs: Iterable[LogId]) -> dict[LogId, int]:
        del logs
        return {}

    def known_settings(self) -> frozenset[str]:
        return frozenset()

    def group_configs(self, groups: Collection[str]) -> dict[str, list[dict[str, str]]]:
        del groups
        return {}

    def rights(self) -> list[Right]:
        raise Stop(f"{self.endpoint.name} to tell its rights", "that it has none", "leave acls out of align")

    def apply(self, kind: ChangeKind, actions: Sequence[Action]) -> list[TrueupError | None]:
        if kind not in (ChangeKind.CREATE, ChangeKind.GROW):
            refused = Stop(f"{self.endpoint.name} to do this", "that it cannot", "leave it out of align")
            return [refused for _ in actions]
        for action in actions:
            self.link.call("create", action.topic, action.partitions, 1 << 30)
        return [None for _ in actions]

    def groups(self) -> "MemoryGroups":
        return MemoryGroups(self.link)

    def heartbeats(self, topic: str) -> "MemoryHeartbeats":
        return MemoryHeartbeats(self.link, topic)

    def sample(self, logs: Sequence[LogId]) -> Sample:
        del logs
        return Sample()

    def notes(self, heartbeat_topic: str) -> list[str]:
        return []

    def problems(self) -> list[str]:
        return []


class MemoryGroups:
    """Implements `connectors.replication.ports.GroupOffsets`. Groups have no members."""

    def __init__(self, link: MemoryLink) -> None:
        self._link, self.bit = link, link.endpoint.bit

    def states(self) -> dict[str, str]:
        return dict.fromkeys(self._link.call("groups"), WITHOUT_MEMBERS[1])

    def offsets(self, groups: Sequence[str]) -> dict[str, Answer]:
        answers, found = self._link.call("groups"), dict[str, Answer]()
        for group in groups:
            commits = answers.get(group, {})
            offsets, paths = ({log: commit[at] for log, commit in commits.items()} for at in (0, 1))
            found[group] = GroupCommits(offsets, paths)
        return found

    def ids(self, topics: Iterable[str]) -> dict[str, str]:
        return dict.fromkeys({*topics} & {*self._link.call("names")}, "")

    def settings(self, groups: Sequence[str]) -> dict[str, Mapping[str, object]]:
        return {}

    def create(self, groups: Mapping[str, Mapping[str, object]]) -> None:
        """Does nothing: a commit creates a group."""

    def commit(self, offsets: Mapping[str, GroupCommits]) -> dict[str, Refusals]:
        for group, places in offsets.items():
            self._link.call("commit", group, {log: (at, places.paths.get(log, 0)) for log, at in places.items()})
        return {group: dict.fromkeys(places, "") for group, places in offsets.items()}


class MemoryHeartbeats:
    """Implements `connectors.replication.ports.HeartbeatLog`."""

    def __init__(self, link: MemoryLink, topic: str) -> None:
        self._link, self._topic, self._log = link, topic, log_name(topic, 0)
        self.error, self.written_ms, self._at, self._ready = "", 0, 0, False

    def prepare(self) -> None:
        with self._error_kept():
            if not self._ready:
                self._link.call("create", self._topic, 1, 1 << 30)
                self._at, self._ready = max(0, self._link.call("count", self._log) - TAIL), True

    def write(self, key: bytes, sent_ms: int) -> None:
        with self._error_kept():
            self._link.call("write", self._log, [Row(key, str(sent_ms).encode(), sent_ms, (), 0.0)])
            self.written_ms = max(self.written_ms, sent_ms)

    def read(self, key: bytes) -> list[int]:
        time.sleep(0.01)
        with self._error_kept():
            rows = self._link.call("read", self._log, self._at, TAIL) or []
            self._at += len(rows)
            return [int(row.value) for row in rows if row.key == key]
        return []

    @contextmanager
    def _error_kept(self) -> Iterator[None]:
        try:
            yield
            self.error = ""
        except Retry as error:
            self.error = str(error)

    def close(self) -> None:
        self._link.close()


def _columns(offset: int, rows: Sequence[Row]) -> Columns:
    return Columns(
        range(offset, offset + len(rows)),
        [row.key for row in rows],
        [row.value for row in rows],
        [row.stamp for row in rows],
        [_believed(row) for row in rows],
    )


def _believed(row: Row) -> Sequence[tuple[str, bytes | None]]:
    """The headers of a record, without the header of its path if no link wrote it."""
    kept = [header for header in row.headers if header[0] not in _OURS]
    return kept + [header for header in row.headers if header[0] == HEADER and row.linked]


def pump() -> Pump:
    """The generic connector, which also supports this system."""
    ours = SystemPorts(MemoryReader, MemoryWriter)
    return Pump(lambda system: ours if system == SYSTEM else imported(MEDIA[system]))


class MemoryCluster:
    """Implements `tests.conformance.harness.Cluster`."""

    def __init__(self, name: str) -> None:
        self._name, self._server = name, MemoryServer(name)
        self.kill, self.up = self._server.kill, self._server.up

    def endpoint(self) -> Endpoint:
        return Endpoint(self._name, str(self._server.port), CLUSTERS[self._name], system=SYSTEM)

    def log(self, topic: str, index: int) -> LogId:
        return log_name(topic, index)

    def create(self, topic: str, logs: int, narrow: bool = False) -> None:
        self._server.ask("create", topic, logs, TOO_LARGE // 2 if narrow else 1 << 30)

    def write(self, topic: str, records: Mapping[int, Sequence[Written]]) -> None:
        for index, some in records.items():
            rows = [Row(*record, 0.0) for record in some]
            offsets, refused = self._server.ask("write", log_name(topic, index), rows)
            assert (len(offsets), refused) == (len(rows), "")

    def read(self, topic: str, index: int) -> list[tuple[int, Written]]:
        rows: list[Row] = self._server.ask("all", log_name(topic, index))
        return [
            (at, Written(*row[:3], tuple(h for h in row.headers if not h[0].startswith(OURS))))
            for at, row in enumerate(rows)
        ]

    def end(self, log: LogId) -> int:
        return int(self._server.ask("count", log))

    def remake(self, topic: str) -> None:
        self._server.ask("delete", topic)
        self.create(topic, 1)
