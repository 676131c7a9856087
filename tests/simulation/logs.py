"""Log clusters as they truly are: topics, logs of records, consumer groups, and what happens to them from outside.

Every record that an application writes has an identity of its own, which its value begins with. A copy has the identity
of its original. A record that an application passes on with the headers of the one that it read is a new record.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple, Protocol

from trueup.connectors.contract import LogId
from trueup.connectors.replication.headers import MARK
from trueup.connectors.replication.ports import Capabilities
from trueup.state.replication.provenance import HEADER

Headers = tuple[tuple[str, bytes | None], ...]
SMALL, LARGE = 100, 400
"""Limits of the size of a value in bytes."""
MOST_RECORDS = 400
"""Maximum number of records that applications write in one run."""
TOPICS = ("orders", "bills", "other")
LETTERS = "letters"
"""A topic at each cluster for records that the copy of their topic refuses."""
GROUPS = ("readers", "auditors")


class World(Protocol):
    """What the clusters need of the world."""

    now_ms: int
    rng: Random

    def note(self, text: str) -> None:
        """Add a line to the log of the run."""


class StoredRecord(NamedTuple):
    """A record in a log. ``link``: the link that wrote it; empty for an application."""

    identity: str
    key: bytes | None
    value: bytes
    stamp: int
    headers: Headers
    at_ms: int
    link: str = ""

    @property
    def tagged(self) -> bool:
        """Whether it has a header of Trueup, whoever wrote it."""
        return any(name in (HEADER, MARK) for name, _ in self.headers)


@dataclass(eq=False)
class StoredLog:
    """A log. An entry without a record is one of the system itself, such as the end of a transaction."""

    id: LogId
    entries: list[StoredRecord | None] = field(default_factory=list)
    start: int = 0

    @property
    def end(self) -> int:
        """The offset of the next record."""
        return len(self.entries)

    def shown(self, until_ms: int) -> int:
        """The end for readers that see the records acknowledged up to a time."""
        end = self.end
        while end > self.start and (record := self.entries[end - 1]) is not None and record.at_ms > until_ms:
            end -= 1
        return end

    def records(self, start: int = 0) -> Iterable[tuple[int, StoredRecord]]:
        """Offset and record of each record that still exists, from an offset on."""
        first = max(start, self.start)
        return ((at, one) for at, one in enumerate(self.entries[first:], first) if one is not None)


@dataclass(eq=False)
class StoredTopic:
    """A topic from its creation to its deletion. ``serial``: its number among those that its cluster ever had;
    ``arrived``: the link that wrote each identity first."""

    name: str
    id: str
    limit: int
    serial: int
    logs: dict[LogId, StoredLog] = field(default_factory=dict)
    arrived: dict[str, str] = field(default_factory=dict)

    def append(self, log: LogId, record: StoredRecord | None) -> int:
        """Append a record. Returns its offset."""
        entries = self.logs[log].entries
        entries.append(record)
        if record is not None:
            self.arrived.setdefault(record.identity, record.link)
        return len(entries) - 1

    def has(self, identity: str) -> bool:
        """Whether a log still has a record with this identity."""
        return any(record.identity == identity for log in self.logs.values() for _, record in log.records())


@dataclass(eq=False)
class ReaderGroup:
    """A consumer group, which runs at one cluster at a time. ``read``: the identities that it read anywhere."""

    name: str
    home: str
    members: bool = True
    read: set[str] = field(default_factory=set)


@dataclass(eq=False)
class LogCluster:
    """One cluster. ``hidden``: the topics that the user of the links may not use."""

    name: str
    system: str
    bit: int
    can: Capabilities
    topics: dict[str, StoredTopic] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    down: bool = False
    commits: dict[str, dict[LogId, tuple[int, int]]] = field(default_factory=dict)
    """Offset and path of each committed offset, by group."""
    beats: list[tuple[bytes, int]] = field(default_factory=list)
    made: int = 0

    @property
    def lag_ms(self) -> int:
        """The time until readers see an acknowledged record."""
        return int(self.can.ends_lag_s * 1000)

    def log_name(self, topic: str, index: int) -> LogId:
        """The name of the log at this index of a topic."""
        if self.system == "kafka":
            return LogId(topic, index)
        return LogId(topic, 7 + 1_000 * index, f"store-{index % 2}")

    def create(self, topic: str, count: int, limit: int) -> StoredTopic:
        """Create a topic."""
        self.made += 1
        known = f"{self.name}-{self.made}" if self.can.topic_ids else ""
        made = self.topics[topic] = StoredTopic(topic, known, limit, self.made)
        self.grow(topic, count)
        return made

    def grow(self, topic: str, count: int) -> None:
        """Add logs up to this number."""
        held = self.topics[topic].logs
        for index in range(len(held), count):
            held[self.log_name(topic, index)] = StoredLog(self.log_name(topic, index))

    def delete(self, topic: str) -> None:
        """Delete a topic, with the offsets that groups committed in it."""
        del self.topics[topic]
        self.hidden.discard(topic)
        for group, commits in self.commits.items():
            self.commits[group] = {log: commit for log, commit in commits.items() if log.topic != topic}

    def log(self, log: LogId) -> StoredLog | None:
        """A log by its name."""
        topic = self.topics.get(log.topic)
        return None if topic is None else topic.logs.get(log)


class LogClusters:
    """The three clusters, and one random event of theirs at a time. ``late``: writes of dead senders that have not
    arrived; ``replaced``: the places whose topic was deleted in this run."""

    def __init__(self, world: World) -> None:
        self.world, self.rng = world, world.rng
        slow = Capabilities(topic_ids=False, ends_lag_s=0.15, configs=False, rights=False, groups_s=2.0)
        self.by_name = {
            "east": LogCluster("east", "kafka", 0, Capabilities()),
            "west": LogCluster("west", "kafka", 1, Capabilities()),
            "south": LogCluster("south", "rocketmq", 2, slow),
        }
        self._ahead_ms = self._due_ms = 0.0
        self.late: list[tuple[float, Callable[[], None]]] = []
        self.replaced: set[tuple[str, str]] = set()
        self.written = 0
        self.groups = [
            ReaderGroup(name, self.rng.choice(("east", "west"))) for name in GROUPS[: self.rng.randint(0, 2)]
        ]
        self._kinds = self._profile()
        self._populate()

    def _profile(self) -> list[Callable[[], None]]:
        """The kinds of events of this run. Many runs have few of the rare ones."""
        rare = (self._retention, self._recreate, self._grow, self._outage, self._rights, self._move_group)
        chosen = [event for event in rare if self.rng.random() < 0.4]
        return [*([self._produce] * 6), *([self._pass_on] * 2), *([self._consume] * 2), *chosen]

    def _populate(self) -> None:
        rng = self.rng
        for cluster in self.by_name.values():
            cluster.create(LETTERS, 1, 10 * LARGE)
        for name in TOPICS[: rng.randint(1, 3)]:
            for cluster in [c for c in self.by_name.values() if rng.random() < 0.5] or [self.by_name["east"]]:
                cluster.create(name, rng.randint(1, 2), rng.choice((SMALL, LARGE, LARGE)))
        for _ in range(rng.randint(0, 6)):
            self._produce()

    # Time

    @property
    def time_ms(self) -> float:
        """The time of the clusters, which a process that waits moves on."""
        return self._due_ms or max(float(self.world.now_ms), self._ahead_ms)

    @property
    def ahead_ms(self) -> int:
        """How far waiting processes moved the time ahead of the world's."""
        return int(self.time_ms) - self.world.now_ms

    def elapse(self, seconds: float) -> None:
        """Let time pass, in which late writes arrive."""
        self._ahead_ms = self.time_ms + max(0.0, seconds) * 1000
        self.arrive()

    def arrive(self) -> None:
        """Late writes whose time has come arrive."""
        while self.late and self.late[0][0] <= self.time_ms:
            self._due_ms, arrive = self.late.pop(0)
            arrive()
            self._due_ms = 0.0

    def delay(self, seconds: float, arrive: Callable[[], None]) -> None:
        """A write arrives after this time."""
        self.late.append((self.time_ms + seconds * 1000, arrive))
        self.late.sort(key=lambda one: one[0])

    # Events

    def happen(self) -> None:
        """One random event."""
        self.arrive()
        for cluster in self.by_name.values():
            cluster.down = cluster.down and self.rng.random() < 0.7
        self.rng.choice(self._kinds)()

    def end(self) -> None:
        """All outages end, rights return, and every topic accepts large records."""
        for cluster in self.by_name.values():
            cluster.down = False
            cluster.hidden.clear()
            for name, topic in cluster.topics.items():
                topic.limit = topic.limit if name == LETTERS else LARGE

    def _place(self) -> tuple[LogCluster, StoredTopic] | None:
        places = [(c, c.topics[name]) for c in self.by_name.values() for name in TOPICS if name in c.topics]
        return self.rng.choice(places) if places else None

    def _any_log(self, topic: StoredTopic) -> StoredLog:
        return topic.logs[self.rng.choice(sorted(topic.logs))]

    def write(self, cluster: LogCluster, log: StoredLog, size: int, headers: Headers = ()) -> StoredRecord:
        """An application writes a record of its own."""
        self.written += 1
        identity = f"{cluster.name}:{self.written}"
        record = StoredRecord(
            identity,
            self.rng.choice((None, b"k1", b"k2")),
            identity.encode().ljust(size),
            self.world.now_ms,
            headers,
            int(self.time_ms),
        )
        cluster.topics[log.id.topic].append(log.id, record)
        return record

    def _produce(self) -> None:
        place = self._place()
        if place is None or place[0].down or self.written >= MOST_RECORDS:
            return
        cluster, topic = place
        log = self._any_log(topic)
        for _ in range(self.rng.randint(1, 4)):
            if cluster.system == "kafka" and self.rng.random() < 0.1:
                topic.append(log.id, None)
            self.write(cluster, log, LARGE if topic.limit == LARGE and self.rng.random() < 0.03 else 20)

    def _pass_on(self) -> None:
        """An application reads a record and writes another one with its headers."""
        place = self._place()
        if place is None or place[0].down or self.written >= MOST_RECORDS:
            return
        cluster, topic = place
        read = [record for log in topic.logs.values() for _, record in log.records() if record.headers]
        if read:
            self.write(cluster, self._any_log(topic), 20, self.rng.choice(read[-5:]).headers)

    def _consume(self) -> None:
        for group in self.groups:
            cluster = self.by_name[group.home]
            if group.members and not cluster.down:
                self._read(group, cluster)

    def _read(self, group: ReaderGroup, cluster: LogCluster) -> None:
        commits = cluster.commits.setdefault(group.name, {})
        for topic in cluster.topics.values():
            for log in topic.logs.values():
                at = max(log.start, min(commits.get(log.id, (0, 0))[0], log.end))
                until = min(log.shown(int(self.time_ms) - cluster.lag_ms), at + self.rng.randint(0, 4))
                if until > at:
                    group.read.update(one.identity for offset, one in log.records(at) if offset < until)
                    commits[log.id] = until, 0

    def _move_group(self) -> None:
        """A group stops, or starts at a cluster."""
        for group in self.groups:
            if group.members:
                group.members = False
            else:
                group.home, group.members = self.rng.choice(("east", "west")), self.rng.random() < 0.7
            self.world.note(f"group {group.name} {'runs' if group.members else 'stopped'} at {group.home}")

    def _retention(self) -> None:
        place = self._place()
        if place is not None:
            self.retain(place[0], self._any_log(place[1]))

    def retain(self, cluster: LogCluster, log: StoredLog) -> None:
        """Retention deletes the oldest records of a log, in a run in which it does."""
        if self._retention in self._kinds and log.end > log.start:
            log.start = self.rng.randint(log.start, log.end)
            self.world.note(f"{cluster.name}: retention moves {log.id} to {log.start} of {log.end}")

    def _recreate(self) -> None:
        """A topic is deleted, at one cluster or at all, and often created again. One that was deleted returns."""
        name, rng = self.rng.choice(TOPICS), self.rng
        clusters = [c for c in self.by_name.values() if name in c.topics and not c.down]
        for cluster in clusters if rng.random() < 0.3 else clusters[:1]:
            topic = cluster.topics[name]
            cluster.delete(name)
            self.replaced.add((cluster.name, name))
            self.world.note(f"{cluster.name}: {name} is deleted")
            if rng.random() < 0.7:
                cluster.create(name, len(topic.logs), topic.limit)
                self.world.note(f"{cluster.name}: {name} is created again")
        if not clusters:
            self.by_name["east"].create(name, 1, LARGE)
            self.world.note(f"east: {name} is created")

    def _grow(self) -> None:
        place = self._place()
        if place is not None and len(place[1].logs) < 3 and not place[0].down:
            place[0].grow(place[1].name, len(place[1].logs) + 1)
            self.world.note(f"{place[0].name}: {place[1].name} has {len(place[1].logs)} logs")

    def _outage(self) -> None:
        cluster = self.rng.choice([*self.by_name.values()])
        cluster.down = True
        self.world.note(f"{cluster.name} is down")

    def _rights(self) -> None:
        place = self._place()
        if place is not None:
            place[0].hidden ^= {place[1].name}
            self.world.note(f"{place[0].name}: rights to {place[1].name} {_changed(place)}")


def _changed(place: tuple[LogCluster, StoredTopic]) -> str:
    return "are revoked" if place[1].name in place[0].hidden else "return"
