"""The status page shows the relevant state, and escapes all values."""

import re

import pytest
from flask.testing import FlaskClient

from tests.unit.cli.fake_engine import FakeEngine
from tests.unit.cli.outline import Outline, section
from trueup.state.common.errors import Refused
from trueup.streams.catalog import STREAMS, all_metrics
from trueup.streams.placement.page import CHIPS_OF_MANY, racks
from trueup.streams.runtime.stream import Finding, finding_json
from trueup.streams.web.api import create_app
from trueup.streams.web.pages.pages import sections

PAGES = (
    "/",
    "/findings",
    "/findings?rule=placement.too-few-racks",
    "/findings?q=7&verdict=blocked",
    "/plan",
    "/timeline",
    "/timeline?kind=repair&q=safe",
    "/racks",
    "/search?q=127.0",
    "/ledgers/21",
    "/ledgers/21/deletion",
    "/bookies/127.0.0.5:3181",
    "/links/east-west",
    "/brokers/east/1",
    *(f"/streams/{stream.name}" for stream in STREAMS),
)
PLACES = {"name": "placement", "mode": "observe", "paused": False, "counts": {}, "oldest_ms": None}
SECTIONS = ("health", "attention", "actions", "engine", *sections(STREAMS))


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine().drill()


@pytest.fixture
def client(engine: FakeEngine) -> FlaskClient:
    return create_app(engine, all_metrics()).test_client()


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_well_formed(client: FlaskClient, engine: FakeEngine, path: str) -> None:
    engine.linked().shelved().forgotten()
    response = client.get(path)
    assert (response.status_code, Outline(response.text).open) == (200, [])


@pytest.mark.parametrize("path", PAGES)
def test_the_links_of_a_page_lead_somewhere(client: FlaskClient, engine: FakeEngine, path: str) -> None:
    engine.linked().shelved().forgotten()
    places = {a for a in Outline(client.get(path).text).addresses if a.startswith("/")}
    gone = {"/ledgers/20"}  # it was deleted since
    assert [a for a in sorted(places - gone) if client.get(a).status_code not in (200, 303)] == []


def test_every_section_is_on_the_page(client: FlaskClient) -> None:
    assert set(SECTIONS) <= set(Outline(client.get("/").text).ids)


@pytest.mark.parametrize("path", PAGES)
def test_on_a_narrow_screen_tables_scroll_by_themselves(client: FlaskClient, engine: FakeEngine, path: str) -> None:
    engine.linked().shelved().forgotten()
    assert all(Outline(client.get(path).text).wide)


def test_nothing_comes_from_elsewhere(client: FlaskClient, engine: FakeEngine) -> None:
    far = [a for a in Outline(client.get("/").text).addresses if not a.startswith(("/", "data:", "#"))]
    assert {*far} == {engine.state["spark_ui"]}


def test_the_first_line_shows_why(client: FlaskClient) -> None:
    assert "17 ledgers drifted, the oldest for 4m" in section(client.get("/").text, "health")


def test_healthy_is_shown_only_when_all_is_true() -> None:
    page = create_app(FakeEngine(), all_metrics()).test_client().get("/").text
    assert ("Healthy: 1,204 ledgers true" in section(page, "health"), "<title>Healthy · east" in page) == (True, True)


def test_links_are_shown(client: FlaskClient, engine: FakeEngine) -> None:
    engine.linked()
    result = section(client.get("/").text, "links")
    assert [word for word in ("east-west", "1,200", "1 stopped", "too large") if word not in result] == []


def test_findings_of_every_stream_need_attention(client: FlaskClient, engine: FakeEngine) -> None:
    finding = Finding({"link": "east-west"}, "drifted", "replication.group-behind", "the target is behind", None)
    engine.found["replication"] = [finding_json(finding)]
    attention = section(client.get("/").text, "attention")
    wanted = ("ledger ", "east-west", "the target is behind", "trueup get findings --stream replication")
    assert [word for word in wanted if word not in attention] == []


def test_what_others_wrote_stays_text(client: FlaskClient, engine: FakeEngine) -> None:
    evil = "<img src=x onerror=alert(1)>"
    engine.judged[0] |= {"reason": evil, "rule": evil, "stage": evil, "verdict": "blocked"}
    engine.members[0] |= {"bookie": evil, "rack": evil}
    engine.state["problems"] = [evil]
    engine.state["sources"][0]["detail"] = evil
    engine.state["streams"][0]["name"] = evil
    engine.done[0] |= {"detail": evil, "outcome": evil, "kind": evil}
    assert [path for path in PAGES if "<img" in client.get(path).text] == []


