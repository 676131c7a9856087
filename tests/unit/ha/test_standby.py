"""A standby answers reads, says that its lists are incomplete, and refuses changes with the address of the leader."""

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flask.testing import FlaskClient

from tests.configuration import parse
from tests.unit.cli.fake_engine import FakeEngine
from tests.unit.cli.fake_rows import healthy_status
from tests.unit.ha.instances import Clock, Log, instance
from trueup.state.common.errors import BadSettings, Retry, Stop
from trueup.state.instance.leadership import LeadershipTerms
from trueup.streams.api import Application
from trueup.streams.app import Running
from trueup.streams.catalog import all_metrics
from trueup.streams.health import health
from trueup.streams.instance.election import Election
from trueup.streams.journal.history import History
from trueup.streams.journal.history_row import HistoryRow
from trueup.streams.journal.journal import JournalRecord
from trueup.streams.runtime.context import Context
from trueup.streams.runtime.process.ending import Ending
from trueup.streams.runtime.spark.listener import Listener
from trueup.streams.runtime.supervisor import Supervisor
from trueup.streams.web.api import create_app

LEAST = {"cluster": {"zookeeper": "127.0.0.1:2181"}}
HA = {**LEAST, "journal": {"bootstrap": "127.0.0.1:9092"}, "ha": {"id": "shop"}}
LEADER = "http://leader:8480"
TERMS = LeadershipTerms(10.0)


@pytest.fixture
def leader(log: Log, now: Clock) -> Election:
    made = instance(log, now, LEADER, TERMS)
    made.beat()
    made.beat()
    return made


@pytest.fixture
def standby(log: Log, now: Clock, leader: Election) -> Election:
    made = instance(log, now, "http://standby:8480", TERMS)
    now.s += 1
    leader.beat()
    made.beat()
    return made


def application(election: Election) -> Application:
    settings = parse(HA)
    live: Any = SimpleNamespace(now=settings, refused={})
    journal: Any = SimpleNamespace(reachable=lambda: True, bootstrap="none:0")
    supervisor: Any = SimpleNamespace(tasks={}, failing=list, queries=[])
    made = Application(live, journal, {}, supervisor, Listener(lambda _: None), lambda: 0, History(), election)
    made.spark_ui = "http://spark"
    return made


@pytest.fixture
def client(standby: Election) -> FlaskClient:
    return create_app(application(standby), all_metrics()).test_client()


def test_one_leads_and_the_other_knows_it(leader: Election, standby: Election, log: Log) -> None:
    assert (leader.leads, standby.leads, standby.leader, leader.standbys()) == (
        True,
        False,
        LEADER,
        ["http://standby:8480"],
    )
    assert [key for key, _ in log.keys[:3]] == [f"standby {LEADER}".encode(), b"claim", b"leader"]


def test_a_leader_that_gets_no_proof_ends_before_a_standby_claims(log: Log, now: Clock) -> None:
    ended: list[float] = []
    made = instance(log, now, LEADER, TERMS, lambda: ended.append(now.s))
    made.beat()
    made.beat()
    log.down, now.s = True, now.s + 6.9
    made.prove()
    now.s += 0.2
    with pytest.raises(Stop):
        made.prove()
    assert len(ended) == 1


def test_an_instance_that_never_led_may_go_on_without_proof(standby: Election, now: Clock) -> None:
    now.s += 100
    standby.prove()


class Hurried(threading.Event):
    """An event that nobody waits for."""

    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set()


def test_a_leader_repeats_a_step_of_its_takeover_only_while_it_can_prove_that_it_leads(
    leader: Election, log: Log, now: Clock
) -> None:
    running = Running.__new__(Running)
    vars(running).update(_ending=Ending(Hurried()), _waits={}, _supervisor=Supervisor(Hurried(), lambda _: None))
    running._supervisor.gate = leader.prove
    tried = list[str]()

    def lead() -> None:
        tried.append(*running._waits.values() or ["at first"])
        now.s += 3
        raise Retry("an answer of the coordinator", "none", "try again")

    with pytest.raises(Stop, match="no proof that it leads"):
        running._wait("the transactional.id", lead)
    again = "waiting for the transactional.id: expected an answer of the coordinator; found none; try again"
    assert tried == ["at first", again, again]


def test_a_write_that_was_refused_ends_the_leader_once(leader: Election, log: Log, now: Clock) -> None:
    ended: list[int] = []
    made = instance(log, now, "other", TERMS, lambda: ended.append(1))
    leader.leave(1.0)
    made.beat()
    made.beat()
    made.fenced("fenced")
    made.fenced("fenced")
    assert (ended, made.leads) == ([1], False)


def test_the_end_of_a_leader_is_followed_at_once_and_of_a_standby_removes_its_sign(
    leader: Election, standby: Election, log: Log
) -> None:
    leader.leave(1.0)
    standby.beat()
    standby.leave(1.0)
    third = log.keys[-1]
    assert (standby.epoch, standby.silent_ms, third) == (2, 0, (b"leader", "ended"))


