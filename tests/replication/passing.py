"""Applications that read copies and write new records with all headers of what they read."""

from collections.abc import Iterator

from confluent_kafka import OFFSET_END, Consumer, Message, TopicPartition

from tests.replication.writers import PASSED, RARELY, Site, Writer

BATCH, POLL_S, SHARE = 500, 0.2, 4
"""Records and seconds of a poll, and the number of copies of which one is passed on."""
PARTITIONS = 2
"""Writers choose the partition by the number: as many in a row are passed on, so that all partitions have some."""


class Passer(Writer):
    """Reads the copies at one topic of a cluster, and writes to the same topic or to another one of this cluster.

    Partitions are kept. The new records are numbered in the order of reading, so a record that was read twice is not
    written under the same key. Records that an application passed on are not passed on again.
    """

    def __init__(self, read: Site, written: Site) -> None:
        assert read.name == written.name, "an application writes to the cluster from which it reads"
        super().__init__(written, PASSED, 0.0, f"-{read.topic}")
        self._read = read

    def _plainly(self, _begun: float) -> None:
        producer, consumer = self._producer(), self._consumer()
        try:
            while not self._stop.is_set():
                for message in self._copies(consumer):
                    headers = message.headers() or []
                    assert isinstance(headers, list), "as a consumer returns them"
                    self._write(producer, message.partition() or 0, message.value() or b"", headers)
                producer.poll(0)
            producer.flush(120)
        finally:
            consumer.close()

    def _consumer(self) -> Consumer:
        """A consumer that continues at the end: a new producer does not know what the last one wrote."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._read.bootstrap,
                "group.id": "passing",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "log_level": 0,
                **RARELY,
            }
        )
        partitions = range(self._read.partitions)
        consumer.assign([TopicPartition(self._read.topic, number, OFFSET_END) for number in partitions])
        return consumer

    def _copies(self, consumer: Consumer) -> Iterator[Message]:
        for message in consumer.consume(BATCH, POLL_S):
            if message.error() is None and is_passed_on(message.key() or b"", self.site.name):
                yield message


def is_passed_on(key: bytes, here: str) -> bool:
    """Whether an application at the cluster ``here`` passes on the record with this key."""
    origin, kind, number = key.decode().split("|")
    return origin != here and not kind.startswith(PASSED) and int(number) // PARTITIONS % SHARE == 0
