"""Groups of a cluster that is not there."""

import threading

import pytest

from connectors.contract import Endpoint
from connectors.kafka.committed import Committed
from connectors.sandbox.processes import free_port, wait_until
from state.errors import BadSettings, Retry


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
