"""Clusters of RocketMQ and Kafka as ends of links: bodies are written, and read again log by log.

A body is ``SIDE|LOG|NUMBER``, where the side is the cluster at which it was written. Messages of RocketMQ belong to one
of the FIFO groups of their log; the order of a log is also that of its groups. A request without a response is
repeated, so a body can be stored more than once; it must then be at the other end as often.
"""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol, Self

from confluent_kafka import Producer

from tests.conformance.rocketmq import RocketMqCluster
from tests.replication.reading import committed
from trueup.connectors.closing import Closing
from trueup.connectors.contract import LogId
from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.rocketmq.client import messages
from trueup.connectors.rocketmq.client.cluster import RocketMqClient
from trueup.connectors.rocketmq.protocol import batch, properties
from trueup.state.common.errors import Retry, TrueupError

LOGS, FIFO_GROUPS = 4, 8
PAUSE_S, ANSWER_S = 0.1, 60.0
Bodies = dict[int, list[bytes]]
"""Bodies by log, in the order of the log."""


class Side(Protocol):
    """One cluster. Logs have the numbers 0 to `LOGS` - 1, whatever the system calls them."""

    name: str

    def write(self, topic: str, number: int, bodies: Sequence[bytes]) -> None:
        """Write to one log. Raises `TrueupError` if the bodies may not be stored."""

    def read(self, topic: str) -> Bodies:
        """All bodies of a topic. What an earlier call has read is not read again."""

    def anew(self) -> Self:
        """The same side, which has not read anything."""


