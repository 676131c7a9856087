"""Responses of the API, and the requests that it rejects."""

from typing import Any

import pytest
from flask.testing import FlaskClient
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.cli.fake_engine import FakeEngine
from trueup.state.common.errors import Retry, Stop, Unknown
from trueup.state.placement.settings import PlacementSettings
from trueup.streams import catalog
from trueup.streams.catalog import all_metrics
from trueup.streams.journal.history import ITSELF, WHO
from trueup.streams.runtime.headers import USER
from trueup.streams.web.api import create_app
from trueup.streams.web.engine import Engine

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine().drill()


@pytest.fixture
def client(engine: FakeEngine) -> FlaskClient:
    typed: Engine = engine
    return create_app(typed, all_metrics("east")).test_client()


def error(response: Any, status: int) -> dict[str, Any]:
    assert response.status_code == status
    body: dict[str, Any] = response.get_json()
    assert {"error", "expected", "found", "todo"} <= set(body)
    return body


def test_alive_even_when_not_ready(client: FlaskClient, engine: FakeEngine) -> None:
    engine.state["ready"] = False
    assert client.get("/healthz").status_code == 200


def test_ready_is_reported(client: FlaskClient) -> None:
    assert client.get("/readyz").get_json() == {"ready": True, "reasons": []}


def test_not_ready_is_reported_with_reasons(client: FlaskClient, engine: FakeEngine) -> None:
    engine.state |= {"ready": False, "problems": ["ZooKeeper is not connected"]}
    response = client.get("/readyz")
    assert (response.status_code, response.get_json()["reasons"]) == (503, ["ZooKeeper is not connected"])


def test_metrics_are_prometheus_text_of_the_status(client: FlaskClient) -> None:
    response = client.get("/metrics")
    families = {f.name: f for f in text_string_to_metric_families(response.text)}
    drifted = [s.value for s in families["trueup_ledgers"].samples if s.labels["verdict"] == "drifted"]
    assert drifted == [17.0]


@pytest.mark.parametrize(
    "path", ["status", "findings", "ledgers", "bookies", "marks", "plan", "config", "links", "actions"]
)
def test_every_read_returns_the_rows_of_the_engine(client: FlaskClient, engine: FakeEngine, path: str) -> None:
    asked = {"findings": (None, None, 100), "ledgers": (100, False), "actions": (50,)}.get(path, ())
    assert client.get(f"/api/{path}").get_json() == getattr(engine, path)(*asked)


def test_findings_are_chosen_by_verdict_and_rule(client: FlaskClient) -> None:
    rows = client.get("/api/findings?verdict=blocked&rule=placement.cannot-adhere&limit=5").get_json()
    assert [row["ledger"] for row in rows] == [300]


@pytest.fixture
def places(engine: FakeEngine) -> dict[int, tuple[str, str]]:
    """Bookie and namespace of ledgers."""
    engine.places = {7: ("b1:3181", "public/default"), 21: ("b1:3181", "public/billing"), 300: ("b2:3181", "")}
    return engine.places


@pytest.mark.parametrize(
    ("query", "chosen"),
    [
        ("bookie=b1:3181", [7, 21]),
        ("bookie=b1:3181&namespace=public/billing", [21]),
        ("bookie=b1:3181&verdict=blocked", [7]),
        ("namespace=public/none", []),
    ],
)
@pytest.mark.usefixtures("places")
def test_findings_are_chosen_by_bookie_and_namespace(client: FlaskClient, query: str, chosen: list[int]) -> None:
    assert [row["ledger"] for row in client.get(f"/api/findings?{query}").get_json()] == chosen


@pytest.mark.usefixtures("places")
def test_ledgers_are_chosen_by_bookie_and_namespace(client: FlaskClient) -> None:
    rows = client.get("/api/ledgers?bookie=b1:3181&namespace=public/default").get_json()
    assert [row["ledger"] for row in rows] == [7]


@pytest.mark.parametrize("noun", ["unreferenced", "deletions"])
def test_deletions_are_chosen_by_namespace(client: FlaskClient, engine: FakeEngine, noun: str) -> None:
    engine.forgotten()
    found = [client.get(f"/api/{noun}?namespace=public/{name}").get_json() for name in ("default", "none")]
    assert [{row["owner"] for row in rows} for rows in found] == [{"public/default/persistent/orders"}, set()]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("findings?stream=logdirs&bookie=b:1", "bookie"),
        ("findings?stream=deletion&bookie=b:1&namespace=a/b", "bookie"),
        ("findings?namespace=default", "'default'"),
        ("findings?namespace=public/default/orders", "'public/default/orders'"),
        ("findings?bookie=", "''"),
        ("ledgers?namespace=/default", "'/default'"),
        ("unreferenced?bookie=b:1", "bookie"),
        ("deletions?bookie=b:1", "bookie"),
    ],
)
def test_a_selector_that_is_not_known_is_refused(client: FlaskClient, query: str, found: str) -> None:
    assert error(client.get(f"/api/{query}"), 400)["found"] == found


