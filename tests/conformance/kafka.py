"""The Kafka harness of the suite."""

import itertools
from collections.abc import Mapping, Sequence

from confluent_kafka import Message, Producer

from tests.conformance.harness import CLUSTERS, TOO_LARGE, Harness, Written
from tests.replication.audit import OURS, ends
from tests.replication.pair import Pair, create, recreate
from tests.replication.reading import committed
from tests.replication.writers import Site
from trueup.connectors.contract import Endpoint, LogId
from trueup.connectors.embedded.kafka import Kafka
from trueup.streams.replication.clusters import KAFKA, connector_of
from trueup.streams.runtime.named import imported

KEEP = {"retention.ms": "-1"}
NONE: Mapping[str, str] = {}


class KafkaCluster:
    """A cluster of one broker. Implements `tests.conformance.harness.Cluster`."""

    def __init__(self, name: str, broker: Kafka, options: Mapping[str, str] = NONE) -> None:
        self._name, self._broker, self._options = name, broker, options

    @property
    def _address(self) -> str:
        return self._broker.bootstrap

    def endpoint(self) -> Endpoint:
        return Endpoint(self._name, self._address, CLUSTERS[self._name], self._options, KAFKA)

    def log(self, topic: str, index: int) -> LogId:
        return LogId(topic, index)

    def create(self, topic: str, logs: int, narrow: bool = False) -> None:
        create(self._broker, topic, logs, {**KEEP, **({"max.message.bytes": str(TOO_LARGE // 2)} if narrow else {})})

    def write(self, topic: str, records: Mapping[int, Sequence[Written]]) -> None:
        # One request at a time. Otherwise a retried batch, for example of a topic whose leader is not ready, is written
        # after the next one. Idempotence does not help because brokers expire the producers of old records.
        small = {"linger.ms": 2, "batch.num.messages": 10, "max.in.flight": 1}
        producer = Producer({"bootstrap.servers": self._address, **small})
        for row in itertools.zip_longest(*([(number, each) for each in rs] for number, rs in records.items())):
            for number, record in filter(None, row):
                producer.produce(
                    topic, record.value, record.key, number, timestamp=record.timestamp, headers=list(record.headers)
                )
                producer.poll(0)
        assert producer.flush(120) == 0

    def read(self, topic: str, index: int) -> list[tuple[int, Written]]:
        return [
            (message.offset(), Written(message.key(), message.value(), message.timestamp()[1], headers_of(message)))
            for message in committed(self._address, topic, [index])
        ]

    def end(self, log: LogId) -> int:
        return ends(Site(self._name, self._address, log.topic, log.number + 1))[log.number]

    def remake(self, topic: str) -> None:
        recreate(self._broker, topic, 1, KEEP)

    def kill(self) -> None:
        self._broker.kill()

    def up(self) -> None:
        self._broker.up()


def headers_of(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    """The headers without those that links add."""
    return tuple(header for header in message.headers() or () if not header[0].startswith(OURS))


def kafka_harness(pair: Pair, path: str, options: Mapping[str, str] = NONE) -> Harness:
    """A path between two brokers."""
    name = connector_of(KAFKA, KAFKA, path)
    east, west = KafkaCluster("east", pair.east, options), KafkaCluster("west", pair.west, options)
    return Harness(east, west, path, name, imported(name)())
