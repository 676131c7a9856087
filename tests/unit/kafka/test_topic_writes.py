"""Writes of the journal while the queue of the producer is full, and after a fatal error of the producer."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from trueup.connectors.kafka.journal import topics as module
from trueup.connectors.kafka.journal.topics import LARGEST, Announcer, TopicClient
from trueup.state.common.errors import Retry, Stop


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


class FailsForGood:
    """The first producer has a fatal error, which it reports for a delivery or when a record is added; the next ones
    write."""

    def __init__(self, reported: bool) -> None:
        self.reported = reported
        self.made = 0
        self.written: list[bytes] = []
        self.calls: list[str] = []

    def __call__(self, options: dict[str, Any]) -> Any:
        self.made += 1
        return FailingProducer(self, options, good=self.made > 1)


class FailingProducer:
    def __init__(self, all_of: FailsForGood, options: dict[str, Any], good: bool) -> None:
        self.all_of, self.good = all_of, good
        self.delivered = options.get("on_delivery")

    def produce(self, _topic: str, body: bytes, _key: bytes) -> None:
        if self.good:
            self.all_of.written.append(body)
        elif not self.all_of.reported:
            raise KafkaException(KafkaError(KafkaError._FATAL, "out of order sequence number"))

    def poll(self, _timeout_s: float) -> int:
        return 0

    def flush(self, _timeout_s: float) -> int:
        if not self.good and self.delivered:
            self.delivered(KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "lost", fatal=True), None)
        return 0

    def purge(self) -> None:
        assert not self.good
        self.all_of.calls.append("purge")


@pytest.mark.parametrize("reported", [False, True])
def test_a_producer_with_a_fatal_error_is_replaced(monkeypatch: pytest.MonkeyPatch, reported: bool) -> None:
    producers = FailsForGood(reported)
    monkeypatch.setattr(module, "Producer", producers)
    client = TopicClient("127.0.0.1:1", {})
    with pytest.raises(Retry):
        client.send([("t", [b"k"], [b"first"])])
    client.send([("t", [b"k"], [b"again"])])
    assert (producers.written, producers.calls) == ([b"again"], ["purge"])


def test_an_announcer_goes_on_after_a_fatal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    producers = FailsForGood(reported=False)
    monkeypatch.setattr(module, "Producer", producers)
    announcer = Announcer({})
    for body in (b"lost", b"next"):
        announcer.publish("t", b"k", body)
    assert (producers.written, producers.calls) == ([b"next"], ["purge"])
