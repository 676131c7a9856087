"""The shop on RocketMQ: messages of every kind are written with Trueup's client, and read with RocketMQ's Java client.

What an order is made of follows from its key. So a stored message, or the record that a link made of it, can be
compared with what was written. Queue n of an order is its number modulo the queues; each queue has its own writer,
which waits for each response: this keeps the order of the queue.
"""

import threading
from pathlib import Path
from typing import Any, NamedTuple

from trueup.connectors.contract import Endpoint, LogId
from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.replication.headers import MARK
from trueup.connectors.rocketmq.client import group_offsets, messages, topics
from trueup.connectors.rocketmq.client.cluster import RocketMqClient
from trueup.connectors.rocketmq.protocol import flags, properties
from trueup.connectors.rocketmq.protocol.compression import LZ4, ZLIB, ZSTD, closed, opened
from trueup.connectors.rocketmq.replication.records import names
from trueup.sandbox.demo.shop import GROUP, LEAVE_S, PARTITIONS, TOPIC, Billing, KafkaSite, Log, Orders
from trueup.sandbox.demo.waiting import Say, silent, start
from trueup.sandbox.gateway import Gateway
from trueup.sandbox.servers.rocketmq import SET, RocketMq
from trueup.state.common.errors import TrueupError
from trueup.state.replication.provenance import HEADER

PER_S = 150.0
PRODUCERS = "shop"
RETRY_S = 0.2
COMMIT_MS, LOOK_MS = 250, 1_000
DELAYED, TRANSACTIONAL, COMPRESSED = "delayed", "transactional", "compressed"
_SHORTEST, _CUSTOMERS, _PULL = "1", 8, 1_000
_TAGS, _KINDS = ("new", "paid", "sent"), (LZ4, ZSTD, ZLIB)
_OURS = frozenset({HEADER, MARK, names.NATIVE})
_TRANSACTION = "__transactionId__"
_ADDED = frozenset(name.decode() for name in names.STORED_BY_BROKER | names.TAG)


class ShopOrder(NamedTuple):
    """What a message must be, wherever it is."""

    body: bytes
    raw: bytes
    """The body as sent. It is compressed if the order is of the kind `COMPRESSED`."""
    sys: int
    """The bits of the system flag for the compression of the sent body; 0 if it is not compressed."""
    born_ms: int
    properties: dict[str, str]
    kinds: frozenset[str]

    @property
    def fifo(self) -> str:
        """The FIFO group; empty for a delayed order."""
        return self.properties.get("__SHARDINGKEY", "")

    @property
    def committed(self) -> dict[str, str]:
        """What the broker adds when a transaction is committed."""
        return {_TRANSACTION: self.properties["UNIQ_KEY"]} if TRANSACTIONAL in self.kinds else {}