class RocketMqSide:
    """Log n is the nth queue in the order of broker and queue."""

    def __init__(self, name: str, cluster: RocketMqCluster) -> None:
        self.name, self._cluster = name, cluster
        self._logs: dict[str, list[LogId]] = {}
        self._found = defaultdict[str, Bodies](_nothing)
        self._next = Counter[LogId]()

    def write(self, topic: str, number: int, bodies: Sequence[bytes]) -> None:
        log, client = self._log(topic, number), self._client
        body = batch.encode(bodies, [*map(_properties, bodies)], [0] * len(bodies))
        messages.sent(client.ask(log.place, messages.send_batch(log, body, time.time_ns() // 1_000_000)))

    def read(self, topic: str) -> Bodies:
        for number, part in self._found[topic].items():
            log = self._log(topic, number)
            for stored in self._cluster.stored(log, self._next[log]):
                part += map(bytes, stored.bodies)
                self._next[log] = int(stored.offsets[-1]) + 1
        return self._found[topic]

    def anew(self) -> Self:
        return type(self)(self.name, self._cluster)

    @property
    def _client(self) -> RocketMqClient:
        return self._cluster.client

    def _log(self, topic: str, number: int) -> LogId:
        if topic not in self._logs:
            self._logs[topic] = self._client.logs(topic)
        return self._logs[topic][number]


class KafkaSide:
    """Log n is partition n."""

    def __init__(self, name: str, broker: Kafka) -> None:
        self.name, self._broker = name, broker
        self._found = defaultdict[str, Bodies](_nothing)
        self._next = defaultdict[str, Counter[int]](Counter)
        self._producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
        )

    def write(self, topic: str, number: int, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self._producer.produce(topic, body, body, number)
        while self._producer.flush(ANSWER_S):  # the producer repeats requests without storing a record twice
            pass

    def read(self, topic: str) -> Bodies:
        found, first = self._found[topic], self._next[topic]
        for message in committed(self._broker.bootstrap, topic, range(LOGS), first):
            found[message.partition()].append(message.value() or b"")
            first[message.partition()] = message.offset() + 1
        return found

    def anew(self) -> Self:
        return type(self)(self.name, self._broker)


def _properties(body: bytes) -> bytes:
    _, log, number = body.decode().split("|")
    return properties.encoded({"KEYS": body.decode(), "__SHARDINGKEY": f"{log}-{int(number) % FIFO_GROUPS}"})


def _nothing() -> Bodies:
    return {number: [] for number in range(LOGS)}


class Writer(Closing):
    """Writes ``per_s`` bodies per second to all logs of a topic at one side, in a thread."""

    def __init__(self, side: Side, topic: str, per_s: float) -> None:
        self.side, self.topic, self._per_s = side, topic, per_s
        self.stored: dict[int, int] = dict.fromkeys(range(LOGS), 0)
        """Bodies of each log that are acknowledged: those with a smaller number."""
        self.attempts = Counter[bytes]()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{side.name} {topic}")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop, and wait until the last request is answered."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        begun = time.monotonic()
        while not self._stop.wait(PAUSE_S):
            due = int((time.monotonic() - begun) * self._per_s / LOGS)
            for number in range(LOGS):
                self._write(number, due)

    def _write(self, number: int, due: int) -> None:
        """Write what is due, once more for each failure."""
        bodies = [b"%s|%d|%d" % (self.side.name.encode(), number, n) for n in range(self.stored[number], due)]
        while bodies and not self._stop.is_set():
            self.attempts.update(bodies)
            with suppress(TrueupError):
                self.side.write(self.topic, number, bodies)
                self.stored[number] = due
                return
            self._stop.wait(PAUSE_S)


class Way(NamedTuple):
    """A topic, the writer at its source, and the target."""

    writer: Writer
    target: Side

    @property
    def name(self) -> str:
        return f"{self.writer.side.name} to {self.target.name}"


class Verdict(NamedTuple):
    """What is wrong with the copies of one way, in bodies."""

    bodies: int
    lost_by_source: int
    missing: int
    doubled: int
    disordered: int
    returned: int

    @property
    def right(self) -> bool:
        return not any(self[1:])


def judge(way: Way) -> Verdict:
    """Compare both ends of a way. The copies of a log must be one log's bodies of it, in its order. At the source, a
    body may be as often as it was sent: a copy that came home is one more."""
    writer = way.writer
    here, there = writer.side.anew().read(writer.topic), copies(way, way.target.anew())
    own = f"{writer.side.name}|".encode()
    counts = Counter(body for part in here.values() for body in part if body.startswith(own))
    acknowledged = (b"%s%d|%d" % (own, log, n) for log, end in writer.stored.items() for n in range(end))
    missing = doubled = disordered = 0
    for number in range(LOGS):
        wanted = [body for body in here[number] if body.startswith(own)]
        found = [body for part in there[number] for body in part]
        missing += (Counter(wanted) - Counter(found)).total()
        doubled += (Counter(found) - Counter(wanted)).total()
        disordered += wanted not in there[number] if Counter(wanted) == Counter(found) and wanted else 0
    lost, returned = sum(body not in counts for body in acknowledged), (counts - writer.attempts).total()
    return Verdict(counts.total(), lost, missing, doubled, disordered, returned)


def copies(way: Way, target: Side) -> dict[int, list[list[bytes]]]:
    """The copies at the target of a way, by the log of the source: a list for each log of the target that has some."""
    own, found = f"{way.writer.side.name}|".encode(), defaultdict[int, list[list[bytes]]](list)
    for part in target.read(way.writer.topic).values():
        by_log = defaultdict[int, list[bytes]](list)
        for body in part:
            if body.startswith(own):
                by_log[int(body.split(b"|")[1])].append(body)
        for number, bodies in by_log.items():
            found[number].append(bodies)
    return found


def arrived(way: Way, wanted: dict[int, int]) -> bool:
    """Whether bodies with at least these numbers are at the target of a way. One that just started may not tell."""
    try:
        found = copies(way, way.target)
    except Retry:
        return False
    newest = {number: int(parts[-1][-1].rsplit(b"|")[-1]) for number, parts in found.items()}
    return all(newest.get(number, -1) >= least for number, least in wanted.items())
