"""The admin client is replaced after it receives no response from any broker."""

from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException

from trueup.connectors.contract import Endpoint
from trueup.connectors.kafka.client import admin
from trueup.connectors.kafka.client.admin import SILENT, Admin
from trueup.state.common.errors import Retry, Unknown


class FakeClient:
    """Returns no response, or ``answer``."""

    made: list["FakeClient"]

    def __init__(self, _config: object) -> None:
        self.answer: object = None
        self.made.append(self)

    def poll(self, _wait_s: float) -> None:
        """No response arrives."""

    def describe_cluster(self, request_timeout: float) -> "Future[object]":
        future: Future[object] = Future()
        if self.answer is None:
            future.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{request_timeout} s")))
        else:
            future.set_result(self.answer)
        return future


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Admin:
    FakeClient.made = []
    monkeypatch.setattr(admin, "AdminClient", FakeClient)
    return Admin(Endpoint("east", "e:9092", 0))


def fail(cluster: Admin, times: int) -> None:
    for _ in range(times):
        with pytest.raises(Retry):
            cluster.ask("describe the cluster", cluster.client.describe_cluster)


def test_a_client_that_stays_silent_is_made_anew(cluster: Admin) -> None:
    fail(cluster, SILENT)
    FakeClient.made[-1].answer = "well"
    assert cluster.ask("describe the cluster", cluster.client.describe_cluster) == "well"


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._DESTROY_BROKER])
def test_a_change_whose_response_is_lost_may_have_happened(cluster: Admin, code: int) -> None:
    future: Future[object] = Future()
    future.set_exception(KafkaException(KafkaError(code)))
    found = cluster.do_each("create", lambda request_timeout: {"orders": future})
    assert isinstance(found["orders"], Unknown)


def test_a_client_that_answers_between_is_kept(cluster: Admin) -> None:
    for _ in range(2):
        fail(cluster, SILENT - 1)
        FakeClient.made[0].answer = "well"
        cluster.ask("describe the cluster", cluster.client.describe_cluster)
        FakeClient.made[0].answer = None
    assert len(FakeClient.made) == 1