def test_a_refused_selector_is_told_with_those_of_the_stream(client: FlaskClient) -> None:
    said = error(client.get("/api/findings?stream=deletion&bookie=b:1"), 400)["expected"]
    assert said == "selectors of the stream deletion: namespace"


def test_all_ledgers_are_given_when_asked(client: FlaskClient) -> None:
    assert client.get("/api/ledgers?all=true").get_json()[-1]["verdict"] == "true"


def test_one_ledger(client: FlaskClient) -> None:
    assert client.get("/api/ledgers/21").get_json()["rule"] == "placement.lost-member"


def test_rules_are_the_table(client: FlaskClient) -> None:
    assert [rule["id"] for rule in client.get("/api/rules").get_json()] == [rule.id for rule in catalog.rules()]


def test_the_index_names_every_path(client: FlaskClient) -> None:
    assert {"/api/status", "/api/approve", "/api/config/<name>"} <= set(client.get("/api").get_json())


@pytest.mark.parametrize(
    "query",
    [
        "findings?verdict=bad",
        "findings?rule=nope",
        "findings?limit=0",
        "findings?limit=x",
        "findings?who=me",
        "ledgers?all=yes",
        "ledgers/-1",
        "ledgers/12x",
        "ledgers/9223372036854775808",
        "actions?limit=1000000",
    ],
)
def test_an_invalid_request_is_answered_with_the_valid_values(client: FlaskClient, query: str) -> None:
    error(client.get(f"/api/{query}"), 400)


def test_a_ledger_that_is_not_there(client: FlaskClient) -> None:
    assert error(client.get("/api/ledgers/5"), 404)["error"] == "not found"


def test_before_it_is_ready_nothing_is_called_missing(client: FlaskClient, engine: FakeEngine) -> None:
    engine.state["ready"] = False
    assert error(client.get("/api/ledgers/5"), 503)["error"] == "not ready"


def test_an_unknown_path(client: FlaskClient) -> None:
    assert error(client.get("/api/nothing"), 404)["found"] == "/api/nothing"


def test_a_method_that_is_not_there(client: FlaskClient) -> None:
    assert error(client.post("/api/status", json={}), 405)["expected"] == "GET"


@pytest.mark.parametrize(
    ("raised", "status"), [(Retry("a", "b", "c"), 503), (Unknown("a", "b", "c"), 503), (Stop("a", "b", "c"), 500)]
)
def test_errors_keep_their_text(client: FlaskClient, engine: FakeEngine, raised: Exception, status: int) -> None:
    engine.fail = raised
    body = error(client.get("/api/findings"), status)
    assert (body["expected"], body["found"], body["todo"]) == ("a", "b", "c")


def test_a_defect_is_an_error_in_json(engine: FakeEngine) -> None:
    app = create_app(engine, all_metrics())
    app.logger.disabled = True
    engine.fail = ZeroDivisionError()
    assert error(app.test_client().get("/api/findings"), 500)["error"] == "internal server error"


def test_one_link(client: FlaskClient, engine: FakeEngine) -> None:
    engine.linked()
    assert len(client.get("/api/links/east-west").get_json()["copies"]) == 2


def test_a_link_that_is_not_there(client: FlaskClient) -> None:
    assert error(client.get("/api/links/nowhere"), 404)["expected"] == "a link nowhere"


def test_a_reset_names_where_to(client: FlaskClient, engine: FakeEngine) -> None:
    body = {"to": "latest", "partitions": ["orders-1"], "certain": True}
    rows = client.post("/api/links/east-west/reset", json=body).get_json()
    assert (len(rows), engine.resets) == (1, [("east-west", ["orders-1"], "latest")])


@pytest.mark.parametrize("body", [{}, {"to": 5}, {"to": "latest", "partitions": []}, {"to": "latest", "all": True}])
def test_any_other_reset_is_refused(client: FlaskClient, engine: FakeEngine, body: Any) -> None:
    error(client.post("/api/links/east-west/reset", json=body), 400)
    assert engine.resets == []


def test_damaged_replicas_are_reported(client: FlaskClient, engine: FakeEngine) -> None:
    replica = {"ledger": 7, "bookie": "b1:3181", "first": 3, "last": 9, "found": "digest"}
    found = client.post("/api/replica-reports", json={"replicas": [replica]}).get_json()
    assert (found, engine.reported) == ({"new": 1}, [((7, "b1:3181", 3, 9), False)])


def test_a_malformed_report_of_replicas_is_rejected(client: FlaskClient, engine: FakeEngine) -> None:
    error(client.post("/api/replica-reports", json={"replicas": [{"ledger": 7}]}), 400)
    assert engine.reported == []


