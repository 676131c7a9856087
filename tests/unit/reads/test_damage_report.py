"""A read reports damaged replicas to a running Trueup, and goes on if it does not respond."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.cli.fake_engine import FakeEngine
from trueup.connectors.bookkeeper.bookie.reader import Damage
from trueup.connectors.sandbox.jvm.processes import Port
from trueup.state.placement.damage import ReplicaRange
from trueup.streams.catalog import all_metrics
from trueup.streams.reads.damage_report import send
from trueup.streams.reads.reader import ReadReport
from trueup.streams.web.api import create_app, serve


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def address(engine: FakeEngine) -> Iterator[str]:
    typed: Any = engine
    server = serve(create_app(typed, all_metrics()), "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.port}"
    server.stop()


def damaged(*found: Damage) -> ReadReport:
    report = ReadReport()
    for one in found:
        report.damaged(one)
    return report


def test_the_entries_of_a_bookie_are_one_range(engine: FakeEngine, address: str):
    found = damaged(*(Damage(7, entry, "b1:3181", "NO_ENTRY", missing=True) for entry in (3, 4, 9)),
                    Damage(7, 5, "b2:3181", "a digest"))  # fmt: skip
    send(address, found)
    assert engine.reported == [(ReplicaRange(7, "b1:3181", 3, 9), True), (ReplicaRange(7, "b2:3181", 5, 5), False)]


def test_many_replicas_are_sent_in_parts_and_the_last_are_left_out(engine: FakeEngine, address: str):
    send(address, damaged(*(Damage(ledger, 0, "b1:3181", "") for ledger in range(1_001))))
    assert [replica.ledger for replica, _ in engine.reported] == list(range(1_000))


def test_a_trueup_that_does_not_respond_is_a_warning(caplog: pytest.LogCaptureFixture):
    port = Port()
    with caplog.at_level(logging.WARNING):
        send(f"http://{port}", damaged(Damage(7, 3, "b1:3181", "")))
    assert "damaged replicas were not reported" in caplog.text


def test_without_damage_nothing_is_sent(engine: FakeEngine, address: str):
    send(address, ReadReport())
    assert engine.reported == []
