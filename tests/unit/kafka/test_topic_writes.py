"""Writes of the journal while the queue of the producer is full."""

from typing import Any

import pytest

from trueup.connectors.kafka.journal import topics as module
from trueup.connectors.kafka.journal.topics import LARGEST, TopicClient
from trueup.state.common.errors import Stop


class FullOnce:
    """A producer whose queue has room after the first poll."""

    def __init__(self, _options: dict[str, Any]) -> None:
        self.polled = False
        self.sent: list[tuple[Any, ...]] = []

    def produce(self, *record: Any) -> None:
        if not self.polled:
            raise BufferError
        self.sent.append(record)

    def poll(self, _timeout_s: float) -> int:
        self.polled = True
        return 0

    def flush(self, _timeout_s: float) -> int:
        return 0


def test_a_record_that_waits_for_room_keeps_its_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    full = FullOnce({})
    monkeypatch.setattr(module, "Producer", lambda _: full)
    TopicClient("127.0.0.1:1", {}).send([("t", [b"k"], [b"v"])], partition=3)
    assert full.sent == [("t", b"v", b"k", 3)]


def test_a_record_that_is_too_large_needs_an_operator() -> None:
    with pytest.raises(Stop):
        TopicClient("127.0.0.1:1", {}).send([("t", [b"k"], [bytes(LARGEST + 1)])], 0.1)
