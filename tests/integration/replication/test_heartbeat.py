"""Heartbeats between two real clusters."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.replication.mirror import Side, sides
from trueup.connectors.contract import Endpoint
from trueup.connectors.embedded.processes import free_port, wait_until
from trueup.connectors.kafka.replication.heartbeat import KafkaHeartbeats
from trueup.connectors.replication.heartbeat import Heartbeat, HeartbeatState

pytestmark = pytest.mark.servers


def beating(link: str, east: Endpoint, west: Endpoint, topic: str, there: str = "", relay: bool = True) -> Heartbeat:
    return Heartbeat(link, east.bit, KafkaHeartbeats(east, topic), KafkaHeartbeats(west, there or topic), relay)


@pytest.fixture(scope="module")
def both(new_root: Callable[[], Path]) -> Iterator[tuple[Side, Side]]:
    with sides(new_root()) as found:
        yield found


def arrived(heart: Heartbeat) -> HeartbeatState:
    """Send heartbeats until one arrives."""
    found: list[HeartbeatState] = []

    def came() -> bool:
        found.append(heart.beat(1.0))
        return found[-1].lag_ms >= 0

    wait_until(came, 180.0, "a heartbeat to arrive")
    return found[-1]


def test_a_heartbeat_goes_from_source_to_target_and_is_timed(both: tuple[Side, Side]) -> None:
    """Both lags are of one heartbeat as soon as the newest one that left has arrived."""
    found: list[HeartbeatState] = []

    def newest() -> bool:
        found.append(heart.beat(1.0))
        beat = found[-1]
        return beat.lag_ms >= 0 and beat.arrived_ms == beat.left_ms and not beat.source_error + beat.target_error

    with beating("timed", both[0].endpoint, both[1].endpoint, "timed") as heart:
        wait_until(newest, 180.0, "the newest heartbeat to arrive")
    assert 0 < found[-1].arrived_ms <= found[-1].sent_ms
    assert 0 <= found[-1].source_lag_ms <= found[-1].lag_ms


def test_the_topic_does_not_grow_for_ever(both: tuple[Side, Side]) -> None:
    with beating("kept", both[0].endpoint, both[1].endpoint, "kept", "kept-there") as heart:
        arrived(heart)
    settings = [
        side.discovery.topics([name])[name].configs for side, name in zip(both, ("kept", "kept-there"), strict=True)
    ]
    assert [(s["cleanup.policy"].value, s["retention.ms"].value) for s in settings] == [("delete", "3600000")] * 2


def test_two_ways_over_one_topic_neither_loop_nor_take_each_others(both: tuple[Side, Side]) -> None:
    east, west = both
    there = beating("up", east.endpoint, west.endpoint, "shared")
    back = beating("up", west.endpoint, east.endpoint, "shared")
    with there, back:
        beats = [arrived(heart) for _ in range(3) for heart in (there, back)]
        for heart in (there, back):
            heart.beat(0.5)
    written = [{value for _, value, _ in side.read("shared")} for side in both]
    counts = [len(side.read("shared")) for side in both]
    assert (written[0] == written[1], [len(values) for values in written]) == (True, counts)
    assert {beat.arrived_ms for beat in beats[::2]}.isdisjoint(beat.arrived_ms for beat in beats[1::2])


def test_without_a_relay_it_arrives_only_when_the_link_brings_it(both: tuple[Side, Side]) -> None:
    with beating("carried", both[0].endpoint, both[1].endpoint, "carried", relay=False) as heart:
        wait_until(lambda: heart.beat(0.5).source_lag_ms >= 0, 180.0, "a heartbeat to be read at the source")
        assert heart.beat(0.2).arrived_ms == 0


def test_after_a_restart_the_newest_arrival_is_known_but_not_its_lag(both: tuple[Side, Side]) -> None:
    east, west = both
    with beating("again", east.endpoint, west.endpoint, "again") as heart:
        before = arrived(heart)
    gone = Endpoint("east", f"127.0.0.1:{free_port()}", 0)
    found: list[HeartbeatState] = []
    with beating("again", gone, west.endpoint, "again") as heart:

        def came() -> bool:
            found.append(heart.beat(0.2))
            return found[-1].arrived_ms > 0

        wait_until(came, 180.0, "what arrived before")
    assert (found[-1].arrived_ms, found[-1].lag_ms, found[-1].target_error) == (before.arrived_ms, -1, "")
    assert "east" in found[-1].source_error


def test_a_topic_that_is_deleted_is_made_anew(both: tuple[Side, Side]) -> None:
    east, west = both
    with beating("anew", east.endpoint, west.endpoint, "anew") as heart:
        arrived(heart)
        west.admin.client.delete_topics(["anew"])["anew"].result()
        gone_ms = time.time_ns() // 1_000_000
        wait_until(lambda: heart.beat(1.0).arrived_ms > gone_ms, 180.0, "a heartbeat in the new topic")
        assert west.discovery.topics(["anew"], configs=False).keys() == {"anew"}
