"""A broker that does not accept connections does not take the time of the partitions of other brokers."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from trueup.connectors.contract import Endpoint
from trueup.connectors.kafka.client import cluster
from trueup.connectors.kafka.client.cluster import KafkaClient
from trueup.state.common.errors import Retry

CONNECT_S = 5.0
GOOD, HANGS = 1, 2


class TwoBrokers(KafkaClient):
    """A cluster of two brokers, of which one does not answer. ``tried``: the ports to which it connected."""

    def __init__(self, patch: pytest.MonkeyPatch, takes_s: float) -> None:
        super().__init__(Endpoint("east", f"east:{HANGS}", 0))
        self._nodes = {node: ("east", node) for node in (HANGS, GOOD)}
        self.now, self.takes_s = 100.0, takes_s
        self.tried: list[int] = []
        self.hangs = HANGS
        patch.setattr(cluster, "connect", self._connect)
        patch.setattr(cluster, "time", SimpleNamespace(monotonic=lambda: self.now))

    def _connect(self, host: str, port: int, settings: Mapping[str, Any]) -> Any:
        del host, settings
        self.tried.append(port)
        if port == self.hangs:
            self.now += self.takes_s
            raise Retry("a response from the broker", "none", "the connection is retried")
        return SimpleNamespace(ask=lambda *_: SimpleNamespace(cluster_id="c", brokers=[], topics=[]))

    def ask(self, times: int) -> None:
        """Connect to the broker that does not answer, for each of its partitions."""
        for _ in range(times):
            with pytest.raises(Retry, match="a response from the broker"):
                self.asking(HANGS)


@pytest.mark.parametrize(("takes_s", "rests_s"), [(0.02, 0.2), (CONNECT_S, 50.0), (20.0, 60.0)])
def test_a_broker_that_does_not_answer_rests_ten_times_as_long_as_it_took(
    monkeypatch: pytest.MonkeyPatch, takes_s: float, rests_s: float
) -> None:
    brokers = TwoBrokers(monkeypatch, takes_s)
    brokers.ask(30)
    brokers.now += rests_s - 0.001
    brokers.ask(30)
    early = len(brokers.tried)
    brokers.now += 0.002
    brokers.ask(1)
    assert (early, len(brokers.tried)) == (1, 2)


def test_the_leaders_are_read_from_another_broker_while_one_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = TwoBrokers(monkeypatch, CONNECT_S)
    brokers.ask(1)
    brokers.cluster_id()
    assert brokers.tried == [HANGS, GOOD]


def test_a_broker_that_answered_does_not_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = TwoBrokers(monkeypatch, CONNECT_S)
    brokers.ask(1)
    del brokers._nodes[GOOD]
    brokers.hangs = 0
    brokers.cluster_id()
    brokers._nodes = {HANGS: ("east", HANGS)}
    brokers.take(HANGS)
    brokers.take(HANGS)
    assert brokers.tried == [HANGS] * 3


def test_a_cluster_of_which_all_brokers_rest_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = TwoBrokers(monkeypatch, CONNECT_S)
    del brokers._nodes[GOOD]
    brokers.ask(1)
    with pytest.raises(Retry):
        brokers.cluster_id()
    assert brokers.tried == [HANGS, HANGS]
