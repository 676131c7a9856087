"""Committed offsets of consumer groups on partition 0, as an operator's tools set and read them."""

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from trueup.connectors.embedded.processes import wait_until


def commit_offset(bootstrap: str, group: str, topic: str, offset: int) -> None:
    """Commit an offset. Waits for the coordinator: a broker that has just started is not one yet."""
    client = AdminClient({"bootstrap.servers": bootstrap})
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, offset)])

    def accepted() -> bool:
        places = client.alter_consumer_group_offsets([asked])[group].result(60).topic_partitions
        return all(place.error is None for place in places)

    wait_until(accepted, 180.0, f"the offset of {group}")


def committed_offset(bootstrap: str, group: str, topic: str) -> int:
    """The committed offset, negative if none. Uses a consumer, because librdkafka's admin client aborts the process
    (rd_kafka_handle_OffsetFetch) during the election of the coordinator."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    try:
        (place,) = consumer.committed([TopicPartition(topic, 0)], 60)
    except KafkaException:  # the coordinator is starting
        return -1
    finally:
        consumer.close()
    return max(-1, int(place.offset))
