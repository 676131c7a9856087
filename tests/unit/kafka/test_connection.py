"""State that a connection keeps between responses."""

import socket

import pytest

from trueup.connectors.kafka.client.connection import BrokerConnection, Frames
from trueup.state.common.errors import Stop


def test_a_broker_that_is_too_old_is_named_with_what_to_do() -> None:
    here, there = socket.socketpair()
    with (
        here,
        there,
        pytest.raises(Stop, match="old:9092 to support version 10 of API 1; found at most version 8; upgrade"),
    ):
        BrokerConnection(here, "old:9092", "trueup", {1: (0, 8)}).send(1, 10, b"")


def test_memory_without_references_is_reused() -> None:
    frames = Frames()
    frames.take(100_000)[:5] = b"first"
    assert frames.take(90_000)[:5] == b"first"


def test_memory_that_is_looked_at_stays_as_it_is() -> None:
    frames = Frames()
    part = frames.take(100_000)[10:20]
    part[:] = bytes(10)
    frames.take(100_000)[:] = b"x" * 100_000
    assert part == bytes(10)


def test_a_larger_answer_gets_memory_of_its_size() -> None:
    frames = Frames()
    frames.take(100_000)
    assert len(frames.take(5_000_000)) == 5_000_000