def test_the_silence_of_a_killed_leader_is_known_to_its_successor(standby: Election, now: Clock) -> None:
    now.s += 10
    standby.beat()
    assert (standby.leads, standby.silent_ms) == (True, 5_000_000 - 10_000)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/api/approve", {"all": True}),
        ("PUT", "/api/config/placement.mode", {"value": "enforce"}),
        ("POST", "/api/links/x/reset", {"to": "earliest"}),
    ],
)
def test_changes_are_refused_with_the_address_of_the_leader(
    method: str, path: str, body: Any, standby: Election
) -> None:
    engine: Any = FakeEngine()
    real = application(standby)
    engine.approve, engine.set_config, engine.execute = real.approve, real.set_config, real.execute
    response = create_app(engine, all_metrics()).test_client().open(path, method=method, json=body)
    assert (response.status_code, LEADER in response.get_json()["found"]) == (409, True), response.get_json()


def test_lists_say_that_they_are_incomplete(client: FlaskClient) -> None:
    found = [client.get(f"/api/{name}") for name in ("ledgers", "plan", "findings", "links")]
    assert [(each.get_json(), LEADER in each.headers["Trueup-Incomplete"]) for each in found] == [([], True)] * 4
    assert client.get("/api/ledgers/1").status_code == 503


def test_the_page_names_the_leader(client: FlaskClient) -> None:
    response = client.get("/")
    assert (response.status_code, f"the leader is at {LEADER}" in response.get_data(as_text=True)) == (200, True)


def test_probes_tell_the_role(client: FlaskClient) -> None:
    found = [client.get(path) for path in ("/readyz", "/readyz?standbyok=true", "/healthz")]
    assert [each.status_code for each in found] == [503, 200, 200]
    assert [(each.get_json()["role"], each.get_json()["epoch"]) for each in found[:2]] == [("standby", 1)] * 2


def test_metrics_and_status_tell_the_role(client: FlaskClient) -> None:
    text, ha = client.get("/metrics").get_data(as_text=True), client.get("/api/status").get_json()["ha"]
    assert ('trueup_leader{cluster="bookkeeper"} 0.0' in text, 'trueup_epoch{cluster="bookkeeper"} 1.0' in text) == (
        True,
        True,
    )
    assert ha == {"id": "shop", "role": "standby", "epoch": 1, "leader": LEADER, "standbys": [], "unable": []}


def test_a_standby_that_could_take_over_is_healthy(standby: Election, now: Clock) -> None:
    engine = application(standby)
    able = health(engine.status())
    now.s += 11
    alone = health(engine.status())
    assert (able.level, LEADER in able.line, alone.level) == ("healthy", True, "attention")


@pytest.mark.parametrize("prevents", [False, True])
def test_only_problems_that_prevent_a_takeover_make_a_standby_unable(standby: Election, prevents: bool) -> None:
    engine = application(standby)
    engine.other_problems, engine.obstacles = lambda: ["a certificate expires"], lambda: ["no space"] * prevents
    code = create_app(engine, all_metrics()).test_client().get("/readyz?standbyok=true").status_code
    found = health(engine.status())
    assert (found.level, found.reasons[-1], code) == (
        ("attention", "a certificate expires", 503) if prevents else ("healthy", "a certificate expires", 200)
    )


def test_an_instance_that_takes_over_says_so_and_leads_with_its_streams(leader: Election) -> None:
    engine: Any = application(leader)
    roles = [engine.status()["ha"]["role"]]
    reason = engine.incomplete("ledgers")
    engine._streams = {"x": SimpleNamespace(status=lambda _: (_ for _ in ()).throw(AssertionError))}
    roles.append(engine._ha()["role"])
    assert (roles, reason) == (["starting", "leader"], "this instance is taking over")


def test_without_ha_an_application_leads() -> None:
    metrics = all_metrics()
    metrics.status(healthy_status())
    assert 'trueup_leader{cluster="bookkeeper"} 1.0' in metrics.text().decode()


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"journal": {}}, "journal.bootstrap: expected Kafka brokers because section ha is set"),
        ({"ha": {"id": "a b"}}, "ha.id: expected 1 to 100 letters"),
        ({"ha": {"id": "a", "address": "here"}}, "ha.address: expected http://host:port"),
        ({"ha": {"address": "http://here:1"}}, "ha.id: expected 1 to 100 letters"),
        ({"ha": {"id": "a", "takeover_s": 1}}, "ha.takeover_s"),
    ],
)
def test_a_section_that_cannot_work_is_refused(changed: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadSettings) as caught:
        parse({**HA, **changed})
    assert problem in str(caught.value)


def test_each_leader_has_checkpoints_of_its_own() -> None:
    places = [
        Context(parse(HA), Path("/data"), *([None] * 5), lambda: 0, epoch=epoch).checkpoints  # type: ignore[arg-type]
        for epoch in (0, 7)
    ]
    assert places == ["file:///data/checkpoints", "file:///data/checkpoints/epoch-7"]


class Rows:
    """A journal with a history."""

    def __init__(self) -> None:
        self.written: list[Any] = []

    def read(self, _what: str, last: int) -> Iterator[JournalRecord]:
        yield JournalRecord(b"1", HistoryRow(1, "a", "mark", "written"), "", 0)

    def span(self, _what: str) -> int:
        return 1

    def put(self, records: Iterable[Any], _within_s: float) -> None:
        self.written += records


def test_a_history_of_a_standby_only_reads() -> None:
    rows: Any = Rows()
    history = History(rows, acts=False)
    before = history.latest(10)
    history.load()
    assert ([row["id"] for row in before], [row["id"] for row in history.latest(10)]) == (["a"], ["a"])
