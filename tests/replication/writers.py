"""Writers of the common kinds, each at its own cluster.

A record's key is ``cluster|kind|number``. Numbers grow in each partition in the order of writing. A record of an
aborted transaction has the kind ``dead``. A repeated key is a duplicate, except those of `REPEATING`.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType, TracebackType
from typing import NamedTuple, Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from trueup.connectors.embedded.processes import wait_until

KINDS: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "idempotent": {"enable.idempotence": True, "compression.type": "lz4"},
        "zipped": {"enable.idempotence": True, "compression.type": "gzip"},
        "leader-only": {"acks": "1", "retries": 0, "compression.type": "none"},
        "transactional": {"transactional.id": "audit", "compression.type": "zstd"},
    }
)
PASSED, OLD = "passed", "v1"
OTHERS: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        PASSED: {"enable.idempotence": True, "compression.type": "lz4"},
        OLD: {"acks": "all", "retries": 0, "compression.type": "gzip"},
    }
)
"""Applications that pass records on, and writers to topics in message format v1, which has no headers."""
SURE = ("idempotent", "zipped", PASSED)
"""The cluster keeps the acknowledged records of these kinds, whichever broker dies."""
REPEATING = ("leader-only", OLD)
"""Kinds without idempotence. librdkafka sends a batch again after an error by which metadata is refreshed, and does not
count that as one of the ``retries`` (rdkafka_request.c). The broker may have stored the batch: seen when it was fenced,
and its leader epoch changed."""
PAUSE_S, BETWEEN_S, LINGER_MS = 0.1, 0.5, 100
"""Between writes, and between transactions: a client needs a core for a hundred transactions a second."""
RARELY: Mapping[str, str | int | float | bool] = MappingProxyType(
    {"fetch.min.bytes": 1 << 20, "fetch.wait.max.ms": 300}
)
"""Options of consumers that share a machine with many others: a trickle of records costs a request each otherwise."""
Headers = list[tuple[str, str | bytes | None]]


class Site(NamedTuple):
    """A topic at a cluster."""

    name: str
    bootstrap: str
    topic: str
    partitions: int = 2


class Writer:
    """Writes ``per_s`` records per second of one kind at one cluster, in a thread. ``suffix``: what keys
    have after the kind, for one of several writers of the same kind."""

    def __init__(self, site: Site, kind: str, per_s: float, suffix: str = "") -> None:
        self.site, self.kind, self._per_s, self._suffix = site, kind, per_s, suffix
        self.acknowledged: set[bytes] = set()
        self._stop = threading.Event()
        self._sent = 0
        self._thread = threading.Thread(target=self._run, name=f"{site.name} {kind}")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop and wait until all requests are answered."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        write = self._in_transactions if self.kind == "transactional" else self._plainly
        begun = time.monotonic()
        while not self._stop.is_set():
            with suppress(KafkaException):  # a broker's death ended the transaction: continue with a new producer
                write(begun)

    def _producer(self) -> Producer:
        own = {"transactional.id": f"audit-{self.site.name}-{self.site.topic}"} if self.kind == "transactional" else {}
        common = {"bootstrap.servers": self.site.bootstrap, "linger.ms": LINGER_MS, "log_level": 0}
        return Producer({**common, **{**KINDS, **OTHERS}[self.kind], **own})

    def _plainly(self, begun: float) -> None:
        producer = self._producer()
        while not self._stop.is_set():
            self._write_due(producer, begun, self.kind)
            time.sleep(PAUSE_S)
        producer.flush(120)

    def _in_transactions(self, begun: float) -> None:
        """Write transactions. Every third is aborted after its records reached the log."""
        producer = self._producer()
        producer.init_transactions(60)
        turn = 0
        while not self._stop.is_set():
            time.sleep(BETWEEN_S)
            if not self._due(begun):
                continue
            doomed = turn % 3 == 2
            producer.begin_transaction()
            self._write_due(producer, begun, "dead" if doomed else self.kind)
            producer.flush(120)
            producer.abort_transaction(60) if doomed else producer.commit_transaction(60)
            turn += 1

    def _write_due(self, producer: Producer, begun: float, kind: str) -> None:
        for _ in range(self._due(begun)):
            number = self._sent
            headers: Headers = [] if kind == OLD else [("trace", b"%d" % number)]
            self._write(producer, number % self.site.partitions, b"v" * (20 + number % 80), headers, kind)
        producer.poll(0)

    def _due(self, begun: float) -> int:
        return max(0, int((time.monotonic() - begun) * self._per_s) - self._sent)

    def _write(self, producer: Producer, partition: int, value: bytes, headers: Headers, kind: str = "") -> None:
        number, self._sent = self._sent, self._sent + 1
        producer.produce(
            self.site.topic,
            value,
            f"{self.site.name}|{kind or self.kind}{self._suffix}|{number}",
            partition=partition,
            headers=headers,
            on_delivery=self._delivered,
        )

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.add(message.key())


class Writers:
    """One writer of each kind at each site."""

    def __init__(
        self, sites: Sequence[Site], kinds: Sequence[str] = tuple(KINDS), per_s: float = 300.0, suffix: str = ""
    ) -> None:
        self.all = [Writer(site, kind, per_s, suffix) for site in sites for kind in kinds]

    def acknowledged(self, site: str) -> set[bytes]:
        """Keys that this cluster acknowledged and must keep."""
        return {key for w in self.all if w.site.name == site and w.kind in SURE for key in w.acknowledged}

    def wait_acknowledged(self, records: int, limit_s: float = 180.0) -> None:
        """Wait until each writer of the kinds in `SURE` has this number of acknowledged records."""
        sure = [writer for writer in self.all if writer.kind in SURE]
        wait_until(lambda: all(len(w.acknowledged) >= records for w in sure), limit_s, f"{records} records of each")

    def __enter__(self) -> Self:
        for writer in self.all:
            writer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop all writers. May be called twice."""
        for writer in self.all:
            writer.stop()
