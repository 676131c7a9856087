"""Commands against an HTTP server with an in-memory cluster."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from tests.unit.cli.fake_engine import FakeEngine
from trueup.streams.catalog import all_metrics
from trueup.streams.cli.main import invoke
from trueup.streams.web.api import create_app, serve


class CommandResult(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., CommandResult]


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine().drill()


@pytest.fixture
def run(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    server = serve(create_app(engine, all_metrics()), "127.0.0.1", 0)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("TRUEUP_API", f"http://127.0.0.1:{server.port}")

    def command(*words: str) -> CommandResult:
        code = invoke(words)
        return CommandResult(code, *capsys.readouterr())

    yield command
    server.stop()
