"""Log directories in the API, the status page, the metrics and the health check."""

import pytest
from flask.testing import FlaskClient
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.cli.fake_engine import FakeEngine
from tests.unit.cli.fake_rows import directory
from tests.unit.cli.outline import section
from trueup.state.common.errors import Refused
from trueup.state.logdirs.model import Broker, LogDir, Row, replicas
from trueup.state.logdirs.snapshot import cordoned, largest, observed
from trueup.streams.catalog import all_metrics
from trueup.streams.health import health
from trueup.streams.logdirs.metrics import LogDirMetrics
from trueup.streams.logdirs.reconciler import directories_of, observed_record
from trueup.streams.web.api import create_app

GB = 1 << 30
ROWS: tuple[Row, ...] = (("t", 0, 0, 9 * GB, 0, False), ("t", 1, 0, 30 * GB, 0, False), ("t", 1, 1, GB, 9, True))
BROKER = Broker(1, (LogDir("/a", 100 * GB, 50 * GB), LogDir("/b", 90 * GB, 80 * GB)), replicas(ROWS))


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine().shelved()


@pytest.fixture
def client(engine: FakeEngine) -> FlaskClient:
    return create_app(engine, all_metrics("east")).test_client()


def test_directories(client: FlaskClient) -> None:
    assert [row["path"] for row in client.get("/api/directories").get_json()] == ["/small", "/large"]


def test_one_broker(client: FlaskClient) -> None:
    assert client.get("/api/brokers/east/1").get_json()["largest"][0]["topic"] == "orders"


@pytest.mark.parametrize("path", ["/api/brokers/east/9", "/api/brokers/west/1", "/api/brokers/east/x"])
def test_a_broker_that_is_not_there(client: FlaskClient, path: str) -> None:
    assert client.get(path).status_code == 404


def test_a_topic_with_defaults(client: FlaskClient, engine: FakeEngine) -> None:
    client.post("/api/topics/east", json={"name": "orders"})
    assert engine.topics == [("east", "orders", 1, 1, {})]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": 1},
        {"name": "t", "partitions": 0},
        {"name": "t", "partitions": True},
        {"name": "t", "configs": {"a": 1}},
        {"name": "t", "more": 1},
    ],
)
def test_a_topic_that_cannot_be_asked_for(client: FlaskClient, engine: FakeEngine, body: dict[str, object]) -> None:
    assert (client.post("/api/topics/east", json=body).status_code, engine.topics) == (400, [])


def test_a_topic_that_the_engine_refuses_is_a_conflict(
    client: FlaskClient, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def create(*_: object, **__: object) -> list[dict[str, object]]:
        raise Refused("a new topic on east", "orders, which exists", "choose another name")

    monkeypatch.setattr(engine, "create_topic", create)
    response = client.post("/api/topics/east", json={"name": "orders"})
    assert (response.status_code, response.get_json()["found"]) == (409, "orders, which exists")


def test_the_page_shows_how_full_they_are(client: FlaskClient) -> None:
    shown = section(client.get("/").text, "logdirs")
    assert all(word in shown for word in ("east/1", "/small", "95%", "cordoned", "skew 60%", "10 GiB"))


def test_without_log_directories_the_page_does_not_mention_them() -> None:
    quiet = create_app(FakeEngine(), all_metrics()).test_client()
    assert section(quiet.get("/").text, "logdirs").strip() == ""


def test_uneven_directories_need_attention(engine: FakeEngine) -> None:
    assert health(engine.state).reasons == ("log directories of east: uneven on 1 broker",)


def test_moves_that_cannot_be_executed_are_not_planned(engine: FakeEngine) -> None:
    engine.state["logdirs"][0]["rules"] = {"logdirs.cannot-cordon": 3}
    assert health(engine.state).level == "healthy"


def values(text: str, name: str) -> dict[str, float]:
    """Values by directory."""
    families = text_string_to_metric_families(text)
    return {s.labels["directory"]: s.value for f in families for s in f.samples if s.name == name}


def test_metrics_of_directories_follow_what_there_is(client: FlaskClient, engine: FakeEngine) -> None:
    first = values(client.get("/metrics").text, "trueup_logdir_used_bytes")
    engine.shelves.pop()
    later = values(client.get("/metrics").text, "trueup_logdir_used_bytes")
    assert (first, later) == ({"/small": 95 * GB, "/large": 35 * GB}, {"/small": 95 * GB})


def test_an_unknown_size_is_not_a_number(client: FlaskClient, engine: FakeEngine) -> None:
    engine.shelves = [directory("/old", -1, total=-1, used=-1)]
    found = values(client.get("/metrics").text, "trueup_logdir_total_bytes")["/old"]
    assert found != found


def test_moves_and_their_bytes_are_counted() -> None:
    metrics = all_metrics()
    metrics.of(LogDirMetrics).declare(["east"])
    for stage in ("ordered", "copying", "arrived"):
        metrics.of(LogDirMetrics).move("east", stage, 7)
    text = metrics.text().decode()
    assert 'trueup_logdir_moved_bytes_total{cluster="bookkeeper",kafka="east"} 7.0' in text


def test_a_broker_in_rows() -> None:
    found = observed(BROKER, 5)
    assert [(d.partitions, d.bytes // GB, d.incoming // GB, d.outgoing // GB) for d in found.directories] == [
        (2, 39, 0, 30),
        (1, 1, 29, 0),
    ]
    assert [(c.source, c.target, c.copied // GB) for c in found.copying] == [("/a", "/b", 1)]


def test_rows_come_back_from_the_journal() -> None:
    found = observed(BROKER, 5)
    assert directories_of(observed_record("east", found)) == ("east", found)


def test_after_a_cordon_the_rows_show_it() -> None:
    assert [d.cordoned for d in cordoned(observed(BROKER, 5), frozenset({"/b"})).directories] == [False, True]


def test_the_largest_replicas_come_first() -> None:
    assert [(r.partition, r.bytes // GB) for r in largest(BROKER, 2)] == [(1, 30), (0, 9)]
