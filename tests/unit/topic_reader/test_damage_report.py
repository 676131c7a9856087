"""A read reports damaged replicas to a running Trueup, and goes on if it does not respond."""

import logging
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.fake_engine import FakeEngine
from trueup.connectors.bookkeeper.bookie.reader import Damage
from trueup.connectors.embedded.processes import Port
from trueup.state.placement.damage import ReplicaRange
from trueup.state.settings.roles import Role
from trueup.state.settings.tokens import line_of
from trueup.streams.catalog import all_metrics
from trueup.streams.terminal.client import ApiTarget
from trueup.streams.topic_reader.damage_report import send
from trueup.streams.topic_reader.reader import ReadReport
from trueup.streams.topic_reader.spark.options import SourceOptions, options_of
from trueup.streams.web.access import Access, TokenFile
from trueup.streams.web.api import create_app, serve

TOKENS = {role: f"token-of-{role.text}" for role in Role}


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def address(engine: FakeEngine) -> Iterator[str]:
    typed: Any = engine
    server = serve(create_app(typed, all_metrics()), "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.port}"
    server.stop()


@pytest.fixture
def guarded(engine: FakeEngine, tmp_path: Path) -> Iterator[str]:
    """The address of an API with a token for each role."""
    file = tmp_path / "tokens"
    typed: Any = engine
    file.write_text("".join(f"{line_of(role.text, role, token)}\n" for role, token in TOKENS.items()))
    access = Access(TokenFile(file), lambda _reason: None)
    server = serve(create_app(typed, all_metrics(), access), "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.port}"
    server.stop()


def at(address: str, token: str = "") -> Callable[[], ApiTarget]:
    return lambda: ApiTarget(address, token)


def reporting(address: str, **options: str) -> SourceOptions:
    return options_of({"zookeeper": "127.0.0.1:2181", "topics": "a", "report_to": address, **options})


DAMAGED = Damage(7, 3, "b1:3181", "")


def damaged(*found: Damage) -> ReadReport:
    report = ReadReport()
    for one in found:
        report.damaged(one)
    return report


def test_the_entries_of_a_bookie_are_one_range(engine: FakeEngine, address: str):
    found = damaged(
        *(Damage(7, entry, "b1:3181", "NO_ENTRY", missing=True) for entry in (3, 4, 9)),
        Damage(7, 5, "b2:3181", "a digest"),
    )
    send(at(address), found)
    assert engine.reported == [(ReplicaRange(7, "b1:3181", 3, 9), True), (ReplicaRange(7, "b2:3181", 5, 5), False)]


def test_many_replicas_are_sent_in_parts_and_the_last_are_left_out(engine: FakeEngine, address: str):
    send(at(address), damaged(*(Damage(ledger, 0, "b1:3181", "") for ledger in range(1_001))))
    assert [replica.ledger for replica, _ in engine.reported] == list(range(1_000))


def test_a_trueup_that_does_not_respond_is_a_warning(caplog: pytest.LogCaptureFixture):
    port = Port()
    with caplog.at_level(logging.WARNING):
        send(at(f"http://{port}"), damaged(DAMAGED))
    assert "damaged replicas were not reported" in caplog.text


def test_without_damage_nothing_is_sent(engine: FakeEngine, address: str):
    send(at(address), ReadReport())
    assert engine.reported == []


@pytest.mark.parametrize("token", ["", "wrong", TOKENS[Role.VIEWER]])
def test_a_report_without_the_role_is_refused_and_the_read_goes_on(
    engine: FakeEngine, guarded: str, token: str, caplog: pytest.LogCaptureFixture
):
    send(at(guarded, token), damaged(DAMAGED))
    assert (engine.reported, "damaged replicas were not reported" in caplog.text) == ([], True)


def test_the_token_is_in_the_environment_of_the_executor(
    engine: FakeEngine, guarded: str, monkeypatch: pytest.MonkeyPatch
):
    options = reporting(guarded)
    monkeypatch.setenv("TRUEUP_TOKEN", TOKENS[Role.REPORTER])
    send(options.report_target, damaged(DAMAGED))
    assert [replica.ledger for replica, _ in engine.reported] == [7]


def test_the_token_is_in_a_file_on_the_executor(engine: FakeEngine, guarded: str, tmp_path: Path):
    file = tmp_path / "token"
    options = reporting(guarded, report_token_file=str(file))
    file.write_text(TOKENS[Role.REPORTER] + "\n")
    send(options.report_target, damaged(DAMAGED))
    assert [replica.ledger for replica, _ in engine.reported] == [7]


def test_a_token_is_not_sent_to_executors(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "token"
    file.write_text("planted-in-the-file")
    monkeypatch.setenv("TRUEUP_TOKEN", "planted-in-the-environment")
    options = reporting(address, report_token_file=str(file))
    options.report_target()
    assert b"planted" not in pickle.dumps(options)


def test_a_file_without_a_token_is_a_warning(
    engine: FakeEngine, address: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    send(reporting(address, report_token_file=str(tmp_path / "none")).report_target, damaged(DAMAGED))
    assert (engine.reported, "No such file" in caplog.text) == ([], True)
