"""One Kafka cluster as a copier sees it: the leaders of partitions, and requests to them."""

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from kafka.protocol.admin import DescribeProducersRequest
from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest

from trueup.connectors.contract import Endpoint, LogId
from trueup.connectors.kafka.client.connection import BrokerConnection, connect
from trueup.connectors.kafka.client.fetch_produce import (
    FETCH,
    FETCH_VERSION,
    UNCOMMITTED,
    Fetched,
    FetchStart,
    UnknownTopic,
    fetch_body,
    fetched,
    problem,
)
from trueup.connectors.kafka.client.options import addresses_of, settings_of
from trueup.connectors.kafka.client.topic_ids import IDS, METADATA, ids_body, ids_found, text_of
from trueup.connectors.replication.tail import Bounds
from trueup.state.common.errors import Retry, Stop, TrueupError

EARLIEST, LATEST = -2, -1
_CONSUMER, _DEBUGGER = -1, -2
"""Replica ids: for the end that a consumer sees, and for the leader's end (ReplicaManager.fetchOffset)."""
_METADATA, _LIST_OFFSETS, _DESCRIBE_PRODUCERS = 10, 2, 0  # versions of all brokers from 2.8 on
SETTLE_S = 0.5
_RESTS, _LONGEST_REST_S = 10, 60.0
T = TypeVar("T")


