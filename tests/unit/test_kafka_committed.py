"""Groups of a cluster that is not there."""

import struct
import threading

import pytest

from connectors.contract import Endpoint
from connectors.kafka.committed import Committed
from connectors.sandbox.processes import free_port, wait_until
from state.errors import BadBytes, BadSettings, Retry


def test_a_cluster_that_does_not_answer_is_tried_again_and_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    groups = Committed(Endpoint("gone", f"127.0.0.1:{free_port()}", 0), 0.2)
    for _ in range(2):
        with pytest.raises(Retry, match="gone to list its groups"):
            groups.states()
    wait_until(lambda: set(threading.enumerate()) <= before, 60.0, "no thread of ours")
    assert set(threading.enumerate()) <= before


def test_options_that_kafka_python_does_not_know_are_told() -> None:
    options = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.config": "a=b"}
    with Committed(Endpoint("east", "a:1", 0, options)) as groups, pytest.raises(BadSettings, match=r"sasl\.mechanism"):
        groups.offsets(["g"])


@pytest.mark.parametrize(
    "error", [IndexError("list index out of range"), TypeError("no buffer"), struct.error("short")]
)
def test_an_answer_that_kafka_python_cannot_read_is_one_error_and_ends_the_connection(error: Exception) -> None:
    class Unreadable:
        closed = False

        def list_groups(self) -> None:
            raise error

        def close(self) -> None:
            self.closed = True

    groups, client = Committed(Endpoint("east", "a:1", 0)), Unreadable()
    groups._client = client
    with pytest.raises(BadBytes, match="an answer of east"):
        groups.states()
    assert client.closed
