"""Two clusters of one broker each, topics on both, and a copy from one to the other in this process."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from tests.replication.audit import ends
from tests.replication.writers import Site
from trueup.connectors.contract import Assignment, Connector, Endpoint, Lease, LogId, Position, Progress, Run
from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.embedded.processes import wait_until
from trueup.state.common.errors import Retry

QUICK: Mapping[str, object] = {
    "broker.session.timeout.ms": 3_000,
    "log.cleaner.backoff.ms": 200,
    "log.initial.task.delay.ms": 500,
    "log.retention.check.interval.ms": 500,
    "log.retention.ms": -1,
    "producer.id.expiration.check.interval.ms": 500,
}
"""A broker that compacts, deletes and expires producers without delay, and restarts quickly after a kill. By default it
retains records of any age, because records of tests have old timestamps."""
COUNTS = (
    "copied",
    "bytes",
    "dropped",
    "skipped",
    "dismissed",
    "filtered",
    "lost",
    "foreign",
    "foreign_tags",
    "repeated",
)
RETRIES = 3
EAST_TO_WEST, WEST_TO_EAST = 7, 8
"""Writer ids."""


class Broker(Protocol):
    """A broker of any version."""

    @property
    def bootstrap(self) -> str:
        """host:port for clients."""


class Pair:
    """The clusters east and west."""

    def __init__(self, new_root: Callable[[], Path]) -> None:
        self.east, self.west = self.broker(new_root()), self.broker(new_root())
        self._topics = 0

    def broker(self, root: Path) -> Kafka:
        """The broker of a cluster."""
        return Kafka(root, settings=QUICK)

    def __enter__(self) -> Self:
        self.east.start()
        self.west.start()
        self.east.wait_ready()
        self.west.wait_ready()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.east.close()
        self.west.close()

    def topic(self, partitions: int = 1, **settings: Mapping[str, str]) -> str:
        """A new topic on both clusters. ``east=`` and ``west=`` are settings of one side."""
        self._topics += 1
        name = f"topic{self._topics}"
        for side, broker in (("east", self.east), ("west", self.west)):
            create(broker, name, partitions, settings.get(side, {}))
        return name

    def site(self, side: str, topic: str, partitions: int = 1) -> Site:
        return Site(side, getattr(self, side).bootstrap, topic, partitions)

    def lease(self, topic: str, partitions: int = 1, back: bool = False, **more: object) -> Lease:
        """A lease from east to west, or west to east if ``back``."""
        east = Endpoint("east", self.east.bootstrap, 0, system="kafka")
        west = Endpoint("west", self.west.bootstrap, 1, system="kafka")
        each = (LogId(topic, number) for number in range(partitions))
        lease = Lease(
            "west-east" if back else "east-west",
            west if back else east,
            east if back else west,
            WEST_TO_EAST if back else EAST_TO_WEST,
            "batches",
            tuple(Assignment(p, p, Position(), 0) for p in each),
        )
        return replace(lease, **more)  # type: ignore[arg-type]


class Copy:
    """A copy of a lease in this process, and its result over all partitions."""

    def __init__(self, connector: Connector, lease: Lease, end: Callable[[LogId], int] | None = None) -> None:
        self.lease = lease
        self._end = end or self._in_kafka
        self.totals: Counter[str] = Counter()
        self.runs: list[Run] = []
        self.rows: dict[LogId, Progress] = {}
        self._connector = connector

    def to_the_end(self, limit_s: float = 180.0) -> Self:
        """Copy all records that the source has now, or until a partition stops. Then close the copier. As a worker
        does, continue after a few errors that call for a retry: servers can be starved."""
        wanted = {a.source: self._end(a.source) for a in self.lease.assignments}
        copier, retries = self._connector.open(self.lease), list[Retry]()
        try:

            def keep_going() -> bool:
                self._note(copier.progress())
                return True

            def there() -> bool:
                try:
                    copier.copy(time.monotonic() + 0.1, keep_going)
                except Retry as error:
                    retries.append(error)
                    if len(retries) > RETRIES:
                        raise
                self._note(copier.progress())
                return all(row.stopped or row.position.offset >= wanted[p] for p, row in self.rows.items())

            wait_until(there, limit_s, f"{self.lease.link} at the end of its source")
        except Retry as error:
            raise AssertionError(f"{error}; wanted {wanted}, stands at {self.rows}, after {retries}") from error
        finally:
            copier.close()
        return self

    def next_lease(self, **more: object) -> "Copy":
        """A copy that continues where this one ended."""
        held = (
            each._replace(position=self.rows[each.source].position) if each.source in self.rows else each
            for each in self.lease.assignments
        )
        lease = replace(self.lease, assignments=tuple(held), **more)  # type: ignore[arg-type]
        return Copy(self._connector, lease, self._end)

    def _in_kafka(self, log: LogId) -> int:
        source = self.lease.source
        return ends(Site(source.name, source.address, log.topic, log.number + 1))[log.number]

    def _note(self, rows: list[Progress]) -> None:
        for row in rows:
            self.rows[row.source] = row
            assert all(run.source + run.records <= row.position.offset for run in row.runs), "runs behind the position"
            for run in row.runs:
                self._join(run)
            for name in COUNTS:
                self.totals[name] += getattr(row, name)

    def _join(self, run: Run) -> None:
        last = self.runs[-1] if self.runs else Run(-1, -1, 0)
        if (run.source, run.target) == (last.source + last.records, last.target + last.records):
            self.runs[-1] = last._replace(records=last.records + run.records)
        else:
            self.runs.append(run)


def create(broker: Broker, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
    """Create a topic at one cluster and wait until it is visible."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1, config=dict(settings))])[topic].result(30)
    wait_until(lambda: topic in admin.list_topics(timeout=30).topics, 180.0, f"topic {topic}")


def recreate(broker: Broker, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
    """Delete a topic and create it again, if nobody else does, as soon as its logs are gone."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    former = topic_id(admin, topic)
    admin.delete_topics([topic])[topic].result(30)

    def created() -> bool:
        try:
            create(broker, topic, partitions, settings)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        return topic_id(admin, topic) not in (former, "")

    wait_until(created, 180.0, f"topic {topic} to be created again")


def topic_id(admin: AdminClient, topic: str) -> str:
    """The id of a topic, empty if it does not exist."""
    try:
        return str(admin.describe_topics(TopicCollection([topic]))[topic].result(30).topic_id)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise
        return ""


def configure(broker: Broker, resource: ConfigResource, name: str, value: str) -> None:
    """Change one setting and wait until it is in effect."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wanted = ConfigResource(
        resource.restype,
        resource.name,
        incremental_configs=[ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)],
    )
    admin.incremental_alter_configs([wanted])[wanted].result(30)
    wait_until(lambda: admin.describe_configs([resource])[resource].result(30)[name].value == value, 30.0, name)


@contextmanager
def forgetting_producers(broker: Kafka) -> Iterator[None]:
    """The broker forgets producers a second after their last write."""
    resource = ConfigResource(ResourceType.BROKER, "1")
    configure(broker, resource, "producer.id.expiration.ms", "1000")
    try:
        yield
    finally:
        configure(broker, resource, "producer.id.expiration.ms", "86400000")
