"""The last arrival of a record from another cluster, read from the logs only. Shows whether links copy."""

import threading
import time
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import NamedTuple, Self

from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from tests.replication.writers import Site
from trueup.connectors.sandbox.jvm.processes import wait_until

BATCH, POLL_S = 2_000, 0.5


class Way(NamedTuple):
    """A topic, and the cluster at which its records arrive."""

    topic: str
    target: str


class Arrivals:
    """Tails the topics of all sites, one thread per site."""

    def __init__(self, sites: Iterable[Site]) -> None:
        self._sites = list(sites)
        self._newest = dict.fromkeys([Way(site.topic, site.name) for site in self._sites], 0.0)
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._tail, args=(site,)) for site in self._sites]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def silent_since(self, since_s: float) -> list[Way]:
        """Ways without a record written at or after this time, in seconds since the epoch."""
        return sorted(direction for direction, newest in self._newest.items() if newest < since_s)

    def wait_all(self, limit_s: float, what: str) -> None:
        """Wait until every way has a record written after the call. Raises `Retry`."""
        begun = time.time()
        wait_until(lambda: not self.silent_since(begun), limit_s, f"records to arrive {what}")

    def _tail(self, site: Site) -> None:
        consumer = Consumer({
            "bootstrap.servers": site.bootstrap, "group.id": "arrivals", "enable.auto.commit": False, "log_level": 0,
            "isolation.level": "read_uncommitted",
        })  # fmt: skip
        consumer.assign([TopicPartition(site.topic, number, OFFSET_END) for number in range(site.partitions)])
        own, direction = f"{site.name}|".encode(), Way(site.topic, site.name)
        while not self._stop.is_set():
            self._newest[direction] = max(self._newest[direction], *_written(consumer, own), 0.0)
        consumer.close()


def _written(consumer: Consumer, own: bytes) -> Sequence[float]:
    """Write times of records from other clusters, in seconds since the epoch."""
    messages = [message for message in consumer.consume(BATCH, POLL_S) if message.error() is None]
    foreign = [message for message in messages if not (message.key() or own).startswith(own)]
    return [message.timestamp()[1] / 1000 for message in foreign] or [0.0]
