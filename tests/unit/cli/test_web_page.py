"""The status page shows the relevant state, and escapes all values."""

import re
from html.parser import HTMLParser

import pytest
from flask.testing import FlaskClient

from tests.unit.cli.fake_engine import FakeEngine
from trueup.state.common.errors import Refused
from trueup.streams.catalog import all_metrics
from trueup.streams.placement.page import CHIPS_OF_MANY, racks
from trueup.streams.runtime.stream import Finding, finding_json
from trueup.streams.web.api import create_app
from trueup.streams.web.page import SHARED, sections

SECTIONS = (*SHARED, *sections())


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine().drill()


@pytest.fixture
def client(engine: FakeEngine) -> FlaskClient:
    return create_app(engine, all_metrics()).test_client()


class Outline(HTMLParser):
    """Unclosed tags, ids, links, and for each table whether it is inside a card."""

    VOID = frozenset({"meta", "link", "br"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.cards: list[bool] = []
        self.wide: list[bool] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
            self.cards.append("card" in (dict(attrs).get("class") or "").split())
        if tag == "table":
            self.wide.append(any(self.cards))
        self.ids += [value for name, value in attrs if name == "id" and value]
        self.addresses += [value for name, value in attrs if name in ("src", "href") and value]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self.cards.pop()


def test_the_page_is_well_formed(client: FlaskClient) -> None:
    assert Outline(client.get("/").text).open == []


def test_every_section_is_on_the_page(client: FlaskClient) -> None:
    assert set(SECTIONS) <= set(Outline(client.get("/").text).ids)


def test_the_script_gets_every_section_as_it_is_on_the_page(client: FlaskClient) -> None:
    page, sections = client.get("/").text, client.get("/api/page").get_json()
    assert [name for name in SECTIONS if sections[name] not in page] == []


def test_on_a_narrow_screen_tables_scroll_within_their_cards(client: FlaskClient) -> None:
    page = client.get("/").text
    narrow = page[page.index("@media (max-width: 520px)") :]
    tables = Outline(page).wide
    assert (bool(tables) and all(tables), ".card { overflow-x: auto; }" in narrow) == (True, True)


def test_nothing_comes_from_elsewhere(client: FlaskClient, engine: FakeEngine) -> None:
    far = [a for a in Outline(client.get("/").text).addresses if not a.startswith(("/", "data:,"))]
    assert far == [engine.state["spark_ui"]]


def test_the_first_line_shows_why(client: FlaskClient) -> None:
    assert "17 ledgers drifted, the oldest for 4m" in client.get("/api/page").get_json()["health"]


def test_healthy_is_shown_only_when_all_is_true() -> None:
    page = create_app(FakeEngine(), all_metrics()).test_client().get("/api/page").get_json()
    assert "Healthy: 1,204 ledgers true" in page["health"]


def test_links_are_shown(client: FlaskClient, engine: FakeEngine) -> None:
    engine.linked()
    result = client.get("/api/page").get_json()["links"]
    assert [word for word in ("east-west", "1,200", "1 stopped", "too large") if word not in result] == []


def test_findings_of_every_stream_need_attention(client: FlaskClient, engine: FakeEngine) -> None:
    finding = Finding({"link": "east-west"}, "drifted", "links.behind", "the target is behind", None)
    engine.found["replication"] = [finding_json(finding)]
    attention = client.get("/api/page").get_json()["attention"]
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
    assert "<img" not in client.get("/").text


def test_only_the_script_of_this_answer_may_run(client: FlaskClient) -> None:
    response = client.get("/")
    policy = response.headers["Content-Security-Policy"]
    nonce = re.search(r"script-src 'nonce-([^']+)'", policy)
    assert nonce
    assert (response.text.count("<script"), f'<script nonce="{nonce[1]}">' in response.text) == (1, True)
    assert "unsafe" not in policy


def test_each_answer_has_its_own_nonce(client: FlaskClient) -> None:
    assert client.get("/").headers["Content-Security-Policy"] != client.get("/").headers["Content-Security-Policy"]


def test_before_the_first_observation_the_page_is_there(client: FlaskClient, engine: FakeEngine) -> None:
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
