"""A high watermark is used only after it has reached the leader's log end offset."""

from collections.abc import Iterable

import pytest

from trueup.connectors.contract import Endpoint, LogId
from trueup.connectors.kafka.client import cluster
from trueup.connectors.kafka.client.cluster import KafkaClient
from trueup.state.common.errors import Retry, TrueupError

ORDERS = LogId("orders", 0)


class Scripted(KafkaClient):
    """A cluster whose leader returns these log end offsets and high watermarks in turn; the last value repeats."""

    def __init__(self, has: list[int], shows: list[int]) -> None:
        super().__init__(Endpoint("west", "localhost:1", 1))
        self._has, self._shows = has, shows

    def ends(
        self, partitions: Iterable[LogId], which: int = -1, replica_id: int = -1
    ) -> dict[LogId, int | TrueupError]:
        ends = self._shows if replica_id == -1 else self._has
        return {partition: ends.pop(0) if len(ends) > 1 else ends[0] for partition in partitions}


@pytest.mark.parametrize(
    ("has", "shows", "end"),
    [([7], [7], 7), ([7], [5, 6, 7], 7), ([7, 9, 11], [5, 8], 8), ([7, 5], [5], 5)],
    ids=["at once", "once it is replicated", "though others write on", "once a new leader lacks it"],
)
def test_an_end_is_settled(has: list[int], shows: list[int], end: int) -> None:
    assert Scripted(has, shows).settled([ORDERS]) == {ORDERS: end}


def test_an_end_before_records_of_the_leader_alone_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "SETTLE_S", 0.02)
    assert isinstance(Scripted([7], [5]).settled([ORDERS])[ORDERS], Retry)
