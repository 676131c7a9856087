"""The RocketMQ clusters of the suite. East requires signed requests (ACL 2.0). West requires TLS, and has a second
broker that refuses large messages."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.conformance.harness import CLUSTERS, TOO_LARGE, Written
from tests.integration.rocketmq import administration
from tests.integration.rocketmq.clusters import keys_for, wait_for_figures, wait_for_queues
from tests.replication.audit import OURS
from trueup.connectors.contract import Endpoint, LogId
from trueup.connectors.replication.ports import Columns
from trueup.connectors.rocketmq.client import messages, topics
from trueup.connectors.rocketmq.client.cluster import RocketMqClient
from trueup.connectors.rocketmq.protocol.stored import StoredMessages
from trueup.connectors.rocketmq.replication.ends import bounds
from trueup.connectors.rocketmq.replication.identity import cluster_id
from trueup.connectors.rocketmq.replication.records.binding import Binding
from trueup.connectors.rocketmq.replication.records.columns import Decoder, Encoder
from trueup.connectors.rocketmq.replication.writer import batches
from trueup.sandbox.servers.rocketmq import VERSION, NameServer, RocketMqBroker, Tls

ROCKETMQ = "rocketmq"
MAIN, NARROW = "broker-a", "broker-narrow"
USER = ("admin", "adminsecret12")
KEYS = {"access_key_env": "SUITE_ACCESS_KEY", "secret_key_env": "SUITE_SECRET_KEY"}
"""Settings of east: the variables with the name and the password of its user."""
PER_BATCH, LIMIT_S = 100, 60.0


class RocketMqCluster:
    """Implements `tests.conformance.harness.Cluster`. A narrow topic is on a broker of its own, if there is one."""

    def __init__(
        self,
        name: str,
        new_root: Callable[[], Path],
        user: tuple[str, str] | None = None,
        tls: Tls | None = None,
        version: str = VERSION,
        narrow: bool = False,
    ) -> None:
        plain = Tls(tls.certificate, tls.key) if tls else None  # brokers register without TLS
        self._name, self.name_server = name, NameServer(new_root(), f"names-{name}", plain, version=version)
        self.brokers = [RocketMqBroker(new_root(), [self.name_server], MAIN, user=user, tls=tls, version=version)]
        if narrow:
            least = {"maxMessageSize": TOO_LARGE // 2}
            self.brokers.append(
                RocketMqBroker(new_root(), [self.name_server], NARROW, user=user, tls=tls, settings=least)
            )
        self._options = dict(zip(("access.key", "secret.key"), user or (), strict=False))
        self._options |= {"tls.ca": str(tls.certificate)} if tls else {}
        self._narrow: set[str] = set()
        self.client = RocketMqClient(self.endpoint())

    def start(self) -> None:
        for server in (self.name_server, *self.brokers):
            server.start()

    def wait_ready(self) -> None:
        for server in (self.name_server, *self.brokers):
            server.wait_ready()

    def close(self) -> None:
        self.client.close()
        for server in (*self.brokers, self.name_server):
            server.close()

    def endpoint(self) -> Endpoint:
        return Endpoint(self._name, self.name_server.address, CLUSTERS[self._name], self._options, ROCKETMQ)

    def binding(self, log: LogId) -> Binding:
        """What binds the tags of copies to a queue."""
        return Binding(cluster_id(self.client), log)

    def log(self, topic: str, index: int) -> LogId:
        return LogId(topic, index, NARROW if topic in self._narrow else MAIN)

    def create(self, topic: str, logs: int, narrow: bool = False) -> None:
        if narrow and len(self.brokers) > 1:
            self._narrow.add(topic)
        topics.put_topic(self.client, self.log(topic, 0).place, topics.RocketMqTopic(topic, logs, logs))
        wait_for_queues(self.client, topic, logs, LIMIT_S)

    def create_everywhere(self, topic: str, logs: int) -> None:
        """Create a topic with this number of queues on each broker."""
        for broker in self.brokers:
            topics.put_topic(self.client, broker.name, topics.RocketMqTopic(topic, logs, logs))
        wait_for_queues(self.client, topic, logs * len(self.brokers), LIMIT_S)

    def write(self, topic: str, records: Mapping[int, Sequence[Written]]) -> None:
        for index, some in records.items():
            log = self.log(topic, index)
            for first in range(0, len(some), PER_BATCH):
                rows = some[first : first + PER_BATCH]
                keys, values, stamps, headers = zip(*rows, strict=True)
                made = Encoder().messages(Columns(range(len(rows)), keys, values, stamps, headers), self.binding(log))
                for each in batches(made):
                    self.client.ask(log.place, messages.send_batch(log, each.body, each.born))

    def read(self, topic: str, index: int) -> list[tuple[int, Written]]:
        log, found = self.log(topic, index), list[tuple[int, Written]]()
        for stored in self.stored(log):
            columns = Decoder(raw=False).columns(stored, self.binding(log)).columns
            found += [
                (offset, Written(key, value, stamp, tuple(h for h in headers if not h[0].startswith(OURS))))
                for offset, key, value, stamp, headers in zip(*columns, strict=True)
            ]
        return found

    def stored(self, log: LogId, first: int = 0) -> list[StoredMessages]:
        """All messages of a queue from this offset."""
        at, end, found = first, self.end(log), list[StoredMessages]()
        while at < end:
            pulled = messages.pulled(self.client.ask(log.place, messages.pull(log, at, 1_000)))
            assert pulled.next > at
            at = pulled.next
            found += [pulled.messages] if pulled.messages is not None else []
        return found

    def end(self, log: LogId) -> int:
        found = bounds(self.client, [log])[log]
        if isinstance(found, Exception):
            raise found
        return found.end

    def remake(self, topic: str) -> None:
        administration.drop_topic(self.client, topic)
        self.create(topic, 1)

    def kill(self) -> None:
        for broker in self.brokers:
            broker.kill()

    def kill_one(self, name: str) -> None:
        """Stop one broker without a shutdown. `up` starts it again."""
        next(broker for broker in self.brokers if broker.name == name).kill()

    def up(self) -> None:
        for broker in self.brokers:
            if not broker.alive:
                broker.start()
        for broker in self.brokers:
            broker.wait_ready()
            wait_for_figures(self.client, broker.name)


class RocketMqPair:
    """The clusters east and west."""

    def __init__(self, new_root: Callable[[], Path]) -> None:
        east, west = CLUSTERS
        self.east = RocketMqCluster(east, new_root, user=USER)
        self.west = RocketMqCluster(west, new_root, tls=keys_for(new_root()), narrow=True)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for each in (self.east, self.west):
                stack.callback(each.close)
                each.start()
            for each in (self.east, self.west):
                each.wait_ready()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


def sections(pair: RocketMqPair) -> dict[str, dict[str, object]]:
    """The section `rocketmq` of the settings of an application that has `USER` in the variables of `KEYS`."""
    east, west = pair.east.endpoint(), pair.west.endpoint()
    return {
        "east": {"namesrv": east.address, "bit": east.bit, **KEYS},
        "west": {"namesrv": west.address, "bit": west.bit, "options": dict(west.options)},
    }
