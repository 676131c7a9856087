"""Verifies that the topics that the records path reads and writes are the intended ones.

A request that names a topic follows its name, also after it was recreated. Therefore the leaders are queried with topic
ids: those of the source after every read and before its records are written, which is exact, because a leader that
still has the topic returned no records of another one; those of the target before every write. A response to a
request with the id of the topic counts as such a query.
"""

import time
from collections.abc import Iterable, Mapping

from trueup.connectors.contract import LogId
from trueup.connectors.kafka.client.cluster import KafkaClient
from trueup.connectors.kafka.client.connection import BrokerConnection
from trueup.connectors.kafka.client.fetch_produce import (
    FETCH,
    OFFSET_OUT_OF_RANGE,
    UNCOMMITTED,
    FetchStart,
    UnknownTopic,
    problem,
)
from trueup.connectors.kafka.client.topic_ids import BY_ID, NOWHERE, SURE_S, fetch_by_id, fetched_by_id
from trueup.state.common.errors import Retry, Stop, TrueupError

_ATTEMPTS = 2


class Identity:
    """The topics at one end of a lease. ``meant``: the id of each topic by its name; an empty id means the topic that
    exists at the first query."""

    def __init__(self, cluster: KafkaClient, meant: Mapping[str, bytes]) -> None:
        self._cluster, self._meant = cluster, dict(meant)
        self._stale, self._by_name = True, False
        self._sure_s = dict[LogId, float]()

    def proved(self, partition: LogId) -> None:
        """A leader has responded to a request with the id of the topic."""
        self._sure_s[partition] = time.monotonic()

    def doubted(self, partition: LogId) -> None:
        """A request failed."""
        self._sure_s.pop(partition, None)

    def unsure(self, partitions: Iterable[LogId]) -> dict[LogId, TrueupError]:
        """Those of ``partitions`` whose leaders do not have the intended topic now: `Stop` if it was recreated,
        `UnknownTopic` if the cluster does not know it, another `Retry` if this is unknown."""
        since_s = time.monotonic() - SURE_S
        left = {partition for partition in partitions if self._sure_s.get(partition, since_s) <= since_s}
        if not left:
            return {}
        errors: dict[LogId, TrueupError] = {}
        for _ in range(_ATTEMPTS):
            errors = self._refreshed(left) if self._stale or self._by_name else {}
            left -= {partition for partition, error in errors.items() if isinstance(error, Stop)}
            stopped = {partition: error for partition, error in errors.items() if partition not in left}
            errors = {**stopped, **self._asked(left)}
            left = errors.keys() - stopped.keys()
            self._stale = bool(left)
            if not left:
                break
        return errors

    def _refreshed(self, partitions: Iterable[LogId]) -> dict[LogId, TrueupError]:
        """Read the leaders, and the topics with other ids."""
        logs = list(partitions)
        try:
            self._cluster.refresh(partition.topic for partition in logs)
        except Retry as error:
            return dict.fromkeys(logs, error)
        errors: dict[LogId, TrueupError] = {}
        for partition in logs:
            topic = partition.topic
            try:
                self._meant[topic] = self._cluster.identify(topic, self._meant.get(topic, b""))
            except UnknownTopic as error:
                errors[partition] = Stop(error.expected, error.found, error.todo)
        return errors

    def _asked(self, partitions: Iterable[LogId]) -> dict[LogId, TrueupError]:
        """Query all leaders in parallel; the errors by partition."""
        of_node, errors = self._led(partitions)
        asked: list[tuple[int, BrokerConnection]] = []
        for node, topics in of_node.items():
            try:
                connection = self._cluster.asking(node)
                if connection.takes(FETCH, BY_ID):
                    places = {
                        self._meant[name]: [FetchStart(number, NOWHERE) for number in topics[name]] for name in topics
                    }
                    connection.send(FETCH, BY_ID, fetch_by_id(places, 1, 1, 0, UNCOMMITTED))
                    asked.append((node, connection))
                else:
                    self._by_name = True
            except TrueupError as error:
                errors |= self._lost(node, topics, error)
        for node, connection in asked:
            try:
                answers = fetched_by_id(connection.receive(), {self._meant[name]: name for name in of_node[node]})
            except TrueupError as error:
                errors |= self._lost(node, of_node[node], error)
                continue
            for partition, answer in answers.items():
                if answer.error not in (0, OFFSET_OUT_OF_RANGE):
                    errors[partition] = problem(answer.error, f"find {partition} in {self._cluster.endpoint.name}")
        return errors

    def _led(self, partitions: Iterable[LogId]) -> tuple[dict[int, dict[str, list[int]]], dict[LogId, TrueupError]]:
        """Partitions by leader and topic, and those without a leader. Clusters without topic ids are omitted."""
        of_node: dict[int, dict[str, list[int]]] = {}
        errors: dict[LogId, TrueupError] = {}
        for partition in partitions:
            try:
                node = self._cluster.leader(partition)
            except TrueupError as error:
                errors[partition] = error
                continue
            if self._meant.get(partition.topic):
                of_node.setdefault(node, {}).setdefault(partition.topic, []).append(partition.number)
        return of_node, errors

    def _lost(self, node: int, topics: Mapping[str, Iterable[int]], error: TrueupError) -> dict[LogId, TrueupError]:
        self._cluster.lost(node)
        return {LogId(name, number): error for name, numbers in topics.items() for number in numbers}
