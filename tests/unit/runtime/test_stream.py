"""A stream that is defined only in this file and added to the list of streams is available to the application, the API
and the command line."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.configuration import load, parse
from trueup.state.common.errors import BadSettings, Refused
from trueup.state.common.options import key
from trueup.state.common.rules import Rule, Verdict
from trueup.state.settings.section import Draft, Section
from trueup.state.settings.settings import Settings, change, live_keys, possible_keys, value_of
from trueup.streams import docs
from trueup.streams.api import SILENT_MS, Application
from trueup.streams.catalog import STREAMS, all_metrics, observed_topics, observing, permanent_tasks, sections
from trueup.streams.cli.main import invoke
from trueup.streams.config.check import problems
from trueup.streams.journal import topic
from trueup.streams.journal.codec import decode, encode
from trueup.streams.journal.history import History
from trueup.streams.journal.history_row import HistoryRow
from trueup.streams.journal.topic import INSTANCES, JournalTopic
from trueup.streams.rows import Row, RowQuery
from trueup.streams.runtime.checks import ok
from trueup.streams.runtime.context import Context
from trueup.streams.runtime.descriptor import Descriptor, Noun, ResourceKind, Verb
from trueup.streams.runtime.metrics import Metrics, StreamMetrics
from trueup.streams.runtime.spark.listener import Listener
from trueup.streams.runtime.stream import (
    AWAITING,
    Filter,
    Finding,
    LimitedRows,
    ObservationSource,
    PlanRow,
    Stream,
    StreamStatus,
)
from trueup.streams.web.api import create_app, serve

ROOT = Path(__file__).parents[3]
LEAST = {"cluster": {"zookeeper": "127.0.0.1:2181"}}
NOW = 1_800_000_000_000
SMALL = Rule("tally.small", Verdict.DRIFTED, "a pile is too small", "It holds less than was declared.", "It grows.")


class Tally(Stream):
    """Piles that are to grow to ten."""

    name = "tally"

    def __init__(self, context: Context) -> None:
        self._context, self._piles, self._approved = context, {"a": 12, "b": 3}, set[str]()

    def status(self, now_ms: int) -> StreamStatus:
        return StreamStatus(
            "approve", counts={"true": 1, "drifted": 1}, sources=[ObservationSource("piles", "up", 5, "two")]
        )

    def rows(self, noun: str, query: RowQuery) -> list[Row]:
        chosen = {name: holds for name, holds in self._piles.items() if query.bookie in (None, name)}
        return [{"pile": name, "holds": holds} for name, holds in chosen.items()][: query.limit]

    def describe(self, noun: str, names: Mapping[str, Any]) -> Mapping[str, Any]:
        if names["name"] not in self._piles:
            raise Refused(f"a pile {names['name']}", "piles a, b", "look at them")
        return {"pile": names["name"], "holds": self._piles[names["name"]]}

    def execute(self, verb: str, names: Mapping[str, Any], arguments: Mapping[str, Any]) -> Row:
        self._piles[names["name"]] += arguments["by"]
        return {"pile": names["name"], "holds": self._piles[names["name"]]}

    def findings(self, filter_: Filter) -> tuple[Sequence[Finding], int]:
        return [Finding({"pile": "b"}, "drifted", SMALL.id, SMALL.title, NOW)][: filter_.limit], 1

    def plan(self) -> list[PlanRow]:
        stage = "approved" if "grow-b" in self._approved else AWAITING
        return [PlanRow("grow-b", "grow", SMALL.id, SMALL.title, stage, {"pile": "b"})]

    def approve(self, rows: Sequence[PlanRow]) -> Sequence[PlanRow]:
        self._approved |= {row.id for row in rows}
        return rows


@dataclass(frozen=True, slots=True)
class Piles:
    """Piles of things."""

    least: int = key(10, "Number of things that a pile should hold", live=True, least=1, most=1_000)


@dataclass(frozen=True, slots=True)
class Yard:
    """A place for piles."""

    hours: str = key("day", "When piles grow there", live=True)
    key_env: str = key("", "Environment variable that contains the key of its gate")


def crowded(draft: Draft) -> Iterator[str]:
    piles, yards = draft.section(Piles), draft.table(Yard)
    if piles and piles.least > 100 and not yards:
        yield "tally.least: expected at most 100 without yards"
    for name, yard in yards.items():
        yield from hours(name, yard, draft) if yard else ()


def hours(name: str, yard: Yard, _draft: Draft) -> Iterator[str]:
    if yard.hours not in ("day", "night"):
        yield f"yards.{name}.hours: expected day or night"


def gates(draft: Draft, env: Mapping[str, str]) -> Iterator[str]:
    for name, yard in draft.table(Yard).items():
        if yard and yard.key_env not in env:
            yield f"yards.{name}.key_env: expected a variable that is set"


PILE = {"type": "record", "name": "Pile", "fields": [{"name": "holds", "type": "long"}]}
PILES = Section("tally", Piles)
YARDS = Section("yards", Yard, ("north",), {"hours": "night"}, True, crowded, hours, gates)


class PileMetrics(StreamMetrics):
    def __init__(self, metrics: Metrics) -> None:
        self._piles = metrics.gauge("piles", "piles by state", "state")

    def status(self, status: Mapping[str, Any]) -> None:
        for state, count in next(s for s in status["subjects"] if s["name"] == "tally")["counts"].items():
            self._piles.at(state).set(count)


def by(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return body if isinstance(body.get("by"), int) else None


TALLY = Descriptor(
    name="tally",
    make=Tally,
    rules=[SMALL],
    lists=[Noun("piles", 100, about="Piles with what they hold.", selectors=("bookie",))],
    things=[ResourceKind("pile", "piles/<name>", about="What a pile holds.")],
    verbs=[Verb("grow", "piles/<name>/growth", '{"by": 1}', by, "say by how much")],
    checks=lambda _: [ok("piles", "two piles")],
    metrics=[PileMetrics],
    settings=[PILES, YARDS],
    tasks=lambda settings: len(settings.table(Yard)),
    topics=topic.declare(JournalTopic("piles", PILE, observed=True)),
)


@pytest.fixture
def application() -> Iterator[Application]:
    STREAMS.append(TALLY)
    settings: Any = parse(LEAST)
    live: Any = SimpleNamespace(now=settings, refused={})
    journal: Any = SimpleNamespace(reachable=lambda: True, bootstrap="none:0")
    supervisor: Any = SimpleNamespace(tasks={}, failing=list, queries=[])
    context = Context(settings, Path("data"), live, journal, all_metrics(), supervisor, History(), lambda: NOW)
    streams = {TALLY.name: TALLY.make(context)}
    try:
        yield Application(
            live,
            journal,
            {name: stream for name, stream in streams.items() if stream},
            supervisor,
            Listener(lambda _: None),
            lambda: NOW,
            context.history,
        )
    finally:
        STREAMS.remove(TALLY)


def test_a_start_ends_with_the_first_readiness_or_with_a_failure(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, fails = ["not seen yet"], list[str]()
    monkeypatch.setattr(Tally, "status", lambda *_: StreamStatus("observe", not_ready=waits))
    monkeypatch.setattr(application._supervisor, "failing", lambda: fails)
    found = [application.status()["starting"]]
    fails += ["stream tally failed"]
    found += [application.status()["starting"]]
    fails.clear()
    waits.clear()
    found += [application.status()["starting"]]
    waits += ["not seen any more"]
    assert [*found, application.status()["starting"]] == [True, False, False, False]


@pytest.mark.parametrize(("queries", "state"), [([], "up"), (["tally"], "slow")])
def test_spark_is_slow_only_if_there_is_a_query_that_does_not_report(
    application: Application, monkeypatch: pytest.MonkeyPatch, queries: list[str], state: str
) -> None:
    application.spark_ui = "http://spark"
    monkeypatch.setattr(application, "_clock", lambda: NOW + 10 * SILENT_MS)
    monkeypatch.setattr(application._supervisor, "queries", queries)
    [spark] = [source for source in application.status()["sources"] if source["name"] == "spark"]
    assert spark["state"] == state


Run = Callable[..., str]


@pytest.fixture
def run(application: Application, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    server = serve(create_app(application, all_metrics()), "127.0.0.1", 0)
    monkeypatch.setenv("TRUEUP_API", f"http://127.0.0.1:{server.port}")

    def command(*words: str) -> str:
        invoke(words)
        return capsys.readouterr().out

    yield command
    server.stop()


def test_the_status_counts_what_it_watches(run: Run) -> None:
    assert "tally    1 true, 1 drifted, mode approve" in run("status")


def test_the_status_names_its_sources(application: Application) -> None:
    assert application.status()["sources"][0] == {"name": "piles", "state": "up", "age_ms": 5, "detail": "two"}


@pytest.mark.parametrize(("reachable", "ages"), [([False], [None]), ([True, False, False], [0, 1_000, 2_000])])
def test_the_journal_was_last_heard_when_it_responded(
    application: Application, monkeypatch: pytest.MonkeyPatch, reachable: list[bool], ages: list[int | None]
) -> None:
    times, answers = iter(range(NOW, NOW + 10_000, 1_000)), iter(reachable)
    monkeypatch.setattr(application, "_clock", lambda: next(times))
    monkeypatch.setattr(application._journal, "reachable", lambda: next(answers))
    found = [source for _ in reachable for source in application.status()["sources"] if source["name"] == "journal"]
    assert [source["age_ms"] for source in found] == ages


def test_streams_that_do_not_run_leave_what_programs_read(application: Application) -> None:
    status = application.status()
    assert (status["watches_ledgers"], status["links"], status["logdirs"], status["deletion"]) == (False, [], [], None)


def test_its_findings_are_listed(application: Application) -> None:
    client = create_app(application, all_metrics()).test_client()
    assert [row["pile"] for row in client.get("/api/findings?stream=tally").get_json()] == ["b"]


def test_its_nouns_are_listed(application: Application) -> None:
    client = create_app(application, all_metrics()).test_client()
    assert client.get("/api/piles?limit=1").get_json() == [{"pile": "a", "holds": 12}]


def test_one_thing_of_it_is_described(application: Application) -> None:
    client = create_app(application, all_metrics()).test_client()
    assert (client.get("/api/piles/b").get_json()["holds"], client.get("/api/piles/c").status_code) == (3, 404)


def test_the_plan_shows_its_actions(run: Run) -> None:
    assert run("plan").splitlines()[1].split()[:4] == ["grow-b", "grow", "small", "b"]


def test_what_is_approved_waits_no_more(run: Run) -> None:
    assert ("grow-b" in run("approve", "grow-b"), AWAITING in run("plan")) == (True, False)


def test_an_approval_is_in_the_history(run: Run) -> None:
    run("approve", "--all")
    assert run("get", "actions").splitlines()[1].split()[:3] == ["grow-b", "-", "approved"]


def test_its_rules_are_explained(run: Run) -> None:
    assert SMALL.title in run("explain", "small")


def test_its_rules_are_in_the_docs(application: Application) -> None:
    assert f"## {SMALL.id}" in docs.rules()


def test_its_nouns_have_a_command(run: Run) -> None:
    assert run("get", "piles").splitlines()[1].split() == ["a", "12"]


def test_its_list_has_its_selectors(run: Run) -> None:
    """Each pile lies on a bookie of its name."""
    assert [line.split()[0] for line in run("get", "piles", "--bookie", "b").splitlines()[1:]] == ["b"]


def test_one_thing_of_it_has_a_command(run: Run) -> None:
    assert run("describe", "pile", "b").splitlines() == ["Pile   b", "Holds  3"]


def test_its_findings_have_a_command(run: Run) -> None:
    assert run("get", "findings", "--stream", "tally").splitlines()[1].split()[:3] == ["b", "drifted", "small"]


def test_callers_order_what_it_can_do(run: Run, application: Application) -> None:
    client = create_app(application, all_metrics()).test_client()
    assert client.post("/api/piles/b/growth", json={"by": 4}).get_json() == {"pile": "b", "holds": 7}


def test_an_order_of_another_form_is_refused(application: Application) -> None:
    client = create_app(application, all_metrics()).test_client()
    assert client.post("/api/piles/b/growth", json={"by": "x"}).status_code == 400


def test_what_is_wrong_in_it_needs_attention(run: Run) -> None:
    assert "  - tally: 1 drifted" in run("status").splitlines()


def test_its_metrics_are_scraped(application: Application) -> None:
    text = create_app(application, all_metrics()).test_client().get("/metrics").text
    assert 'trueup_piles{cluster="bookkeeper",state="drifted"} 1.0' in text


@pytest.mark.usefixtures("application")
def test_its_metrics_are_in_the_docs() -> None:
    assert "| `trueup_piles` |" in docs.PAGES["docs/metrics.md"]()


@pytest.mark.usefixtures("application")
def test_its_settings_are_read() -> None:
    settings = parse({**LEAST, "tally": {"least": 5}})
    assert (settings.section(Piles), "tally.least" in live_keys(settings)) == (Piles(5), True)


@pytest.mark.usefixtures("application")
def test_its_table_is_read_from_a_file_with_the_environment(tmp_path: Path) -> None:
    (tmp_path / "trueup.yaml").write_text("yards: {north-1: {hours: night}}")
    settings = load(tmp_path / "trueup.yaml", {"TRUEUP__YARDS__NORTH_1__KEY_ENV": "GATE"}, {})
    assert settings.table(Yard) == {"north-1": Yard("night", "GATE")}


@pytest.mark.usefixtures("application")
@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ({**LEAST, "tally": {"least": 0}}, r"tally.least: expected a whole number.* found 0"),
        ({**LEAST, "tally": {"least": 101}}, "tally.least: expected at most 100 without yards"),
        ({"yards": {"north": {"hours": "dawn"}}}, "yards.north.hours: expected day or night"),
        ({**LEAST, "tall": {}}, "did you mean tally"),
        ({}, "or links or logdirs or yards of Kafka or RocketMQ clusters"),
    ],
)
def test_its_settings_are_checked(raw: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadSettings, match=problem):
        parse(raw)


@pytest.mark.usefixtures("application")
def test_its_references_to_the_environment_are_checked() -> None:
    settings = parse({"yards": {"north": {"key_env": "GATE"}}})
    assert problems(settings, {}) == ["yards.north.key_env: expected a variable that is set"]


@pytest.mark.usefixtures("application")
@pytest.mark.parametrize(("name", "value"), [("tally.least", 7), ("yards.north.hours", "night")])
def test_its_live_settings_change(name: str, value: object) -> None:
    assert value_of(change(parse({"yards": {"north": {}}}), name, value), name) == value


@pytest.mark.usefixtures("application")
def test_a_live_entry_is_checked() -> None:
    with pytest.raises(BadSettings, match=r"yards\.north\.hours: expected day or night"):
        change(parse({"yards": {"north": {}}}), "yards.north.hours", "dawn")


@pytest.mark.usefixtures("application")
def test_its_permanent_tasks_are_counted() -> None:
    assert permanent_tasks(parse({"yards": {"north": {}, "south": {}}})) == 2


@pytest.mark.usefixtures("application")
def test_its_table_is_in_the_reference() -> None:
    assert (
        "#yards:\n  #north:\n    # When piles grow there [live]\n    #hours: night" in docs.PAGES["conf/trueup.yaml"]()
    )


def test_the_settings_know_no_section_of_a_stream() -> None:
    own = {name.partition(".")[0] for name, _, _ in possible_keys(())}
    assert own | {"sections"} == {spec.name for spec in fields(Settings)}


def test_the_settings_have_the_sections_of_all_streams() -> None:
    declared = {section.name for stream in STREAMS for section in stream.settings}
    keys = possible_keys(sections())
    own = {name for name, _, _ in possible_keys(())}
    assert declared == {name.partition(".")[0] for name, _, _ in keys if name not in own}


@pytest.mark.usefixtures("application")
def test_its_settings_are_in_the_reference() -> None:
    assert "tally:\n  # Number of things that a pile should hold" in docs.PAGES["conf/trueup.yaml"]()


def test_it_has_a_section_on_the_page(application: Application) -> None:
    client = create_app(application, all_metrics()).test_client()
    assert [text in client.get("/").text for text in ('id="tally"', "1 true, 1 drifted", SMALL.title)] == [True] * 3


def test_its_records_are_on_the_journal() -> None:
    assert decode("piles", encode("piles", {"holds": 7})) == {"holds": 7}


@pytest.mark.usefixtures("application")
def test_its_observations_are_emptied_with_those_of_others() -> None:
    assert (observed_topics()[-1], observing()[-1]) == ("piles", "tally")


def test_a_topic_of_another_stream_is_not_taken() -> None:
    with pytest.raises(ValueError, match="ledgers is already declared differently"):
        topic.declare(JournalTopic("ledgers", {"type": "long"}))


def test_an_unknown_topic_is_refused() -> None:
    with pytest.raises(LookupError, match="no topic heaps: import the module that declares it"):
        encode("heaps", {})


def test_the_journal_has_the_topics_of_all_streams() -> None:
    of_streams = [each.name for stream in (*STREAMS, TALLY) for each in stream.topics]
    assert sorted(each.name for each in topic.declared()) == sorted([*of_streams, "config", "history", INSTANCES])


GENERAL = (
    "state/settings/settings.py",
    "state/settings/section.py",
    "streams/config/file.py",
    "streams/config/live.py",
    "streams/journal/codec.py",
    "streams/journal/journal.py",
    "streams/journal/topic.py",
)


def test_settings_and_journal_import_no_stream() -> None:
    texts = "\n".join((ROOT / path).read_text() for path in GENERAL)
    imported = set(re.findall(r"^ *from trueup\.\w+\.(\w+)", texts, re.MULTILINE))
    assert (imported & {stream.name for stream in STREAMS}, "journal" in imported) == (set(), True)


def test_doctor_looks_at_it() -> None:
    assert [check.name for check in TALLY.checks(parse(LEAST))] == ["piles"]


def test_its_commands_are_in_the_docs(application: Application) -> None:
    assert "## trueup get piles" in docs.commands()


def test_a_list_of_actions_says_how_many_there_are(application: Application) -> None:
    application._history.add(*[HistoryRow(at, f"pile-{at}", "pile", "grown") for at in range(60)])
    found = application.actions(50)
    assert (len(found), isinstance(found, LimitedRows) and found.total) == (50, 60)
