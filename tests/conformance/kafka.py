"""Kafka's connectors in the suite."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.conformance.harness import TOO_LARGE, Written
from tests.replication.audit import OURS
from tests.replication.pair import Copy, Pair
from tests.replication.worker import Worker
from trueup.connectors.contract import Connector, Lease
from trueup.connectors.sandbox.jvm.processes import wait_until

KEEP = {"retention.ms": "-1"}


class KafkaHarness:
    """One path between two brokers."""

    def __init__(self, pair: Pair, path: str, name: str, connector: Connector, policies: Sequence[str]) -> None:
        self._pair, self._path, self._name = pair, path, name
        self.connector, self.policies = connector, policies

    def topic(self, partitions: int = 1) -> str:
        return self._pair.topic(partitions, east=KEEP, west=KEEP)

    def narrow_topic(self, partitions: int = 1) -> str:
        return self._pair.topic(partitions, east=KEEP, west={**KEEP, "max.message.bytes": str(TOO_LARGE // 2)})

    def write(self, side: str, topic: str, records: Mapping[int, Sequence[Written]]) -> None:
        producer = Producer({"bootstrap.servers": self._address(side), "linger.ms": 2, "batch.num.messages": 10})
        for row in itertools.zip_longest(*([(number, each) for each in rs] for number, rs in records.items())):
            for number, record in filter(None, row):
                producer.produce(
                    topic, record.value, record.key, number, timestamp=record.timestamp, headers=list(record.headers)
                )
                producer.poll(0)
        assert producer.flush(120) == 0

    def read(self, side: str, topic: str, partition: int = 0) -> list[tuple[int, Written]]:
        consumer = Consumer({
            "bootstrap.servers": self._address(side), "group.id": "suite", "isolation.level": "read_committed",
            "enable.partition.eof": True, "enable.auto.commit": False, "check.crcs": True,
        })  # fmt: skip
        consumer.assign([TopicPartition(topic, partition, 0)])
        found: list[tuple[int, Written]] = []

        def all_read() -> bool:
            for message in consumer.consume(2_000, 0.2):
                if message.error() is not None:
                    assert message.error().code() == KafkaError._PARTITION_EOF
                    return True
                headers = tuple(h for h in message.headers() or () if not h[0].startswith(OURS))
                stamp = message.timestamp()[1]
                found.append((message.offset(), Written(message.key(), message.value(), stamp, headers)))
            return False

        wait_until(all_read, 180.0, f"the end of {topic} at {side}")
        consumer.close()
        return found

    def lease(self, topic: str, partitions: int = 1, back: bool = False, **more: object) -> Lease:
        clusters = {"east": 0, "west": 1}
        return self._pair.lease(topic, partitions, back, path=self._path, clusters=clusters, **more)

    def copy(self, lease: Lease) -> Copy:
        return Copy(self.connector, lease)

    def worker(self, root: Path, lease: Lease, lease_s: float) -> Worker:
        return Worker(root, lease, self._name, lease_s)

    def remake(self, side: str, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": self._address(side)})
        admin.delete_topics([topic])[topic].result(30)

        def made() -> bool:
            try:
                admin.create_topics([NewTopic(topic, 1, 1, config=KEEP)])[topic].result(30)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
                return False
            return True

        wait_until(made, 60.0, f"{topic} to be made anew")

    def without_target(self, during: Callable[[], None]) -> None:
        self._pair.west.kill()
        try:
            during()
        finally:
            self._pair.west.up()

    def _address(self, side: str) -> str:
        return str(getattr(self._pair, side).bootstrap)
