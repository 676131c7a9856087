"""Offsets in the responses of a client."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, TopicPartition

from trueup.connectors.contract import Endpoint, LogId
from trueup.connectors.kafka.client.metadata import Discovery
from trueup.state.common.errors import Retry
from trueup.state.replication.settings import Start

LOG = LogId("orders", 0)
INVALID = -1001
"""rd_kafka_offset_t OFFSET_INVALID, which librdkafka returned without an error for a new topic's partition."""


class Answers:
    """An admin client whose responses have one offset for each kind of request."""

    name = "kafka east"

    def __init__(self, *offsets: int) -> None:
        self._left = list(offsets)
        self.client = SimpleNamespace(list_offsets=None)

    def ask_each(self, _doing: str, _call: object, asked: dict[TopicPartition, object], **_more: object) -> Any:
        return {place: SimpleNamespace(offset=self._left.pop(0)) for place in asked}


def discovery(*offsets: int) -> Discovery:
    return Discovery(Endpoint("east", "127.0.0.1:9092", 0), Answers(*offsets))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["earliest", "latest"])
@pytest.mark.parametrize("offset", [INVALID, -1])
def test_a_negative_offset_is_no_start(kind: Any, offset: int) -> None:
    assert isinstance(discovery(offset).starts([LOG], Start(kind))[LOG], Retry)


def test_a_time_after_all_records_is_the_end() -> None:
    assert discovery(7, -1).starts([LOG], Start("time", at_ms=1)) == {LOG: 7}


def test_a_time_in_an_open_transaction_is_the_end_of_the_committed_records() -> None:
    assert discovery(7, 9).starts([LOG], Start("time", at_ms=1)) == {LOG: 7}


def test_the_latest_offset_is_the_end_of_the_committed_records() -> None:
    levels: list[object] = []
    found = discovery(7)
    ask = found.admin.ask_each
    found.admin.ask_each = lambda *given, **more: levels.append(more["isolation_level"]) or ask(*given, **more)  # type: ignore[assignment,method-assign,func-returns-value]
    found.starts([LOG], Start("latest"))
    assert levels == [IsolationLevel.READ_COMMITTED]


def test_an_invalid_offset_of_a_time_is_no_start() -> None:
    assert isinstance(discovery(7, INVALID).starts([LOG], Start("time", at_ms=1))[LOG], Retry)


def test_a_log_without_a_valid_start_is_not_known() -> None:
    assert "-1001" in discovery(INVALID, 9).logs([LOG])[LOG].error
