"""Unreferenced ledgers and their deletion in the API, the status page, the metrics and the command line."""

import json
from collections.abc import Callable, Iterator

import pytest
from flask.testing import FlaskClient
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.cli.fake_engine import FakeEngine
from tests.unit.cli.fake_rows import DAY, NOW, finding
from tests.unit.cli.outline import section
from trueup.state.deletion.lifecycle import ENDS, DeletionStage
from trueup.streams.catalog import all_metrics
from trueup.streams.cli.main import invoke
from trueup.streams.deletion.metrics import DeletionMetrics
from trueup.streams.runtime.metrics import Metrics
from trueup.streams.terminal.out import LONGEST
from trueup.streams.web.api import create_app, serve

MIB = 1 << 20
OWNER = "public/default/persistent/orders"
USED = {
    "component": "data",
    "owner": OWNER,
    "cursor": "",
    "rule": "",
    "reason": "",
    "since_ms": None,
    "deletion": None,
    "nodes": [
        {
            "path": f"/managed-ledgers/{OWNER}",
            "status": "readable",
            "version": 4,
            "points": True,
            "ledgers": 2,
            "highest": 30,
            "error": "",
        }
    ],
    "objects": ["archive/u-ledger-10: 5 bytes, deletion.copy-replaced"],
}


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine().forgotten()


@pytest.fixture
def metrics() -> Metrics:
    return all_metrics("east")


@pytest.fixture
def client(engine: FakeEngine, metrics: Metrics) -> FlaskClient:
    return create_app(engine, metrics).test_client()


def values(text: str, name: str) -> dict[tuple[str, ...], float]:
    """Values by the labels other than ``cluster``."""
    families = text_string_to_metric_families(text)
    return {
        tuple(label for key, label in sorted(s.labels.items()) if key != "cluster"): s.value
        for f in families
        for s in f.samples
        if s.name == name
    }


def test_unreferenced_ledgers(client: FlaskClient) -> None:
    assert [row["ledger"] for row in client.get("/api/unreferenced?limit=1").get_json()] == [21]


def test_what_cannot_be_asked_of_them(client: FlaskClient) -> None:
    assert client.get("/api/unreferenced?rule=x").status_code == 400


def test_deletions(client: FlaskClient) -> None:
    assert [row["stage"] for row in client.get("/api/deletions").get_json()] == ["marked", "gone-from-metadata"]


def test_the_page_shows_what_is_forgotten_and_how_far_it_is(client: FlaskClient) -> None:
    shown = section(client.get("/").text, "deletion")
    words = (
        "mode approve",
        "2 unreferenced ledgers",
        "6.0 MiB",
        "1 marked",
        "1 gone-from-metadata",
        "public/default",
        "owner-gone",
    )
    assert [word for word in words if word not in shown] == []


def test_the_page_shows_that_nothing_is_forgotten(client: FlaskClient, engine: FakeEngine) -> None:
    engine.state["deletion"] |= {"forgotten": [], "deletions": {}, "oldest_ms": None, "executing_ms": None}
    shown = section(client.get("/").text, "deletion")
    assert ("No unreferenced ledgers." in shown, "in progress: none" in shown) == (True, True)


def test_without_owners_the_page_does_not_mention_them() -> None:
    quiet = create_app(FakeEngine(), all_metrics()).test_client()
    assert section(quiet.get("/").text, "deletion").strip() == ""


def test_metrics_of_what_is_forgotten_follow_what_there_is(client: FlaskClient, engine: FakeEngine) -> None:
    first = values(client.get("/metrics").text, "trueup_unreferenced_bytes")
    engine.state["deletion"]["forgotten"].pop()
    later = values(client.get("/metrics").text, "trueup_unreferenced_bytes")
    mine, other = ("public/default", "deletion.forgotten"), ("public/old", "deletion.owner-gone")
    assert (first, later) == ({mine: 3 * MIB, other: 3 * MIB}, {mine: 3 * MIB})


def test_metrics_of_deletions_name_every_stage_that_lasts(client: FlaskClient) -> None:
    found = values(client.get("/metrics").text, "trueup_deletions")
    assert found == {
        (stage.value,): float(stage in (DeletionStage.MARKED, DeletionStage.GONE))
        for stage in DeletionStage
        if stage not in ENDS
    }


def test_the_oldest_executed_deletion_in_seconds(client: FlaskClient, engine: FakeEngine) -> None:
    first = values(client.get("/metrics").text, "trueup_oldest_deletion_seconds")
    engine.state["deletion"]["executing_ms"] = None
    assert (first, values(client.get("/metrics").text, "trueup_oldest_deletion_seconds")) == ({(): 900.0}, {(): 0.0})


def test_bytes_count_as_deleted_when_that_is_confirmed(metrics: Metrics) -> None:
    for stage in (DeletionStage.SUSPECTED, DeletionStage.GONE, DeletionStage.CONFIRMED):
        metrics.of(DeletionMetrics).step(stage, 7, 2.5)
    text = metrics.text().decode()
    assert values(text, "trueup_deleted_bytes_total") == {(): 7}
    assert values(text, "trueup_time_to_confirmed_seconds_sum") == {(): 2.5}