def order_of(key: str, begun_ms: int) -> ShopOrder:
    """The order with this key, in a shop that began at this time."""
    number = int(key.partition("-")[2])
    at, queue = divmod(number, PARTITIONS)
    kinds = {name for name, every in ((DELAYED, 20), (TRANSACTIONAL, 15), (COMPRESSED, 4)) if at % every == every // 2}
    kinds -= {TRANSACTIONAL} if DELAYED in kinds else set()
    body = f"order {key} ".encode() * 10 + bytes(range(256))
    raw, sys = closed(body, _KINDS[at // 4 % len(_KINDS)]) if COMPRESSED in kinds else (body, 0)
    texts = {"KEYS": key, "TAGS": _TAGS[at % len(_TAGS)], "UNIQ_KEY": f"{key}-unique", "note": f"ü€𝄞 a=b;c {number}"}
    if DELAYED not in kinds:
        texts["__SHARDINGKEY"] = f"customer-{queue}-{at % _CUSTOMERS}"
    return ShopOrder(body, raw, sys, begun_ms + number, texts, frozenset(kinds))


def same_message(
    key: str, begun_ms: int, raw: bytes, sys: int, born_ms: int, stored_properties: dict[str, str]
) -> bool:
    """Whether a stored message, with these bytes and properties, is what was written, compressed as it was."""
    order = order_of(key, begun_ms)
    kept = {name: value for name, value in stored_properties.items() if name not in _ADDED}
    born_ms = int(stored_properties.get(names.TIME.decode(), born_ms))
    there = (raw, sys & flags.KEPT, born_ms, kept, bytes(opened(raw, sys, key)))
    return there == (order.raw, order.sys, order.born_ms, order.properties | order.committed, order.body)


def same_record(key: str, begun_ms: int, value: bytes, born_ms: int, headers: list[tuple[str, bytes]]) -> bool:
    """Whether a record of Kafka is the order that was written to RocketMQ: properties are headers, and the body is not
    compressed."""
    order = order_of(key, begun_ms)
    kept = [(name, content.decode()) for name, content in headers if name not in _OURS]
    native = b"".join(content for name, content in headers if name == names.NATIVE)
    expected = sorted((name, text) for name, text in order.properties.items() if name != "KEYS")
    same = properties.encoded(order.committed) in native if order.committed else not native
    return same and (value, born_ms, sorted(kept)) == (order.body, order.born_ms, expected)


class RocketMqSite:
    """A small cluster of RocketMQ. ``begun_ms``: the time when the shop began, in ms since 1970; ``say``: prints what
    it waits for."""

    def __init__(self, servers: RocketMq, begun_ms: int, say: Say = silent) -> None:
        self.name, self.address, self.servers = servers.name, servers.address, servers
        self._begun_ms, self._say = begun_ms, say
        self._client = client(self.name, self.address)

    def up(self) -> None:
        """Start the broker and wait until it is registered."""
        start({self.servers.broker.name: self.servers.broker}, self._say)

    def kill(self) -> None:
        """SIGKILL of the broker."""
        self.servers.broker.kill()

    def create(self) -> None:
        """Create the topic."""
        topics.put_topic(self._client, self.servers.broker.name, topics.RocketMqTopic(TOPIC, PARTITIONS, PARTITIONS))

    def log(self) -> Log:
        """All orders."""
        return {queue: [key for key, _ in part] for queue, part in self._read().items()}

    def altered(self) -> list[str]:
        """Messages that are not what was written."""
        return [key for part in self._read().values() for key, same in part if not same]

    def ends(self) -> list[int]:
        """End offset of each queue."""
        logs = self._logs()
        return [messages.offset_of(self._client.ask(log.place, messages.end_offset(log))) for log in logs]

    def committed(self) -> list[int]:
        """Committed offset of the group in each queue; 0: none."""
        return [group_offsets.offset(self._client, GROUP, log) or 0 for log in self._logs()]

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _logs(self) -> list[LogId]:
        return [log_of(self.name, queue) for queue in range(PARTITIONS)]

    def _read(self) -> dict[int, list[tuple[str, bool]]]:
        """The key of each message, and whether it is what was written."""
        parts: dict[int, list[tuple[str, bool]]] = {}
        for log, end in zip(self._logs(), self.ends(), strict=True):
            part, at = parts.setdefault(log.number, []), 0
            while at < end:
                pulled = messages.pulled(self._client.ask(log.place, messages.pull(log, at, _PULL)))
                at, stored = max(at + 1, pulled.next), pulled.messages
                if stored is None:
                    continue
                for raw, sys, born, more in zip(stored.bodies, stored.sys, stored.born, stored.properties, strict=True):
                    texts = properties.decoded(more)
                    key = texts["KEYS"]
                    part.append((key, same_message(key, self._begun_ms, bytes(raw), sys, born, texts)))
        return parts


class LakeSite(KafkaSite):
    """The Kafka cluster to which orders are copied. ``begun_ms``: the time when the shop began, in ms since 1970."""

    def __init__(self, name: str, broker: Kafka, begun_ms: int, say: Say = silent) -> None:
        super().__init__(name, broker, say)
        self._begun_ms = begun_ms

    def altered(self) -> list[str]:
        """Records that are not what was written."""
        return [
            record.key().decode()
            for part in self.records().values()
            for record in part
            if not same_record(
                record.key().decode(), self._begun_ms, record.value(), record.timestamp()[1], record.headers()
            )
        ]


class RocketMqOrders(Orders):
    """A writer for each queue."""

    def __init__(self, begun_ms: int) -> None:
        super().__init__(PARTITIONS, PER_S)
        self._begun_ms = begun_ms

    def ordered(self, key: str) -> bool:
        """A delayed order appears when its time has come."""
        return DELAYED not in order_of(key, self._begun_ms).kinds

    def write(self, cluster: str, address: str, stop: threading.Event, writer: int) -> None:
        """Send orders one by one until it has to stop."""
        with client(cluster, address) as sender:
            for number in self.due(cluster, stop, writer):
                key = f"{cluster}-{number}"
                try:
                    self._send(sender, log_of(cluster, writer), order_of(key, self._begun_ms))
                except TrueupError:  # whether it is stored is unknown
                    stop.wait(RETRY_S)
                else:
                    self.acknowledged[cluster].add(key)

    @staticmethod
    def _send(sender: RocketMqClient, log: LogId, order: ShopOrder) -> None:
        """Send an order; one with a transaction is acknowledged when that is committed."""
        effects = {"DELAY": _SHORTEST} if DELAYED in order.kinds else {}
        effects |= {"TRAN_MSG": "true", "PGROUP": PRODUCERS} if TRANSACTIONAL in order.kinds else {}
        raw = properties.encoded(order.properties | effects)
        request = messages.send(log, order.raw, order.born_ms, raw, sys=order.sys, group=PRODUCERS)
        half = messages.sent(sender.ask(log.place, request))
        if TRANSACTIONAL in order.kinds:
            unique = order.properties["UNIQ_KEY"]
            sender.ask(log.place, messages.end_transaction(half, PRODUCERS, unique))


class JavaBilling(Billing):
    """One member: a DefaultMQPushConsumer, which reads each queue in order, in a JVM of its own."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._gateway = Gateway("billing", root, SET)
        self._gateway.listen()
        self._java = self._gateway.java
        self._java.java.lang.System.setProperty("user.home", str(root))
        self._member: tuple[Any, _Listener] | None = None

    def join(self, cluster: str, address: str, fresh: bool) -> None:
        """Start the consumer. Without an offset, a group that is not fresh would skip what is stored."""
        rocketmq = self._java.org.apache.rocketmq
        where = rocketmq.common.consumer.ConsumeFromWhere
        consumer = rocketmq.client.consumer.DefaultMQPushConsumer(GROUP)
        consumer.setNamesrvAddr(address)
        consumer.setInstanceName(cluster)
        consumer.setConsumeFromWhere(where.CONSUME_FROM_FIRST_OFFSET if fresh else where.CONSUME_FROM_LAST_OFFSET)
        consumer.setPersistConsumerOffsetInterval(COMMIT_MS)
        consumer.setPollNameServerInterval(LOOK_MS)
        consumer.setHeartbeatBrokerInterval(LOOK_MS)
        consumer.setConsumeThreadMin(PARTITIONS)
        consumer.setConsumeThreadMax(PARTITIONS)
        consumer.subscribe(TOPIC, "*")
        listener = _Listener(self, cluster, rocketmq.client.consumer.listener.ConsumeOrderlyStatus)
        consumer.registerMessageListener(listener)
        consumer.start()
        self._member = consumer, listener

    def end(self) -> None:
        """Leave the group."""
        if self._member is None:
            return
        consumer, listener = self._member
        self._member, listener.left = None, True
        leaving = threading.Thread(target=consumer.shutdown, daemon=True)
        leaving.start()
        leaving.join(LEAVE_S)  # a member of a killed broker may take long; it reads nothing more

    def close(self) -> None:
        """End the JVM."""
        self._gateway.close()


class _Listener:
    """A MessageListenerOrderly. RocketMQ gives it the messages of one queue at a time, on one thread."""

    class Java:
        """Read by py4j."""

        implements = ("org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly",)

    def __init__(self, billing: Billing, cluster: str, status: Any) -> None:
        self._billing, self._cluster = billing, cluster
        self._done, self._later = status.SUCCESS, status.SUSPEND_CURRENT_QUEUE_A_MOMENT
        self.left = False

    def consumeMessage(self, some: Any, context: Any) -> Any:  # noqa: N802 - Java's name
        """Read messages, unless the member has left."""
        queue = context.getMessageQueue().getQueueId()
        for message in some:
            if self.left:
                return self._later
            self._billing.take(self._cluster, queue, message.getKeys())
        return self._done


def client(cluster: str, address: str) -> RocketMqClient:
    """A client of a cluster."""
    return RocketMqClient(Endpoint(cluster, address, 0, system="rocketmq"))


def log_of(cluster: str, queue: int) -> LogId:
    """A queue of the topic."""
    return LogId(TOPIC, queue, f"{cluster}-broker")
