"""Reads whole topics, as any consumer with read_committed sees them."""

from collections.abc import Collection, Mapping
from types import MappingProxyType

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from trueup.connectors.embedded.processes import wait_until

LIMIT_S, LOOK_S = 420.0, 0.05


def committed(
    bootstrap: str, topic: str, partitions: Collection[int], first: Mapping[int, int] = MappingProxyType({})
) -> list[Message]:
    """All committed records of some partitions from these offsets (default 0), up to their ends."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reading",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "check.crcs": True,
            "fetch.wait.max.ms": 10,  # an end shows in an empty response, which a broker delays by this time
        }
    )
    consumer.assign([TopicPartition(topic, number, first.get(number, 0)) for number in partitions])
    found: list[Message] = []
    ended: set[int] = set()

    def all_read() -> bool:
        for message in consumer.consume(5_000, LOOK_S):
            if message.error() is None:
                found.append(message)
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
        return ended == set(partitions)

    try:
        wait_until(all_read, LIMIT_S, f"the ends of partitions {sorted(partitions)} of {topic}")
    finally:
        consumer.close()
    return found