class KafkaClient:
    """Leaders as of the last `refresh`, and one connection per broker for short requests.

    Requests about partitions return a result or an error for each of them. A broker to which no connection can be
    opened rests for ten times as long as the attempt took, at most a minute: one that hangs must not take the time of
    the partitions of the others. Requests to it then fail at once, with the error of the attempt.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.id = ""
        self._settings = settings_of(endpoint)
        self._bootstrap = addresses_of(endpoint)
        self._nodes: dict[int, tuple[str, int]] = {}
        self._leaders: dict[LogId, int | TrueupError] = {}
        self._ids: dict[str, bytes] = {}
        self._asking: dict[tuple[str, int], BrokerConnection] = {}
        self._resting: dict[tuple[str, int], tuple[float, Retry]] = {}

    def cluster_id(self) -> str:
        """The id of the cluster. Raises as `refresh`, and `Retry` while the cluster has none."""
        self.refresh(())
        if not self.id:
            raise Retry(f"{self.endpoint.name} to have a cluster id", "none yet", "the request is retried")
        return self.id

    def refresh(self, topics: Iterable[str]) -> None:
        """Read the leaders of the partitions of these topics. Raises `Retry` if no broker responds, `Stop` if one
        refuses the client."""
        names = sorted(set(topics))
        asked = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        answer = self._ask_any(lambda: MetadataRequest(topics=asked, allow_auto_topic_creation=False))
        self.id = answer.cluster_id or ""
        self._nodes = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        for topic in answer.topics:
            self._forget(topic.name)
            self._ids[topic.name] = topic.topic_id.bytes if topic.topic_id and not topic.error_code else b""
            if topic.error_code:
                self._leaders[LogId(topic.name, -1)] = self._problem(topic.error_code, topic.name)
            for part in topic.partitions:
                where = LogId(topic.name, part.partition_index)
                led = part.leader_id >= 0
                self._leaders[where] = part.leader_id if led else self._problem(part.error_code or 5, str(where))

    def leader(self, partition: LogId) -> int:
        """The node of the leader. Raises `Retry` or `Stop`."""
        node = self._leaders.get(partition, self._leaders.get(LogId(partition.topic, -1)))
        if node is None:
            node = self._problem(3, str(partition))
        if isinstance(node, TrueupError):
            raise node
        return node

    def by_leader(self, places: Mapping[LogId, int]) -> dict[int, dict[LogId, int]]:
        """Places in partitions by the node of the leader, in their order. Raises `Retry` or `Stop`."""
        of_node: dict[int, dict[LogId, int]] = {}
        for partition, offset in places.items():
            of_node.setdefault(self.leader(partition), {})[partition] = offset
        return of_node

    def logs(self, topic: str) -> list[LogId]:
        """The partitions of a topic as of the last `refresh`, in order; empty if it does not exist."""
        return sorted(log for log in self._leaders if log.topic == topic and log.number >= 0)

    def identify(self, topic: str, meant: bytes) -> bytes:
        """The id of a topic that must have the id ``meant`` (empty: any). Raises `UnknownTopic` if it has another."""
        topic_id = self._ids.get(topic, b"")
        if meant and topic_id and meant != topic_id:
            raise UnknownTopic(
                f"topic {topic} of {self.endpoint.name} with id {text_of(meant)}",
                f"it was deleted and recreated with id {text_of(topic_id)}",
                "reset the link's partitions of this topic, or leave it out of the link",
            )
        return meant or topic_id

    def ids(self, node: int, topics: Iterable[str]) -> dict[str, bytes]:
        """The ids of topics as a broker knows them now; empty: it does not know it. Raises `Retry` and `Stop`."""
        broker = self.asking(node)
        broker.send(METADATA, IDS, ids_body(topics))
        return ids_found(broker.receive())

    def take(self, node: int) -> BrokerConnection:
        """A connection to a broker for exclusive use; the caller closes or returns it. Raises `Retry` and `Stop`."""
        address = self._address_of(node)
        return self._asking.pop(address, None) or self._connected(address)

    def give(self, node: int, connection: BrokerConnection) -> None:
        """Return a connection without outstanding requests."""
        address = self._nodes.get(node)
        if address is None or address in self._asking:
            connection.close()
        else:
            self._asking[address] = connection

    def asking(self, node: int) -> BrokerConnection:
        """The connection for short requests to a broker. Raises `Retry` and `Stop`."""
        return self._connection(self._address_of(node))

    def ends(
        self, partitions: Iterable[LogId], which: int = LATEST, replica_id: int = _CONSUMER
    ) -> dict[LogId, int | TrueupError]:
        """The first offset (`EARLIEST`) or the one after the last replicated record (`LATEST`)."""
        kind = ListOffsetsRequest.ListOffsetsTopic

        def request(topics: Mapping[str, list[int]]) -> Any:
            asked = [
                kind(
                    name=name,
                    partitions=[kind.ListOffsetsPartition(partition_index=n, timestamp=which) for n in numbers],
                )
                for name, numbers in topics.items()
            ]
            return ListOffsetsRequest(replica_id=replica_id, isolation_level=0, topics=asked)

        return self._ask_leaders(partitions, request, _LIST_OFFSETS, "read the ends of", lambda part: int(part.offset))

    def settled(self, partitions: Iterable[LogId]) -> dict[LogId, int | TrueupError]:
        """The ends of logs after all records that their leaders have now are replicated or lost.

        A leader hides records that an in-sync replica lacks, so records of a copier may exist invisibly. `Retry`
        if they are not replicated within `SETTLE_S`.
        """
        ends, left = dict[LogId, int | TrueupError](), dict[LogId, int]()
        deadline = time.monotonic() + SETTLE_S
        unsettled = set(partitions)
        while True:
            for partition, end in self.ends(unsettled, replica_id=_DEBUGGER).items():
                if isinstance(end, TrueupError):
                    ends[partition] = end
                else:
                    left[partition] = min(end, left.get(partition, end))
            unsettled -= ends.keys()
            for partition, end in self.ends(unsettled).items():
                if isinstance(end, TrueupError) or end >= left[partition]:
                    ends[partition] = end
            unsettled -= ends.keys()
            if not unsettled or time.monotonic() > deadline:
                return ends | {partition: self._alone(partition) for partition in unsettled}
            time.sleep(SETTLE_S / 10)

    def _alone(self, partition: LogId) -> Retry:
        return Retry(
            f"the last records of {partition} in {self.endpoint.name} on all replicas in sync",
            "only its leader has them, and they may still be lost",
            "check the brokers of its other replicas; nothing is written until this is known",
        )

    def producers(self, partitions: Iterable[LogId]) -> dict[LogId, dict[int, int] | TrueupError]:
        """Producer ids that the leader remembers (KIP-664), each with its last sequence number."""
        return self._producers(partitions, lambda producer: int(producer.last_sequence))

    def epochs(self, partitions: Iterable[LogId]) -> dict[LogId, dict[int, int] | TrueupError]:
        """The same, each with its epoch."""
        return self._producers(partitions, lambda producer: int(producer.producer_epoch))

    def bounds(self, partitions: Iterable[LogId]) -> dict[LogId, Bounds | TrueupError]:
        """Start and end of partitions."""
        logs = list(partitions)
        starts, ends = self.ends(logs, EARLIEST), self.ends(logs)
        return {partition: _bounds(starts[partition], ends[partition]) for partition in logs}

    def start(self, partition: LogId) -> int:
        """The first offset of a partition. Raises its error."""
        offset = self.ends([partition], EARLIEST)[partition]
        if isinstance(offset, TrueupError):
            raise offset
        return offset

    def fetch(
        self, node: int, places: Mapping[LogId, int], partition_bytes: int, total_bytes: int, wait_ms: int
    ) -> dict[LogId, Fetched]:
        """The response of a broker for its partitions, from an offset of each on, with records that are not committed
        (see `fetch_body`). A broker may leave partitions out. Raises `Retry`, `Stop` and `BadBytes`."""
        topics: dict[str, list[FetchStart]] = {}
        for partition, offset in places.items():
            topics.setdefault(partition.topic, []).append(FetchStart(partition.number, offset))
        try:
            connection = self.asking(node)
            connection.send(
                FETCH, FETCH_VERSION, fetch_body(topics, partition_bytes, total_bytes, wait_ms, UNCOMMITTED)
            )
            answers = fetched(connection.receive())
        except TrueupError:
            self.lost(node)
            raise
        return {partition: answer for partition, answer in answers.items() if partition in places}

    def _producers(
        self, partitions: Iterable[LogId], value: Callable[[Any], int]
    ) -> dict[LogId, dict[int, int] | TrueupError]:
        def request(topics: Mapping[str, list[int]]) -> Any:
            kind = DescribeProducersRequest.TopicRequest
            return DescribeProducersRequest(
                topics=[kind(name=name, partition_indexes=numbers) for name, numbers in topics.items()]
            )

        def found(part: Any) -> dict[int, int]:
            return {producer.producer_id: value(producer) for producer in part.active_producers}

        return self._ask_leaders(partitions, request, _DESCRIBE_PRODUCERS, "describe the producers of", found)

    def lost(self, node: int) -> None:
        """Close the connection for short requests after the copier's connection broke."""
        if node in self._nodes:
            self._drop(self._nodes[node])

    def close(self) -> None:
        """Close the connections for short requests."""
        for address in list(self._asking):
            self._drop(address)

    def _ask_leaders(
        self,
        partitions: Iterable[LogId],
        request: Callable[[Mapping[str, list[int]]], Any],
        version: int,
        doing: str,
        value: Callable[[Any], T],
    ) -> dict[LogId, T | TrueupError]:
        results: dict[LogId, T | TrueupError] = {}
        of_node: dict[int, list[LogId]] = {}
        for partition in partitions:
            try:
                of_node.setdefault(self.leader(partition), []).append(partition)
            except TrueupError as error:
                results[partition] = error
        for node, led in of_node.items():
            topics: dict[str, list[int]] = {}
            for partition in led:
                topics.setdefault(partition.topic, []).append(partition.number)
            try:
                answer = self._ask(self._address_of(node), partial(request, topics), version)
            except TrueupError as error:
                results |= dict.fromkeys(led, error)
                continue
            missing = Retry(f"a response to {doing} each partition", "a missing one", "the request is retried")
            results |= dict.fromkeys(led, missing)
            for topic in answer.topics:
                for part in topic.partitions:
                    where = LogId(topic.name, part.partition_index)
                    bad = part.error_code
                    results[where] = self._problem(bad, f"{doing} {where}", plain=False) if bad else value(part)
        return results

    def _ask_any(self, request: Callable[[], Any], version: int = _METADATA) -> Any:
        """The response of the first broker that responds: connected ones first, then known ones, then bootstrap, then
        those that rest."""
        last: Retry | None = None
        addresses = dict.fromkeys((*self._asking, *self._nodes.values(), *self._bootstrap))
        for address in sorted(addresses, key=lambda address: self._rest_of(address) is not None):
            try:
                return self._ask(address, request, version)
            except Retry as error:
                last = error
        assert last
        raise last

    def _ask(self, address: tuple[str, int], request: Callable[[], Any], version: int) -> Any:
        """Retry once on a new connection: a kept connection may have been closed meanwhile."""
        kept = address in self._asking
        try:
            return self._connection(address).ask(request(), version)
        except Retry:
            self._drop(address)
            if not kept:
                raise
        try:
            return self._connection(address).ask(request(), version)
        except Retry:
            self._drop(address)
            raise

    def _connection(self, address: tuple[str, int]) -> BrokerConnection:
        if address not in self._asking:
            self._asking[address] = self._connected(address)
        return self._asking[address]

    def _connected(self, address: tuple[str, int]) -> BrokerConnection:
        began_s = time.monotonic()
        try:
            connection = connect(*address, self._settings)
        except Retry as error:
            now_s = time.monotonic()
            self._resting[address] = now_s + min(_LONGEST_REST_S, _RESTS * (now_s - began_s)), error
            raise
        self._resting.pop(address, None)
        return connection

    def _rest_of(self, address: tuple[str, int]) -> Retry | None:
        """Why no connection to a broker is opened now; None: it is connected or does not rest."""
        until_s, error = self._resting.get(address, (0.0, None))
        return None if address in self._asking or time.monotonic() >= until_s else error

    def _drop(self, address: tuple[str, int]) -> None:
        with contextlib.suppress(KeyError):
            self._asking.pop(address).close()

    def _address_of(self, node: int) -> tuple[str, int]:
        if node not in self._nodes:
            raise Retry(f"broker {node} of {self.endpoint.name}", "an unknown broker", "retrying with new metadata")
        if (rest := self._rest_of(self._nodes[node])) is not None:
            raise Retry(rest.expected, rest.found, rest.todo)
        return self._nodes[node]

    def _forget(self, topic: str) -> None:
        for partition in [partition for partition in self._leaders if partition.topic == topic]:
            del self._leaders[partition]

    def _problem(self, code: int, what: str, plain: bool = True) -> TrueupError:
        return problem(code, f"{'find the leader of ' if plain else ''}{what} in {self.endpoint.name}")


def _bounds(start: int | TrueupError, end: int | TrueupError) -> Bounds | TrueupError:
    if isinstance(start, TrueupError):
        return start
    return end if isinstance(end, TrueupError) else Bounds(start, end)


def cluster_id(endpoint: Endpoint) -> str:
    """The id of the cluster. Raises `Retry` and `Stop`."""
    cluster = KafkaClient(endpoint)
    try:
        cluster.refresh(())
    finally:
        cluster.close()
    if not cluster.id:
        raise Stop(f"{endpoint.name} to have a cluster id", "none", "use Kafka 2.8 or later")
    return cluster.id
