"""The last arrival of a record from another cluster, read from the logs only. Shows whether links copy."""

import threading
import time
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import NamedTuple, Self

from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from tests.replication.writers import RARELY, Site
from trueup.connectors.embedded.processes import wait_until

BATCH, POLL_S = 2_000, 0.5


class Way(NamedTuple):
    """A topic, and the cluster at which its records arrive."""

    topic: str
    target: str


class Arrivals:
    """Tails the topics of all sites, one thread per cluster."""

    def __init__(self, sites: Iterable[Site]) -> None:
        clusters: dict[str, list[Site]] = {}
        for site in sites:
            clusters.setdefault(site.bootstrap, []).append(site)
        self._newest = {Way(site.topic, site.name): 0.0 for some in clusters.values() for site in some}
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._tail, args=(some,)) for some in clusters.values()]

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

    def _tail(self, sites: Sequence[Site]) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": sites[0].bootstrap,
                "group.id": "arrivals",
                "enable.auto.commit": False,
                "log_level": 0,
                "isolation.level": "read_uncommitted",
                **RARELY,
            }
        )
        logs = [(site.topic, number) for site in sites for number in range(site.partitions)]
        consumer.assign([TopicPartition(*log, OFFSET_END) for log in logs])
        cluster, own = sites[0].name, f"{sites[0].name}|".encode()
        while not self._stop.is_set():
            for message in consumer.consume(BATCH, POLL_S):
                if message.error() is None and not (message.key() or own).startswith(own):
                    way = Way(str(message.topic()), cluster)
                    self._newest[way] = max(self._newest[way], message.timestamp()[1] / 1000)
        consumer.close()
