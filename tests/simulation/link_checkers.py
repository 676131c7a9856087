"""Checks what links do, apart from the code under test: records, positions, groups, and the answers of the API."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tests.simulation.checkers import Violation
from tests.simulation.journal import JournalLog
from tests.simulation.link_ports import Row, WorkerPorts
from tests.simulation.logs import LogCluster, LogClusters, StoredRecord, StoredTopic
from trueup.connectors.contract import Lease, LogId
from trueup.connectors.replication.headers import mark_of, prefix_of
from trueup.connectors.replication.ports import GroupCommits
from trueup.state.common.patterns import matches
from trueup.state.replication.provenance import HEADER, path_with, tokens_of
from trueup.streams.replication.links.link import Link
from trueup.streams.replication.links.worker import ALONE_S, LeaseOrder, LeaseResult
from trueup.streams.replication.topics import LINKS

if TYPE_CHECKING:
    from tests.simulation.linking import Links

Place = tuple[str, LogId]
"""A link and a log of its source."""


def identity_of(row: Row) -> str:
    """The identity of a record by its value."""
    return row[1].split()[0].decode()


class LinkCheckers:
    """The checks of one run. ``settings``: the links as the file declares them, with all keys."""

    def __init__(self, clusters: LogClusters, journal: JournalLog, settings: Mapping[str, Mapping[str, Any]]) -> None:
        self.clusters, self.journal, self._file = clusters, journal, settings
        self._overlay: dict[str, Any] = {}
        self._read = 0
        self.positions: dict[Place, Mapping[str, Any]] = {}
        self._skipped: dict[tuple[str, LogId, int], int] = {}
        """The source offset below which an operator or the setting ``start`` decided to copy nothing, by link, log and
        number of its topic."""
        self.again: dict[str, set[str]] = defaultdict(set)
        """The identities that a link may write a second time."""
        self.disordered = set[str]()
        self.refills = set[str]()
        self.letters: dict[str, set[str]] = defaultdict(set)
        self._newest: dict[tuple[str, LogId, int, int], int] = {}
        """The newest source offset that was written, by link, source log, and the numbers of both topics."""
        self._written = set[tuple[str, LogId, int, int, int]]()
        """The same for every offset that was written."""
        self._granted_ms: dict[str, float] = {}
        self._begun_ms: dict[str, float] = {}
        self._reported_ms: dict[Place, float] = {}
        self._epoch, self._epoch_ms = 0, 0.0
        self._prefixes: dict[tuple[int, LogId], bytes] = {}
        self.copied = 0

    def note(self, text: str) -> None:
        """Add a line to the log of the run."""
        self.clusters.world.note(text)

    def fail(self, text: str) -> None:
        """Raise a violation."""
        raise Violation(text)

    # Settings

    def config(self, name: str, value: Any) -> None:
        """A live key was set, or restored with None."""
        self._overlay[name] = value
        if value is None:
            del self._overlay[name]

    def setting(self, link: str, key: str) -> Any:
        """A setting of a link that is in force."""
        return self._overlay.get(f"links.{link}.{key}", self._file[link][key])

    def permitted(self, link: str, topic: str) -> bool:
        """Whether a link may copy a topic now."""
        stopped = self.setting(link, "mode") == "observe" or self.setting(link, "paused")
        return not stopped and self.includes(link, topic) and not matches(self.setting(link, "paused_topics"), topic)

    def includes(self, link: str, topic: str) -> bool:
        """Whether a topic belongs to a link."""
        return matches(self.setting(link, "topics"), topic) and not matches(self.setting(link, "exclude"), topic)

    def source(self, link: str) -> LogCluster:
        """The source cluster of a link."""
        return self.clusters.by_name[self._file[link]["source"]]

    def target(self, link: str) -> LogCluster:
        """The target cluster of a link."""
        return self.clusters.by_name[self._file[link]["target"]]

    # Processes

    def started(self, links: "Links") -> None:
        """A process began to lead."""
        if links.ports.epoch != self._epoch:
            self._epoch, self._epoch_ms = links.ports.epoch, self.clusters.time_ms

    def leased(self, link: Link, orders: Sequence[LeaseOrder]) -> None:
        """A round begins."""
        for order in orders:
            if order.last:
                continue
            self._begun_ms[link.name] = self.clusters.time_ms
            if all(self.permitted(link.name, each.source.topic) for each in order.lease.assignments):
                self._granted_ms[link.name] = self.clusters.time_ms + order.lease_s * 1000

    def answered(self, link: Link, orders: Sequence[LeaseOrder], answers: Sequence[LeaseResult]) -> None:
        """A round ended."""
        reported = {p.source: p for answer in answers if answer.error is None for p in answer.progress}
        for source, progress in reported.items():
            if not progress.error:
                self._reported_ms[link.name, source] = self._begun_ms.get(link.name, 0.0)
        if any(order.last for order in orders):
            return
        if link.name in self._granted_ms and self._granted_ms[link.name] > self._begun_ms[link.name]:
            self._granted_ms[link.name] = max(self._granted_ms[link.name], self.clusters.time_ms)

    def lost(self, ports: WorkerPorts, answer: LeaseResult) -> None:
        """The result of a worker reports every offset that the source deleted before the worker read it."""
        for progress in answer.progress:
            ports.told[progress.source] = ports.told.get(progress.source, 0) + progress.lost
        for log, offsets in ports.lost.items():
            at = max((p.position.offset for p in answer.progress if p.source == log), default=-1)
            passed = sum(offset < at for offset in offsets)
            if passed > ports.told.get(log, 0):
                self.fail(f"{passed} offsets of {log} were deleted before they were read; told: {ports.told.get(log)}")

    # Records

    def wrote(self, worker: WorkerPorts, lease: Lease, topic: StoredTopic, log: LogId, rows: Sequence[Row]) -> None:
        """A link appends these records to a log of its target."""
        link = lease.link
        if topic.name not in {each.target.topic for each in lease.assignments}:
            self.letters[link] |= {identity_of(row) for row in rows}
            return
        self.scan()
        self._in_charge(worker, lease, topic.name)
        sources = {self._prefix(lease.writer_id, each.source): each.source for each in lease.assignments}
        for row in rows:
            mark = mark_of(list(row[3]))
            if mark is None or mark[0] not in sources:
                self.fail(f"{link} writes {identity_of(row)} without the mark of one of its sources")
            else:
                self._record(link, topic, sources[mark[0]], mark[1], identity_of(row))

    def _prefix(self, writer_id: int, source: LogId) -> bytes:
        key = writer_id, source
        if key not in self._prefixes:
            self._prefixes[key] = prefix_of(writer_id, source)
        return self._prefixes[key]

    def _in_charge(self, worker: WorkerPorts, lease: Lease, topic: str) -> None:
        """Only the leader writes, while the settings let it."""
        now_ms = self.clusters.time_ms
        limit_ms = ALONE_S * 1000
        if (
            worker.epoch < self._epoch
            and now_ms > self._epoch_ms + limit_ms + self.setting(lease.link, "lease_s") * 1000
        ):
            self.fail(f"{lease.link}: a process writes that does not lead since {now_ms - self._epoch_ms} ms")
        if not self.permitted(lease.link, topic) and now_ms > self._granted_ms.get(lease.link, 0.0) + limit_ms:
            why = "observe, paused, or without this topic"
            self.fail(f"{lease.link} writes to {topic} although it is in mode {why}")

    def _record(self, link: str, topic: StoredTopic, source: LogId, offset: int, identity: str) -> None:
        if (link, source) not in self.positions:
            self.fail(f"{link} writes {identity} of {source}, whose first offset is not in the journal")
        target = self.target(link)
        known = topic.arrived.get(identity)
        refilled = link in self.refills and known in (None, link)
        if identity.startswith(f"{target.name}:") and not refilled:
            self.fail(f"{link} writes {identity} to {target.name}, where it came from")
        key = link, source, self._serial(link, source.topic), topic.serial
        twice = (*key, offset) in self._written and identity not in self.again[link]
        if twice and topic.has(identity):  # a new copier finds no copy that retention deleted at the target
            self.fail(f"{link} writes {identity} of {source} at {offset} twice to {topic.name}")
        if known not in (None, link) and link not in self.refills and known not in self.refills:
            self.fail(f"{link} writes {identity} to {topic.name}, where link {known} wrote it")
        self._written.add((*key, offset))
        if self.positions[link, source].position.chosen:  # no tail is searched until the first report after a reset
            self.again[link].add(identity)
        if known is None and offset < self._newest.get(key, -1) and link not in self.disordered:
            self.fail(f"{link} writes {source} at {offset} after {self._newest[key]}")
        self._newest[key] = max(offset, self._newest.get(key, -1))
        self.copied += 1

    def delayed(self, lease: Lease, rows: Sequence[Row]) -> None:
        """These records may arrive after their sender died."""
        self.again[lease.link] |= {identity_of(row) for row in rows}
        self.disordered.add(lease.link)

    def resetting(self, link: Link) -> Mapping[LogId, int]:
        """The numbers of commands for each partition of a link before a command."""
        return {source: copy.sets for source, copy in link.copies.items()}

    def reset(self, link: Link, before: Mapping[LogId, int]) -> None:
        """A command of an operator set some positions: records are skipped, or copied again."""
        for source, copy in sorted(link.copies.items()):
            if copy.sets != before.get(source, -1):
                self._set(link.name, copy)

    def _set(self, link: str, copy: Any) -> None:
        self.disordered.add(link)
        if copy.refill is None:
            self._skip(link, copy.source, copy.offset)
        log = self.source(link).log(copy.source)
        self.again[link] |= {record.identity for _, record in log.records()} if log is not None else set()

    # Positions

    def scan(self) -> None:
        """Check the positions that were journaled since the last call."""
        bodies = self.journal.bodies[LINKS]
        while self._read < len(bodies):
            record = self.journal.record(LINKS, self._read)
            self._read += 1
            if record.value is None:
                self.positions = {
                    p: copy for p, copy in self.positions.items() if f"{p[0]}/{p[1]}" != record.key.decode()
                }
                continue
            link, copy = record.value
            if not copy.waits:
                self._position(link, copy)

    def _position(self, link: str, copy: Any) -> None:
        place = link, copy.source
        first = place not in self.positions
        self.positions[place] = copy
        if copy.position.chosen:  # the process may be stopped before its command ends
            self._set(link, copy)
        log = self.source(link).log(copy.source)
        if first or copy.position.offset < 0:
            self._skip(link, copy.source, copy.start)
        if log is None or not self._same(link, copy):
            return
        if first and copy.start > log.start and self.setting(link, "start") == "earliest" and not copy.reset:
            self.fail(f"{link} begins {copy.source} at {copy.start}, which starts at {log.start}")
        left = self.missing(link, copy.source, until=copy.position.offset)
        if left:
            self.fail(f"{link}: position {copy.position.offset} of {copy.source} is journaled before {left[0]} arrived")

    def _same(self, link: str, copy: Any) -> bool:
        """Whether both topics of a copy are those that it copied between."""
        return all(
            (there := cluster.topics.get(topic)) is not None
            and (not there.id or there.id == known)
            and (bool(there.id) or (cluster.name, topic) not in self.clusters.replaced)
            for cluster, topic, known in (
                (self.source(link), copy.source.topic, copy.source_id),
                (self.target(link), copy.target.topic, copy.target_id),
            )
        )

    def _serial(self, link: str, topic: str) -> int:
        """The number of a topic of the source."""
        held = self.source(link).topics.get(topic)
        return held.serial if held is not None else 0

    def _skip(self, link: str, source: LogId, offset: int) -> None:
        key = link, source, self._serial(link, source.topic)
        self._skipped[key] = max(self._skipped.get(key, 0), offset)

    def missing(
        self, link: str, source: LogId, until: int = 1 << 60, before_ms: float = 1e18, first: int = 0
    ) -> list[str]:
        """The records of a source log that should be at the target and never arrived there, between two offsets and
        written before a time."""
        first = max(first, self._skipped.get((link, source, self._serial(link, source.topic)), 0))
        log, topic = self.source(link).log(source), self.target(link).topics.get(source.topic)
        if log is None:
            return []
        arrived = {} if topic is None else topic.arrived
        return [
            record.identity
            for offset, record in log.records(first)
            if offset < until
            and record.at_ms <= before_ms
            and record.identity not in arrived
            and record.identity not in self.letters[link]
            and self._wanted(link, record)
        ]

    def _wanted(self, link: str, record: StoredRecord) -> bool:
        """Whether a link copies a record: not those that passed either end before."""
        if not record.link:
            return True
        value = next((value for name, value in record.headers if name == HEADER), b"")
        passed = path_with(tokens_of(value))
        return not (passed >> self.source(link).bit & 1 or passed >> self.target(link).bit & 1)

    # Groups

    def group_set(self, link: str, cluster: LogCluster, group: str, offsets: GroupCommits) -> None:
        """A link is about to set the offsets of a group at a cluster."""
        kept = cluster.commits.get(group, {})
        home = self.source(link) if cluster is self.target(link) else self.target(link)
        for log, offset in sorted(offsets.items()):
            if offset < kept.get(log, (-1, 0))[0]:
                self.fail(f"{link} moves group {group} at {log} of {cluster.name} from {kept[log][0]} back to {offset}")
            unread = self._unread(group, home, log.topic)
            held = cluster.log(log)
            rows = list(held.records()) if held is not None else []
            unread -= {record.identity for at, record in rows if at >= offset}  # a second copy is before the group
            passed = [record.identity for at, record in rows if at < offset and record.identity in unread]
            if passed:
                self.fail(f"{link} moves group {group} at {log} of {cluster.name} to {offset}, past unread {passed[0]}")

    def _unread(self, group: str, home: LogCluster, topic: str) -> set[str]:
        """The identities that a group must still read at a cluster, and did not read anywhere. Retention may have
        deleted one of them before: a link does not know of a second copy that a process wrote which ended."""
        commits, held = home.commits.get(group, {}), home.topics.get(topic)
        read = next((one.read for one in self.clusters.groups if one.name == group), set[str]())
        logs = [log for log in held.logs.values() if log.id in commits] if held is not None else []
        found = {record.identity for log in logs for _, record in log.records(commits[log.id][0])}
        deleted = {each.identity for log in logs for each in log.entries[commits[log.id][0] : log.start] if each}
        return found - read - deleted

    # Answers

    def answer(self, links: "Links", row: Mapping[str, Any]) -> None:
        """One link in the answer of the API, right after both clusters were observed."""
        self.scan()
        name = row["link"]
        link = links.manager.by_name[name]
        if row["state"] == "up" and (why := next(self._not_up(name, link), "")):
            self.fail(f"the API shows {name} up, but {why}")
        if row["lag_records"] >= 0 and row["state"] != "down":
            self._lag(link, row)

    def _not_up(self, name: str, link: Link) -> Iterator[str]:
        source, target = self.source(name), self.target(name)
        yield from (f"{cluster.name} is down" for cluster in (source, target) if cluster.down)
        if self.setting(name, "mode") == "observe" or self.setting(name, "paused"):
            yield "it copies nothing, as it was told"
        named = {topic for topic in self.setting(name, "topics") if not topic.startswith("/")}
        for topic in sorted(named | {log.topic for log in link.copies}):
            if not self.includes(name, topic):
                continue
            if topic not in source.topics:
                yield f"{topic} is gone"
            if topic in source.hidden or (topic in target.hidden and topic in source.topics):
                yield f"it has no rights to {topic}"
            if matches(self.setting(name, "paused_topics"), topic):
                yield f"{topic} is paused"
        yield from (f"{copy.source} is stopped" for copy in link.current() if copy.excluded or copy.stopped)

    def _lag(self, link: Link, row: Mapping[str, Any]) -> None:
        """The lag is not below the number of records that existed when the last round began and have not arrived."""
        left = 0
        for copy in link.current():
            if copy.excluded or not self._same(link.name, copy):
                continue
            until_ms = min(self._reported_ms.get((link.name, copy.source), 1e18), self.clusters.time_ms)
            until_ms -= self.source(link.name).lag_ms
            first = copy.start if copy.position.offset < 0 else 0
            left += len(self.missing(link.name, copy.source, before_ms=until_ms, first=first))
        if left > row["lag_records"]:
            self.fail(f"the API shows a lag of {row['lag_records']} for {link.name}; {left} records are missing")

    # The end

    def complete(self, names: Iterable[str]) -> None:
        """Every record arrived."""
        self.scan()
        for name in names:
            source, target = self.source(name), self.target(name)
            for topic in sorted(source.topics):
                lossy = (target.name, topic) in self.clusters.replaced and not target.can.topic_ids
                lossy |= (source.name, topic) in self.clusters.replaced and not source.can.topic_ids
                if not self.includes(name, topic) or lossy:
                    continue
                for log in sorted(source.topics[topic].logs):
                    if left := self.missing(name, log):
                        self.fail(f"{name}: {len(left)} records of {log} never arrived, such as {left[0]}")
