"""Heartbeats of an earlier run whose clock was ahead."""

from collections.abc import Iterable

from trueup.connectors.clock import now_ms
from trueup.connectors.replication.heartbeat import Heartbeat, HeartbeatState

HOUR_MS = 3_600_000


class Log:
    """A heartbeat log that holds these heartbeats."""

    error = ""

    def __init__(self, *held: int) -> None:
        self.held, self.written_ms = list(held), 0

    def prepare(self) -> None: ...

    def close(self) -> None: ...

    def write(self, _key: bytes, sent_ms: int) -> None:
        self.held.append(sent_ms)
        self.written_ms = sent_ms

    def read(self, _key: bytes) -> Iterable[int]:
        found, self.held = self.held, []
        return found


class Dead(Log):
    """A target that accepts writes and returns only what it held."""

    def write(self, _key: bytes, sent_ms: int) -> None:
        self.written_ms = sent_ms


def beat(target: Log) -> HeartbeatState:
    with Heartbeat("l", 0, Log(now_ms() + HOUR_MS), target) as heart:
        return heart.beat(wait_s=0.0)


def test_a_heartbeat_of_the_future_is_no_sign_that_the_target_responds() -> None:
    assert beat(Dead(now_ms() + HOUR_MS)).arrived_ms == 0


def test_a_heartbeat_of_now_arrives_beside_one_of_the_future() -> None:
    found = beat(Log(now_ms() + HOUR_MS))
    assert (found.arrived_ms == found.sent_ms > 0, found.lag_ms < HOUR_MS) == (True, True)