def test_steps_are_counted_from_nought(metrics: Metrics) -> None:
    metrics.of(DeletionMetrics).step("withdrawn", 7, 2.5)
    found = values(metrics.text().decode(), "trueup_deletion_steps_total")
    assert found == {(stage.value,): float(stage is DeletionStage.WITHDRAWN) for stage in DeletionStage}


Run = Callable[..., tuple[int, list[list[str]]]]


@pytest.fixture
def run(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Exit code and output lines of a command, split into words."""
    server = serve(create_app(engine, all_metrics()), "127.0.0.1", 0)
    monkeypatch.setenv("TRUEUP_API", f"http://127.0.0.1:{server.port}")
    monkeypatch.setenv("COLUMNS", "200")

    def command(*words: str) -> tuple[int, list[list[str]]]:
        return invoke(words), [line.split() for line in capsys.readouterr().out.splitlines()]

    yield command
    server.stop()


def test_get_unreferenced_ledgers(run: Run) -> None:
    code, lines = run("get", "ledgers", "--unreferenced")
    assert (code, lines[0], lines[1]) == (
        0,
        ["LEDGER", "RULE", "STATE", "BYTES", "DELETION", "SINCE", "OWNER"],
        ["21", "forgotten", "closed", "3.0", "MiB", "marked", "15d", OWNER],
    )


def test_get_unreferenced_ledgers_where_there_are_none(run: Run, engine: FakeEngine) -> None:
    engine.unclaimed = []
    assert run("get", "ledgers", "--unreferenced") == (0, [["No", "unreferenced", "ledgers."]])


def test_get_deletions(run: Run) -> None:
    code, lines = run("get", "deletions")
    assert (code, [line[0] for line in lines], lines[2][-5:]) == (
        0,
        ["LEDGER", "21", "20"],
        ["b:1", "15d", "b:1:", "no", "answer"],
    )


def test_get_deletions_in_json(engine: FakeEngine, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run("get", "deletions")
    invoke(("get", "deletions", "-o", "json"))
    assert json.loads(capsys.readouterr().out) == engine.in_progress


def test_plan_shows_what_would_be_deleted_and_exits_with_3(run: Run) -> None:
    code, lines = run("plan")
    row = next(line for line in lines if "delete-21-v2" in line)
    assert (code, {"delete", "awaiting", OWNER + ":"} <= set(row)) == (3, True)


def test_approve_a_deletion(run: Run, engine: FakeEngine) -> None:
    assert (run("approve", "delete-21-v2")[0], engine.approved) == (0, ["delete-21-v2"])


def test_describe_a_ledger_that_is_in_use(run: Run, engine: FakeEngine) -> None:
    engine.judged, engine.owned = [finding(21, "drifted", "placement.lost-member", "a member is lost")], USED
    _, lines = run("describe", "ledger", "21")
    wanted = [["Owner", OWNER], ["For", "data"], ["In", "use", "its", "owner", "references", "it"]]
    assert [line for line in lines if line[:1] in (["Owner"], ["For"], ["In"])] == wanted
    assert [f"/managed-ledgers/{OWNER}", "readable", "yes", "2", "30"] in lines
    assert ["-", "archive/u-ledger-10:", "5", "bytes,", "deletion.copy-replaced"] in lines


def test_describe_a_ledger_that_is_forgotten(run: Run, engine: FakeEngine) -> None:
    engine.judged = [finding(20, "drifted", "placement.lost-member", "a member is lost")]
    engine.owned = USED | {
        "rule": "deletion.forgotten",
        "reason": "later ones are listed",
        "since_ms": NOW - 25 * DAY // 2,
        "nodes": [],
        "deletion": engine.in_progress[1],
        "objects": [],
    }
    _, lines = run("describe", "ledger", "20")
    text = [" ".join(line) for line in lines]
    assert "In use later ones are listed, for 12d" in text
    assert "Deletion gone-from-metadata; not confirmed by 1 bookie: b:1: no answer" in text
    assert "Its owner has no nodes." in text


def test_without_owners_a_ledger_has_no_such_section(run: Run, engine: FakeEngine) -> None:
    engine.judged = [finding(20, "drifted", "placement.lost-member", "a member is lost")]
    assert [line for line in run("describe", "ledger", "20")[1] if line[:1] in (["Owner"], ["In"])] == []


@pytest.mark.parametrize("place", ["/api/unreferenced", "/api/plan", "/plan", "/"])
def test_a_name_of_any_length_is_truncated_where_it_is_shown(
    client: FlaskClient, engine: FakeEngine, place: str
) -> None:
    engine.unclaimed[0]["owner"] = engine.moves[0]["reason"] = "x" * 200_000
    assert len(client.get(place).get_data()) < 100_000


def test_a_cell_is_cut(run: Run, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS")
    engine.unclaimed[0]["owner"] = "x" * 200_000
    lines = run("get", "ledgers", "--unreferenced")[1]
    assert max(len(word) for line in lines for word in line) == LONGEST