def test_approve_by_id(client: FlaskClient, engine: FakeEngine) -> None:
    rows = client.post("/api/approve", json={"ids": ["repair-100-v3"]}).get_json()
    assert ([row["id"] for row in rows], engine.approved) == (["repair-100-v3"], ["repair-100-v3"])


def test_approve_everything_must_be_explicit(client: FlaskClient, engine: FakeEngine) -> None:
    assert len(client.post("/api/approve", json={"all": True}).get_json()) == 16


@pytest.mark.parametrize("body", [{}, {"ids": []}, {"ids": [1]}, {"all": False}, {"ids": ["a"], "all": True}, ["a"]])
def test_approve_of_anything_else_is_refused(client: FlaskClient, engine: FakeEngine, body: Any) -> None:
    error(client.post("/api/approve", json=body), 400)
    assert engine.approved == []


def test_a_deletion_is_ordered_with_certain(client: FlaskClient) -> None:
    assert client.post("/api/ledgers/100/deletion", json={"certain": True}).get_json()["rule"] == "deletion.ordered"


@pytest.mark.parametrize("body", [{}, {"certain": 1.5}, {"certain": False}, {"certain": True, "all": True}])
def test_a_deletion_without_certain_is_refused(client: FlaskClient, body: dict[str, object]) -> None:
    error(client.post("/api/ledgers/100/deletion", json=body), 400)


def test_a_stale_approval_is_refused(client: FlaskClient) -> None:
    assert error(client.post("/api/approve", json={"ids": ["repair-100-v2"]}), 409)["found"] == "repair-100-v2"


@pytest.mark.parametrize(
    ("headers", "who"), [({USER: "alice"}, "anonymous (alice) at 127.0.0.1"), ({}, "anonymous at 127.0.0.1")]
)
def test_a_request_names_its_user(client: FlaskClient, engine: FakeEngine, headers: dict[str, str], who: str) -> None:
    seen = list[str]()
    engine.approve = lambda _ids: seen.append(WHO.get()) or []  # type: ignore[func-returns-value, method-assign]
    client.post("/api/approve", json={"all": True}, headers=headers)
    assert (seen, WHO.get()) == ([who], ITSELF)


def test_a_live_key_is_set(client: FlaskClient, engine: FakeEngine) -> None:
    client.put("/api/config/placement.mode", json={"value": "enforce"})
    assert engine.settings.section(PlacementSettings).mode == "enforce"


def test_a_live_key_goes_back_to_the_file(client: FlaskClient) -> None:
    client.put("/api/config/placement.max_marks", json={"value": 5})
    assert client.put("/api/config/placement.max_marks", json={"value": None}).get_json()["value"] == 200


def test_a_bad_value_is_reported(client: FlaskClient) -> None:
    body = error(client.put("/api/config/placement.mode", json={"value": "loud"}), 400)
    assert body["problems"] == ["placement.mode: expected one of observe, approve, enforce; found 'loud'"]


def test_a_key_that_is_not_live(client: FlaskClient) -> None:
    error(client.put("/api/config/http.port", json={"value": 1}), 404)


def test_a_value_is_needed(client: FlaskClient) -> None:
    error(client.put("/api/config/placement.mode", json={}), 400)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None])
def test_a_form_of_a_web_page_writes_nothing(client: FlaskClient, engine: FakeEngine, kind: str | None) -> None:
    error(client.post("/api/approve", data='{"all": true}', content_type=kind), 415)
    assert engine.approved == []


@pytest.mark.parametrize("host", ["evil.example.com", "evil.example.com:8480", "127.0.0.1.evil.example", ""])
def test_a_rebound_name_gets_nothing(client: FlaskClient, host: str) -> None:
    error(client.get("/api/status", headers={"Host": host}), 403)


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8480", "localhost:8480", "[::1]:8480", "trueup", "10.1.2.3:80", "LOCALHOST."]
)
def test_an_address_or_a_plain_name_is_served(client: FlaskClient, host: str) -> None:
    assert client.get("/api/status", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("origin", ["http://evil.example.com", "null", "http://127.0.0.1:9999"])
def test_another_pages_script_gets_nothing(client: FlaskClient, engine: FakeEngine, origin: str) -> None:
    error(client.post("/api/approve", json={"all": True}, headers={"Host": "127.0.0.1:8480", "Origin": origin}), 403)
    assert engine.approved == []


def test_our_own_pages_script_is_served(client: FlaskClient) -> None:
    same = {"Host": "127.0.0.1:8480", "Origin": "http://127.0.0.1:8480"}
    assert client.get("/api/status", headers=same).status_code == 200


def test_no_page_may_read_an_answer_from_elsewhere(client: FlaskClient) -> None:
    assert "Access-Control-Allow-Origin" not in client.get("/api/status").headers


def test_probes_answer_under_any_name(client: FlaskClient) -> None:
    paths = ["/healthz", "/readyz", "/metrics"]
    assert [client.get(p, headers={"Host": "trueup.prod.svc"}).status_code for p in paths] == [200, 200, 200]
