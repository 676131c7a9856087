"""When the leaders of a topic are queried for its id."""

from collections.abc import Iterable

import pytest

from trueup.connectors.contract import Endpoint, LogId
from trueup.connectors.kafka.client.cluster import KafkaClient
from trueup.connectors.kafka.replication.records import topic_identity
from trueup.connectors.kafka.replication.records.topic_identity import Identity
from trueup.state.common.errors import TrueupError

A, B = LogId("orders", 0), LogId("orders", 1)


class Asking(Identity):
    """Leaders that have the topic."""

    def __init__(self) -> None:
        super().__init__(KafkaClient(Endpoint("west", "localhost:1", 1)), {"orders": bytes(16)})
        self.asked: list[LogId] = []

    def _refreshed(self, partitions: Iterable[LogId]) -> dict[LogId, TrueupError]:
        del partitions
        return {}

    def _asked(self, partitions: Iterable[LogId]) -> dict[LogId, TrueupError]:
        self.asked += partitions
        return {}


def test_a_response_to_a_request_with_ids_replaces_a_query() -> None:
    identity = Asking()
    identity.proved(A)
    identity.unsure([A, B])
    assert identity.asked == [B]


def test_it_does_not_after_a_failed_request() -> None:
    identity = Asking()
    identity.proved(A)
    identity.doubted(A)
    identity.unsure([A])
    assert identity.asked == [A]


def test_it_does_not_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_identity, "SURE_S", 0.0)
    identity = Asking()
    identity.proved(A)
    identity.unsure([A])
    assert identity.asked == [A]
