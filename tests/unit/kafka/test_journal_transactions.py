"""Transactions of the journal whose records the client refuses."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from trueup.connectors.kafka.journal import transactions as module
from trueup.connectors.kafka.journal.topics import translated
from trueup.connectors.kafka.journal.transactions import Transactions
from trueup.state.common.errors import Stop

TOO_LARGE = b"too large"
PARTS = [("t", [b"a", b"b"], [b"small", TOO_LARGE])]


class Client:
    """A producer that refuses one record, and whose aborts fail while ``aborts`` is false."""

    def __init__(self, _options: dict[str, Any]) -> None:
        self.done: list[str] = []
        self.aborts = True

    def begin_transaction(self) -> None:
        self.done.append("begin")

    def produce(self, _topic: str, body: bytes, _key: bytes) -> None:
        if body == TOO_LARGE:
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))

    def commit_transaction(self, _timeout_s: float) -> None:
        self.done.append("commit")

    def abort_transaction(self, _timeout_s: float) -> None:
        if not self.aborts:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        self.done.append("abort")


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    made = Client({})
    monkeypatch.setattr(module, "Producer", lambda _: made)
    return made


@pytest.fixture
def journal(client: Client) -> Transactions:
    return Transactions({}, "t", translated, lambda _: None)


def test_a_transaction_with_a_refused_record_is_aborted(client: Client, journal: Transactions) -> None:
    with pytest.raises(Stop):
        journal.write(PARTS, 1.0)
    assert client.done == ["begin", "abort"]


def test_what_could_not_be_aborted_is_never_committed(client: Client, journal: Transactions) -> None:
    client.aborts = False
    with pytest.raises(Stop):
        journal.write(PARTS, 1.0)
    client.aborts = True
    journal.write([("t", [b"a"], [b"small"])], 1.0)
    assert client.done == ["begin", "abort", "begin", "commit"]
