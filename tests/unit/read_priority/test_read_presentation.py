"""What the stream reports: rows, plan, status, health, and its commands."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import click
import pytest

from tests.unit.cli.fake_engine import FakeEngine
from tests.unit.read_priority.read_views import ABSENT, CHOSEN, GONE, LAST, WHOLE, copies, seen, topic
from trueup.state.read_priority.lifecycle import Change
from trueup.state.read_priority.settings import ReadPrioritySettings
from trueup.state.read_priority.view import PriorityObservation
from trueup.streams.catalog import all_metrics
from trueup.streams.cli.main import invoke
from trueup.streams.config.live import LiveSection
from trueup.streams.journal.history_row import HistoryRow
from trueup.streams.read_priority import report
from trueup.streams.read_priority.metrics import ReadPriorityMetrics
from trueup.streams.read_priority.reconciler import ReadPriorityReconciler
from trueup.streams.read_priority.signs import ReadPriorityFields
from trueup.streams.runtime.stream import AWAITING, Filter
from trueup.streams.web.api import create_app
from trueup.streams.web.server import serve

STALLED = seen([topic(copies(1, WHOLE, WHOLE), copies(2, WHOLE, GONE), copies(3, WHOLE, ABSENT))])


class Views:
    """Implements `streams.read_priority.reconciler.Observes` with one view, and a journal in memory."""

    def __init__(self, view: PriorityObservation) -> None:
        self.view = view
        self.records: dict[bytes, Any] = {}

    def observe(
        self, settings: ReadPrioritySettings, kept: Iterable[str], hot: Callable[[str], bool]
    ) -> PriorityObservation:
        return self.view

    def put(self, records: Iterable[tuple[str, bytes, Any]]) -> None:
        self.records.update({key: value for _, key, value in records})

    def newest(self, what: str) -> dict[bytes, Any]:
        return {}


class Writer:
    """Executes nothing and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Change] = []

    def execute(self, change: Change, kept: Any) -> Any:
        self.asked.append(change)
        return kept


def reconciler(
    mode: str, view: PriorityObservation = STALLED, passes: int = 2
) -> tuple[ReadPriorityReconciler, Writer]:
    views, writer = Views(view), Writer()
    chosen = replace(CHOSEN, mode=mode)
    made: Any = ReadPriorityReconciler(LiveSection(lambda: chosen), views, lambda _: writer, views, lambda _: None)  # type: ignore[arg-type,return-value]
    for _ in range(passes):
        made.reconcile()
    return made, writer


@pytest.mark.parametrize(
    ("mode", "stage", "asked"), [("observe", "planned", 0), ("approve", AWAITING, 0), ("enforce", "planned", 1)]
)
def test_the_mode_decides_what_is_executed(mode: str, stage: str, asked: int) -> None:
    made, writer = reconciler(mode)
    assert ([row.stage for row in report.plan_rows(made)], len(writer.asked)) == ([stage], asked)


def test_an_approved_change_is_executed_by_the_next_pass() -> None:
    made, writer = reconciler("approve")
    made.approve(["switch/t/n/a/bookkeeper-first"])
    made.reconcile()
    assert [change.id for change in writer.asked] == ["switch/t/n/a/bookkeeper-first"]


def test_an_approval_of_another_change_executes_nothing() -> None:
    made, writer = reconciler("approve")
    made.approve(["switch/t/n/a/tiered-storage-first"])
    made.reconcile()
    assert writer.asked == []


def test_rows_show_what_is_declared_and_in_force() -> None:
    namespace, of_topic = report.rows(reconciler("observe")[0])
    assert (namespace["name"], namespace["declared"], namespace["in_force"]) == ("t/n", LAST, LAST)
    assert (of_topic["ledgers"], of_topic["offloaded"], of_topic["rule"]) == (3, 2, "read_priority.would-stall")


@pytest.mark.parametrize(("namespace", "count"), [(None, 1), ("t/n", 1), ("t/m", 0)])
def test_findings_are_selected_by_namespace(namespace: str | None, count: int) -> None:
    made, _ = reconciler("observe")
    assert len(report.findings(made.decided.findings, Filter(namespace=namespace))) == count


