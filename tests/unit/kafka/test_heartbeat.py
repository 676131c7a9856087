"""Heartbeats without a broker."""

import gc
import weakref

from trueup.connectors.contract import Endpoint
from trueup.connectors.embedded.processes import free_port
from trueup.connectors.kafka.replication.heartbeat import KafkaHeartbeats


def test_a_closed_producer_with_heartbeats_in_flight_is_released() -> None:
    beats = KafkaHeartbeats(Endpoint("east", f"127.0.0.1:{free_port()}", 0), "beats")
    beats.write(b"link", 1)
    beats.close()
    kept = weakref.ref(beats)
    del beats
    gc.collect()
    assert kept() is None
