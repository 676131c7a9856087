"""Machine-readable output is stable: every API response and every `-o json` output of a fixed application state is
compared with `golden.json`. To regenerate it after an intended change: `python -m tests.unit.cli.test_golden`."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from tests.configuration import parse
from tests.unit.cli import fake_engine, fake_rows
from tests.unit.cli.fake_engine import FakeEngine
from trueup.streams.catalog import all_metrics
from trueup.streams.cli.main import invoke
from trueup.streams.logdirs.metrics import LogDirMetrics
from trueup.streams.replication.metrics import LinkMetrics
from trueup.streams.web.api import create_app, serve

GOLDEN = Path(__file__).with_name("golden.json")
NOW = 1_800_000_000_000
CLOCKS = fake_engine, fake_rows
PROSE = ("title", "why", "remedy", "doc", "expected", "found", "todo")
"""Human-readable fields. Their wording may change."""
COMMANDS = tuple(
    text.split()
    for text in (
        "status",
        "get findings",
        "get findings --verdict drifted --limit 2",
        "get ledgers",
        "get ledgers --all",
        "get ledgers --unreferenced",
        "get bookies",
        "drain 127.0.0.5:3181 127.0.0.6:3181",
        "get drains",
        "undrain 127.0.0.6:3181",
        "get marks",
        "get deletions",
        "get links",
        "get topics",
        "get topics --link east-west",
        "get dirs",
        "get dirs --kafka west",
        "get actions",
        "describe ledger 21",
        "describe link east-west",
        "describe broker east/1",
        "plan",
        "explain",
        "explain too-few-racks",
        "explain logdirs.uneven",
        "config get",
        "approve repair-100-v3",
        "describe link west-east",
    )
)
PATHS = (
    "/readyz",
    "/api",
    "/api/status",
    "/api/bookies",
    "/api/drains",
    "/api/marks",
    "/api/plan",
    "/api/config",
    "/api/findings",
    "/api/findings?rule=placement.lost-member",
    "/api/findings?rule=x",
    "/api/ledgers",
    "/api/ledgers?all=true",
    "/api/unreferenced",
    "/api/unreferenced?limit=1",
    "/api/deletions",
    "/api/links",
    "/api/directories",
    "/api/actions",
    "/api/actions?limit=1",
    "/api/rules",
    "/api/ledgers/21",
    "/api/ledgers/x",
    "/api/ledgers/9999",
    "/api/links/east-west",
    "/api/links/nothing",
    "/api/brokers/east/1",
    "/api/brokers/east/x",
    "/api/links/east-west/refill",
    "/api/bookies?x=1",
)
WRITES = (
    ("/api/links/east-west/reset", {"to": "earliest"}),
    ("/api/links/east-west/reset", {"to": 1}),
    ("/api/links/east-west/refill", {"certain": True}),
    ("/api/links/east-west/refill", {}),
    ("/api/ledgers/100/deletion", {"certain": True}),
    ("/api/ledgers/100/deletion", {}),
    ("/api/topics/east", {"name": "orders"}),
    ("/api/topics/east", {}),
    ("/api/approve", {"ids": ["repair-100-v3"]}),
    ("/api/approve", {"ids": ["nothing"]}),
    ("/api/approve", {}),
)
Answers = dict[str, Any]


def everything() -> FakeEngine:
    """A cluster with data of every stream."""
    made = FakeEngine().drill().linked().forgotten()
    moves = list(made.moves)
    made.shelved()
    made.moves = [*moves, *made.moves]
    kafka = {"east": {"bootstrap": "e:9092", "bit": 0}, "west": {"bootstrap": "w:9092", "bit": 1}}
    link = {"source": "east", "target": "west", "topics": ["orders"]}
    made.settings = parse(
        {
            "cluster": {"zookeeper": "127.0.0.1:2181"},
            "kafka": kafka,
            "links": {"east-west": link},
            "logdirs": {"east": {}},
        }
    )
    return made


def plain(value: Any) -> Any:
    """Without human-readable fields; lists of rules sorted by id, as their order depends on the streams."""
    if isinstance(value, dict):
        return {name: "..." if name in PROSE else plain(part) for name, part in value.items()}
    if isinstance(value, list):
        parts = [plain(part) for part in value]
        ruled = parts and all(isinstance(part, dict) and {"why", "remedy"} <= part.keys() for part in parts)
        return sorted(parts, key=lambda rule: str(rule["id"])) if ruled else parts
    return value


def answers() -> Answers:
    """Status, header and body by method and path."""
    found: Answers = {}
    metrics = all_metrics("east")
    metrics.of(LinkMetrics).declare(["east-west"])
    metrics.of(LogDirMetrics).declare(["east"])
    client = create_app(everything(), metrics).test_client()
    for path in PATHS:
        found[f"GET {path}"] = _answer(client.get(path))
    for number, (path, body) in enumerate(WRITES):
        found[f"POST {path} {number}"] = _answer(client.post(path, json=body))
    found["GET /metrics"] = _metrics(client)
    return found


def _answer(response: Any) -> list[Any]:
    headers = {name: value for name, value in response.headers.items() if name.startswith("Trueup-")}
    return [response.status_code, headers, plain(response.get_json())]


def _metrics(client: FlaskClient) -> list[str]:
    lines = client.get("/metrics").text.splitlines()
    ours = [line for line in lines if line.startswith("trueup_") and "_created" not in line]
    return sorted(re.sub(r'version="[^"]*"', 'version="..."', line) for line in ours)


def commands() -> Answers:
    """Exit code and JSON output by command line."""
    server = serve(create_app(everything(), all_metrics()), "127.0.0.1", 0)
    try:
        return {" ".join(words): _outcome([*words, "-o", "json"], server.port) for words in COMMANDS}
    finally:
        server.stop()


def _outcome(words: list[str], port: int) -> list[Any]:
    address = [] if words[0] == "explain" else ["--api", f"http://127.0.0.1:{port}"]
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        code = invoke([*words, *address])
    return [code, *(plain(json.loads(text.getvalue())) if text.getvalue() else None for text in (out, err))]


@pytest.fixture(autouse=True)
def _no_clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in CLOCKS:
        monkeypatch.setattr(module, "NOW", NOW)
    return


@pytest.mark.parametrize("ask", [answers, commands])
def test_what_programs_read_is_what_it_was(ask: Callable[[], Answers]) -> None:
    expected, found = json.loads(GOLDEN.read_text())[ask.__name__], json.loads(json.dumps(ask()))
    assert {name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)} == set()


if __name__ == "__main__":
    for module in CLOCKS:
        vars(module)["NOW"] = NOW
    made = {ask.__name__: ask() for ask in (answers, commands)}
    GOLDEN.write_text(json.dumps(made, indent=1, sort_keys=True) + "\n")