def test_a_topic_is_described_ledger_by_ledger() -> None:
    made, _ = reconciler("observe")
    found = report.described(made, STALLED, STALLED.topics[0])
    rows = [(one["ledger"], one["broker"], one["stalls"], one["reader"][0]) for one in found["copies"]]
    assert rows == [
        (1, "tiered", False, "tiered"),
        (2, "tiered", True, "tiered"),
        (3, "bookkeeper", False, "bookkeeper"),
    ]


def test_a_priority_that_is_not_known_is_shown_as_unknown() -> None:
    view = seen([topic(copies(1, WHOLE, WHOLE))._replace(policy=None, problem="denied")])
    made, _ = reconciler("observe", view)
    row = report.rows(made)[1]
    assert (row["in_force"], row["reason"]) == ("unknown", "denied")
    assert report.described(made, view, view.topics[0])["copies"][0]["stalls"] is None


def test_findings_need_attention() -> None:
    found = ReadPriorityFields(report.status(reconciler("approve")[0], CHOSEN)).signs()
    assert found.attention == ["read priorities: would-stall 1"]
    assert ReadPriorityFields().signs().lines == ()


def test_copies_and_findings_are_scraped() -> None:
    metrics = all_metrics()
    metrics.of(ReadPriorityMetrics).status(ReadPriorityFields(report.status(reconciler("approve")[0], CHOSEN)).json())
    text = metrics.text().decode()
    for line in (
        'findings{cluster="bookkeeper",rule="read_priority.would-stall"} 1.0',
        'ledgers{cluster="bookkeeper",state="gone",tier="tiered"} 1.0',
        'due_changes{cluster="bookkeeper"} 1.0',
    ):
        assert f"trueup_read_priority_{line}" in text


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    made, _ = reconciler("approve")
    engine = FakeEngine()
    engine.priorities = report.rows(made)
    engine.state |= ReadPriorityFields(report.status(made, CHOSEN)).json()
    engine.topic = lambda name: report.described(made, STALLED, STALLED.topics[0]) | {"name": name}  # type: ignore[attr-defined]
    server = serve(create_app(engine, all_metrics()), "127.0.0.1", 0)
    monkeypatch.setenv("TRUEUP_API", f"http://127.0.0.1:{server.port}")

    def command(*words: str) -> str:
        invoke(words)
        return click.unstyle(capsys.readouterr().out)

    command.client = create_app(engine, all_metrics()).test_client()  # type: ignore[attr-defined]
    yield command
    server.stop()


def test_priorities_are_listed(run: Any) -> None:
    lines = run("get", "read-priorities").splitlines()
    assert [line.split()[:4] for line in lines[1:]] == [
        ["t/n", LAST, LAST, "namespace"],
        ["t/n/a", LAST, LAST, "namespace"],
    ]


@pytest.mark.parametrize("name", ["t/n/a", "persistent://t/n/a", "t/n/a b/c%"])
def test_a_topic_has_a_command(run: Any, name: str) -> None:
    text = run("describe", "topic", name)
    assert [
        part in text for part in (name.removeprefix("persistent://"), "tiered, stalls", "read_priority.would-stall")
    ] == ([True] * 3)


def test_a_topic_is_described_with_its_own_history_and_no_other() -> None:
    made, _ = reconciler("approve")
    rows = [
        HistoryRow(1, "switch/t/n/a/bookkeeper-first", "read priority", "done", who="ada"),
        HistoryRow(2, "switch/t/n/ab/bookkeeper-first", "read priority", "done"),
        HistoryRow(3, "unload/t/n/a/none", "unload", "approved"),
        HistoryRow(4, "repair/t/n/a/x", "mark", "done"),
    ]
    found = report.described(made, STALLED, STALLED.topics[0], rows)["history"]
    assert [(one["at_ms"], one["event"], one["who"]) for one in found] == [
        (1, "switch done", "ada"),
        (3, "unload approved", ""),
    ]


def test_the_page_shows_priorities(run: Any) -> None:
    text = run.client.get("/").text
    assert ("Read priorities" in text, "t/n/a" in text, "ledger 2 is gone in tiered" in text) == (True, True, True)