@pytest.mark.parametrize("path", PAGES)
def test_a_page_contains_no_script_and_no_style(client: FlaskClient, engine: FakeEngine, path: str) -> None:
    engine.linked().shelved().forgotten()
    response = client.get(path)
    policy = response.headers["Content-Security-Policy"]
    assert ("unsafe" in policy, "script-src 'self'" in policy) == (False, True)
    assert [word for word in ("<script>", "<style", " style=", " onclick=") if word in response.text] == []


def test_before_the_first_observation_the_page_is_there(client: FlaskClient, engine: FakeEngine) -> None:
    engine.state |= {"ready": False, "problems": ["no observation"]}
    engine.fail = Refused("an observation of the bookies", "none yet", "wait")
    assert "No bookie has been observed yet" in client.get("/").text


def test_bookies_that_need_a_look_come_first() -> None:
    members = [{"bookie": f"b{n:02}", "rack": "/r", "status": "writable"} for n in range(30)]
    members[17]["status"] = "lost"
    made = racks(members)[0]
    assert (made["shown"][0]["bookie"], made["counts"]) == ("b17", {"writable": 29, "lost": 1})
    assert (len(made["shown"]), made["left"]) == (1 + CHIPS_OF_MANY, 29 - CHIPS_OF_MANY)


def test_a_bookie_without_a_rack_is_shown_so() -> None:
    assert racks([{"bookie": "b", "rack": None, "status": "writable"}])[0]["rack"].startswith("unknown rack")


def test_findings_are_grouped_by_rule(client: FlaskClient) -> None:
    groups = section(client.get("/findings").text, "groups")
    assert ("<b>16</b> × too-few-racks" in groups, groups.count("<li>")) == (True, 5)


def test_times_and_names_of_fields_are_not_searched(client: FlaskClient, engine: FakeEngine) -> None:
    engine.judged = [{**row, "since_ms": 1_795_759_109_000} for row in engine.judged]
    for asked in ("1795759", "since_ms"):
        assert "0 findings of" in section(client.get(f"/findings?q={asked}").text, "list")


def test_findings_are_filtered_and_searched(client: FlaskClient) -> None:
    found = section(client.get("/findings?verdict=drifted&q=109").text, "list")
    assert ("ledger 109" in found, "ledger 108" in found, "1 finding of 17" in found) == (True, False, True)


def test_a_filter_that_does_not_exist_is_named(client: FlaskClient) -> None:
    response = client.get("/findings?verdict=green")
    assert (response.status_code, "verdict to be one of" in response.text) == (400, True)


def test_a_resource_that_does_not_exist_is_named(client: FlaskClient) -> None:
    response = client.get("/ledgers/999")
    assert (response.status_code, "no such znode" in response.text) == (404, True)


def test_what_was_done_with_a_resource_is_shown_after_its_end(client: FlaskClient) -> None:
    assert "liveness show that the ledger is true" in section(client.get("/ledgers/20").text, "done")


def test_a_ledger_shows_what_was_done_and_what_is_next(client: FlaskClient) -> None:
    page = client.get("/ledgers/21").text
    assert ("ar1 took it" in section(page, "done"), "working" in section(page, "next")) == (True, True)


def test_a_marked_ledger_shows_the_worker_of_its_mark(client: FlaskClient) -> None:
    page = client.get("/ledgers/21").text
    assert ("Marked by Trueup" in section(page, "evidence"), "ar1 works on it" in section(page, "evidence")) == (
        True,
        True,
    )


def test_a_ledger_shows_each_fact_once(client: FlaskClient) -> None:
    page = client.get("/ledgers/21").text
    facts = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", section(page, "now"))
    names = {name for name, _ in facts}
    assert (
        names & {"ledger", "mark", "changes", "owned", "fragments", "mzxid"},
        page.count("the return of 127.0.0.5"),
        [name for name, value in facts if value == "-"],
    ) == (set(), 1, [])


def test_a_ledger_shows_its_replicas_with_their_racks(client: FlaskClient) -> None:
    shown = section(client.get("/ledgers/21").text, "evidence")
    assert [word for word in ("127.0.0.5:3181", "/rack2, lost", "the return of 127.0.0.5") if word not in shown] == []


def test_a_broker_shows_its_planned_moves(client: FlaskClient, engine: FakeEngine) -> None:
    engine.shelved()
    assert "move the replica orders-0" in section(client.get("/brokers/east/1").text, "next")


def test_racks_show_what_their_failure_would_cost(client: FlaskClient) -> None:
    shown = section(client.get("/racks").text, "map")
    assert ("/rack2" in shown, 'number bad">1<' in shown, "Read 20s ago" in shown) == (True, True, True)


