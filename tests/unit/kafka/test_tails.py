"""Reading the tails of target partitions."""

import time
from collections.abc import Mapping
from types import SimpleNamespace

import pytest

from tests.property.codecs.test_partition import batch_of
from trueup.connectors.contract import LogId
from trueup.connectors.kafka.client.fetch_produce import Fetched
from trueup.connectors.kafka.replication.records.tails import TIMEOUT_S, KafkaTails
from trueup.connectors.replication.tail import Bounds, TailSearch

LOG = LogId("orders", 0)


class SlowCluster:
    """A cluster that needs a second for each record."""

    endpoint = SimpleNamespace(name="west")

    def __init__(self, end: int) -> None:
        self.end, self.now_s = end, 0.0

    def refresh(self, topics: object) -> None:
        del topics

    def by_leader(self, places: Mapping[LogId, int]) -> dict[int, Mapping[LogId, int]]:
        return {1: places}

    def fetch(self, _node: int, places: Mapping[LogId, int], *_limits: int) -> dict[LogId, Fetched]:
        self.now_s += 1.0
        return {
            log: Fetched(0, self.end, 0, (), memoryview(bytearray(batch_of(at, [0], 1, -1, 0))))
            for log, at in places.items()
        }


def test_a_tail_that_takes_longer_than_the_time_limit_is_read_while_records_arrive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    end = int(3 * TIMEOUT_S)
    cluster = SlowCluster(end)
    monkeypatch.setattr(time, "monotonic", lambda: cluster.now_s)
    search = TailSearch(Bounds(0, end), {b"12345678": 0})
    assert KafkaTails(cluster, 7).run({LOG: search}) == {}  # type: ignore[arg-type]
