"""Two clusters, and a simple copy that returns the offset map. Tests use it to check the sides of a link."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from trueup.connectors.contract import Endpoint, LogId
from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.kafka.client.admin import Admin
from trueup.connectors.kafka.client.group_offsets import KafkaGroups
from trueup.connectors.kafka.client.metadata import Discovery
from trueup.connectors.kafka.replication.admin import KafkaAdmin
from trueup.sandbox.servers.security import Security
from trueup.state.common.errors import Retry
from trueup.state.replication.offset_map import OffsetMap

BORN = "born"
"""Header of a copied record with its origin. A record is not copied back to its origin."""


class Side:
    """One cluster and the operations of tests on it."""

    def __init__(self, name: str, broker: Kafka, bit: int) -> None:
        self.name, self.broker = name, broker
        self.endpoint = Endpoint(name, broker.bootstrap, bit)
        self.admin = Admin(self.endpoint)
        self.discovery = Discovery(self.endpoint, self.admin)
        self.cluster = KafkaAdmin(self.endpoint, self.discovery)
        self.groups = KafkaGroups(self.endpoint)

    def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        """Create a topic and wait until it is visible."""
        new = NewTopic(topic, partitions, 1, config={key.replace("_", "."): value for key, value in config.items()})
        self.admin.client.create_topics([new])[topic].result()
        wait_until(lambda: self.discovery.topics([topic], configs=False), 180.0, f"topic {topic} to be known")

    def write(self, topic: str, values: Sequence[str], partition: int = 0, born: Sequence[str] = ()) -> list[int]:
        """Write values, each with its origin if given, and return their offsets."""
        offsets: list[int] = []
        writer = Producer({"bootstrap.servers": self.endpoint.address, "max.in.flight": 1, "linger.ms": 5})
        for value, place in zip(values, born or [""] * len(values), strict=True):
            writer.produce(
                topic,
                value,
                partition=partition,
                headers=[(BORN, place.encode())] if place else None,
                on_delivery=lambda _, done: offsets.append(done.offset()),
            )
        assert writer.flush(120) == 0
        return offsets

    def read(self, topic: str, partition: int = 0, start: int = OFFSET_BEGINNING) -> list[tuple[int, str, str]]:
        """Offset, value and origin of all records from an offset on."""
        reader = self._reader("reading", **{"enable.partition.eof": True})
        reader.assign([TopicPartition(topic, partition, start)])
        found = []
        while not ((message := reader.poll(60.0)) is None or message.error()):
            born = dict(message.headers() or []).get(BORN, b"").decode()
            found.append((message.offset(), message.value().decode(), born))
        assert message is not None
        assert message.error().code() == KafkaError._PARTITION_EOF
        reader.close()
        return found

    def commit(self, group: str, offsets: dict[LogId, int]) -> None:
        """Commit as a group without members."""
        reader = self._reader(group)
        places = [TopicPartition(place.topic, place.number, offset) for place, offset in offsets.items()]
        reader.commit(offsets=places, asynchronous=False)
        reader.close()

    def consume(self, group: str, topic: str, records: int) -> list[str]:
        """Join a group, read ``records`` records from its position, commit, and leave."""
        with self.member(group, topic) as reader:
            messages: list[str] = []
            while len(messages) < records:
                found = reader.consume(records - len(messages), 60.0)
                assert found, f"{len(messages)} of {records} records of {topic}"
                messages += [message.value().decode() for message in found]
            reader.commit(asynchronous=False)
        return messages

    @contextmanager
    def member(self, group: str, topic: str, protocol: str = "classic") -> Iterator[Consumer]:
        """A consumer with partitions assigned in its group. ``protocol``: "consumer" is the protocol of KIP-848."""
        reader = self._reader(group, **{"group.protocol": protocol})
        reader.subscribe([topic])
        wait_until(
            lambda: reader.assignment() or self._polled(reader), 180.0, f"a member of {group} to have partitions"
        )
        try:
            yield reader
        finally:
            reader.close()

    @staticmethod
    def _polled(reader: Consumer) -> bool:
        """Poll, so that the consumer joins. A received record is read again later."""
        message = reader.poll(0.1)
        if message is not None and not message.error():
            reader.seek(TopicPartition(message.topic(), message.partition(), message.offset()))
        return bool(reader.assignment())

    def _reader(self, group: str, **more: object) -> Consumer:
        ours = {
            "bootstrap.servers": self.endpoint.address,
            "group.id": group,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
        }
        return Consumer({**ours, "auto.offset.reset": "error", **more})


def copy(source: Side, target: Side, topic: str, before: OffsetMap | None = None, partition: int = 0) -> OffsetMap:
    """Copy the new records of a partition, except those born at the target. Returns the map of all copies so far."""
    known = before or OffsetMap()
    start = max(known.until, 0)
    found = source.read(topic, partition, start)
    ours = [(offset, value, born) for offset, value, born in found if born != target.name]
    written = target.write(
        topic, [value for _, value, _ in ours], partition, [born or source.name for *_, born in ours]
    )
    runs = [(offset, at, 1) for (offset, _, _), at in zip(ours, written, strict=True)]
    place = LogId(topic, partition)
    clear = target.discovery.logs([place])[place].end
    return known.extend(runs, source.discovery.logs([place])[place].end, begin=start, clear=clear)


@contextmanager
def sides(root: Path, west: Mapping[str, object] | None = None) -> Iterator[tuple[Side, Side]]:
    """An eastern and a western cluster. Both authorize users that authenticate. ``west``: broker settings of west."""
    brokers = [
        Kafka(root / name, "256m", settings, security=Security(root / "keys"), name=name)
        for name, settings in (("east", None), ("west", west))
    ]
    try:
        for broker in brokers:
            broker.start()
        for broker in brokers:
            broker.wait_ready()
        both = [Side(broker.name, broker, bit) for bit, broker in enumerate(brokers)]
        for side in both:
            wait_until(lambda side=side: coordinated(side.groups), 180.0, f"a coordinator in {side.name}")
        yield both[0], both[1]
        for side in both:
            side.groups.close()
    finally:
        for broker in brokers:
            broker.close()


def coordinated(groups: KafkaGroups) -> bool:
    """Whether the cluster has a group coordinator. The first request creates it."""
    try:
        return groups.offsets(["first"]) == {"first": {}}
    except Retry:
        return False