def test_a_failure_that_is_not_computed_yet_is_not_known(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    computing = FakeEngine().what_if("rack") | {"at_ms": None, "failures": [], "now": None, "read": 5_000}
    monkeypatch.setattr(FakeEngine, "what_if", lambda *_, **__: computing)
    shown = section(client.get("/racks").text, "map")
    assert ("not known yet" in shown, "5,000 so far" in shown) == (True, True)


@pytest.mark.parametrize("place", ["map", "bookie-losses"])
def test_a_reading_that_failed_is_named_beside_the_older_numbers(
    client: FlaskClient, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    failed = FakeEngine().what_if("bookie") | {"error": "ZooKeeper does not respond"}
    monkeypatch.setattr(FakeEngine, "what_if", lambda *_, **__: failed)
    shown = section(client.get("/racks").text, place)
    assert ("Read 20s ago from 1,204 ledgers." in shown, "The last reading failed: ZooKeeper" in shown) == (True, True)


def test_a_bookie_names_a_reading_that_failed(
    client: FlaskClient, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = engine.bookie("127.0.0.5:3181")
    failed = {**found, "if_lost": found["if_lost"] | {"error": "ZooKeeper does not respond"}}
    monkeypatch.setattr(FakeEngine, "bookie", lambda *_, **__: failed)
    shown = section(client.get("/bookies/127.0.0.5:3181").text, "evidence")
    assert ("Read 20s ago" in shown, "The last reading failed: ZooKeeper" in shown) == (True, True)


def test_a_time_to_come_is_not_shown_as_past(client: FlaskClient, engine: FakeEngine) -> None:
    engine.forgotten().in_progress[1]["next_ms"] = engine.state["now_ms"] + 90_000
    assert "<dt>next</dt><dd>in 1m30s</dd>" in client.get("/ledgers/20/deletion").text


def test_a_number_that_is_not_known_is_not_shown_as_one(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeEngine, "deletion", lambda *_, **__: {"ledger": 20, "attempts": -1, "bytes": -1})
    assert "<dt>attempts</dt><dd>-</dd></div><div><dt>bytes</dt><dd>-</dd>" in client.get("/ledgers/20/deletion").text


def test_a_negative_age_or_size_is_not_shown_as_one(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeEngine, "deletion", lambda *_, **__: {"ledger": 20, "oldest_ms": -5, "bytes": -5})
    assert "<dt>oldest</dt><dd>-</dd></div><div><dt>bytes</dt><dd>-</dd>" in client.get("/ledgers/20/deletion").text


@pytest.mark.parametrize(("lacking", "says"), [("", "Nothing waits."), ("no broker", "Nothing that is known now.")])
def test_a_plan_that_may_be_incomplete_does_not_say_that_nothing_waits(
    client: FlaskClient, engine: FakeEngine, lacking: str, says: str
) -> None:
    engine.judged, engine.moves, engine.lacking["plan"] = [], [], lacking
    assert says in section(client.get("/plan").text, "waits")


@pytest.mark.parametrize(
    ("query", "clears"), [("?stream=deletion", False), ("?stream=deletion&namespace=public/default", True)]
)
def test_every_filter_can_be_cleared(client: FlaskClient, query: str, clears: bool) -> None:
    assert (">Clear</a>" in section(client.get(f"/findings{query}").text, "list")) == clears


def test_the_search_leads_to_a_ledger_and_to_a_single_match(client: FlaskClient, engine: FakeEngine) -> None:
    engine.state["subjects"] = [PLACES]
    places = [client.get(f"/search?q={asked}").headers["Location"] for asked in ("21", "0.0.5:3181")]
    assert places == ["/ledgers/21", "/bookies/127.0.0.5%3A3181"]


def test_the_search_names_resources_as_people_do(client: FlaskClient, engine: FakeEngine) -> None:
    engine.state["subjects"] = [PLACES]
    found = section(client.get("/search?q=127.0.0").text, "found")
    assert 'href="/bookies/127.0.0.1%3A3181">bookie 127.0.0.1:3181<' in found


def test_numbers_of_different_units_have_axes_of_their_own(client: FlaskClient, engine: FakeEngine) -> None:
    names = ("drifted", "blocked", "marks outstanding", "lost bookies")
    engine.course["placement"] = {"every_ms": 1, "at_ms": [1], "series": {name: [1] for name in names}}
    assert client.get("/api/trends/placement").json["units"] == {
        "drifted": "ledgers",
        "blocked": "ledgers",
        "marks outstanding": "marks",
        "lost bookies": "bookies",
    }


def test_one_other_action_is_one(client: FlaskClient, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    some = [row for row in engine.plan() if row["stage"] == "awaiting approval"][:4]
    monkeypatch.setattr(engine, "plan", lambda: some)
    assert "1 other action is also approved" in client.get("/plan").text


def test_the_timeline_shows_selected_actions(client: FlaskClient) -> None:
    shown = section(client.get("/timeline?q=safe").text, "timeline")
    assert ("ledger 20" in shown, "ledger 21" in shown, "1 action of 1" in shown) == (True, False, True)


def test_an_approval_names_what_is_shown_and_what_it_does(client: FlaskClient) -> None:
    shown = section(client.get("/plan").text, "waits")
    assert ("Approve these 16" in shown, "writes an under-replication mark for ledger 100" in shown) == (True, True)


def test_a_hold_can_be_released(client: FlaskClient, engine: FakeEngine) -> None:
    engine.state["held"] = "3 of 6 bookies were lost at once"
    shown = section(client.get("/streams/placement").text, "controls")
    assert ("Release the hold" in shown, '"value": 1' in shown.replace("&#34;", '"')) == (True, True)


def test_the_present_mode_is_no_button(client: FlaskClient) -> None:
    shown = section(client.get("/streams/placement").text, "controls")
    pressed = [part.split("<")[0].strip("> ") for part in shown.split('aria-pressed="true" disabled')[1:]]
    assert pressed == ["observe"]


def test_a_series_has_a_line_for_each_part_without_gap(client: FlaskClient, engine: FakeEngine) -> None:
    _placement_with(engine, "drifted", [1.0, 2.0, None, 40.0])
    shown = section(client.get("/").text, "trends")
    assert (shown.count("<polyline"), "drifted: 17 now, at most 40" in shown) == (2, True)


def test_the_number_at_a_series_is_that_of_now_and_not_the_newest_sample(
    client: FlaskClient, engine: FakeEngine
) -> None:
    _placement_with(engine, "marks outstanding", [12.0])
    engine.state["marks"]["outstanding"] = 31
    assert "marks outstanding: 31 now, at most 31" in section(client.get("/").text, "trends")


def test_a_series_that_has_no_number_now_is_unknown(client: FlaskClient, engine: FakeEngine) -> None:
    _placement_with(engine, "lost bookies", [1.0])
    engine.state["bookies"] = {}
    assert "lost bookies: unknown now" in section(client.get("/").text, "trends")


def test_the_growth_of_a_total_is_that_of_the_newest_sample(client: FlaskClient, engine: FakeEngine) -> None:
    engine.state["subjects"] = [
        {"name": "replication", "mode": "enforce", "paused": False, "counts": {}, "oldest_ms": None}
    ]
    engine.course["replication"] = {"every_ms": 1, "at_ms": [1, 2], "series": {"records/s": [7.0, None]}}
    assert "records/s: unknown now, at most 7" in section(client.get("/").text, "trends")


def _placement_with(engine: FakeEngine, series: str, values: list[float | None]) -> None:
    engine.state["subjects"] = [
        {"name": "placement", "mode": "observe", "paused": False, "counts": {}, "oldest_ms": None}
    ]
    engine.course["placement"] = {"every_ms": 1, "at_ms": [*range(len(values))], "series": {series: values}}


def test_findings_are_selected_as_the_stream_declares_it(client: FlaskClient) -> None:
    shown = section(client.get("/findings?stream=placement&bookie=127.0.0.5:3181").text, "list")
    fields = [name for name in ("bookie", "namespace", "owner") if f'name="{name}"' in shown]
    assert (fields, "--bookie 127.0.0.5:3181" in shown) == (["bookie", "namespace"], True)


@pytest.mark.parametrize(("path", "place"), [("/", "bookies"), ("/racks", "map"), ("/streams/placement", "bookies")])
def test_bookies_that_are_not_known_now_have_no_color_and_a_reason(
    client: FlaskClient, engine: FakeEngine, path: str, place: str
) -> None:
    engine.lacking["bookies"] = "the last observation of ZooKeeper is 40 s old"
    page = client.get(path).text
    head = page[page.index(f'<section id="{place}"') :].partition(">")[0]
    assert ("outdated" in head, "40 s old" in section(page, place)) == (True, True)


def test_a_bookie_shows_what_its_loss_would_cost(client: FlaskClient) -> None:
    shown = section(client.get("/bookies/127.0.0.5:3181").text, "evidence")
    assert ('<dd class="bad">2</dd>' in shown, "Read 20s ago" in shown) == (True, True)


def test_a_plan_that_is_not_known_is_not_empty(client: FlaskClient, engine: FakeEngine) -> None:
    engine.lacking["plan"] = "the view is not complete yet"
    shown = section(client.get("/ledgers/300").text, "next")
    assert ("Nothing is planned" in shown, "the view is not complete yet" in shown) == (False, True)


@pytest.mark.parametrize("path", ["/ledgers/{}", "/api/ledgers/{}"])
def test_an_id_of_any_length_is_refused_alike(client: FlaskClient, path: str) -> None:
    assert client.get(path.format("9" * 5_000)).status_code == 400
