"""Callers of the API: the role of every route, tokens, sessions, and what refused callers learn."""

import logging
import re
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from tests.unit.cli.fake_engine import FakeEngine
from trueup.state.settings.roles import Role
from trueup.state.settings.settings import HttpSettings
from trueup.state.settings.tokens import line_of
from trueup.streams.catalog import all_metrics
from trueup.streams.journal.history import ITSELF, WHO
from trueup.streams.runtime.headers import CHECK
from trueup.streams.web import roles
from trueup.streams.web.access import COOKIE, SESSION_S, SESSIONS, Access, TokenFile
from trueup.streams.web.api import create_app
from trueup.streams.web.roles import OPEN, least_roles, routes

TOKENS = {role: f"token-of-{role.text}" for role in Role}
NAMES = {
    "<name>": "x",
    "<ledger>": "1",
    "<kafka>": "east",
    "<int:broker>": "1",
    "<path:name>": "a/b/c",
    "<stream>": "placement",
    "<bookie>": "127.0.0.1:3181",
    "<kind>": "rack",
}
ROUTES = sorted(least_roles().items())


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text("".join(f"{line_of(role.text, role, token)}\n" for role, token in TOKENS.items()))
    return path


@pytest.fixture
def refused() -> list[str]:
    return []


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def access(file: Path, refused: list[str], clock: Clock) -> Access:
    return Access(TokenFile(file), refused.append, clock)


@pytest.fixture
def client(access: Access) -> FlaskClient:
    return create_app(FakeEngine(), all_metrics(), access).test_client()


def bearer(role: Role) -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKENS[role]}"}


def path_of(rule: str) -> str:
    for variable, value in NAMES.items():
        rule = rule.replace(variable, value)
    assert "<" not in rule, f"{rule}: name a value for its variable above"
    return rule


def send(client: FlaskClient, route: tuple[str, str], **options: Any) -> int:
    method, rule = route
    body = {} if method == "GET" else {"json": {}}
    return client.open(path_of(rule), method=method, **body, **options).status_code


def test_the_table_has_every_route_and_no_other(access: Access) -> None:
    assert sorted(routes(create_app(FakeEngine(), all_metrics(), access))) == [route for route, _ in ROUTES]


def test_a_route_without_a_role_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roles, "ROUTES", {r: role for r, role in roles.ROUTES.items() if r != ("GET", "/api/rules")})
    with pytest.raises(LookupError, match="GET /api/rules"):
        create_app(FakeEngine(), all_metrics())


def test_only_these_routes_are_open() -> None:
    opened = [f"{method} {rule}" for (method, rule), role in ROUTES if role is OPEN]
    assert opened == ["GET /healthz", "GET /login", "GET /readyz", "GET /static/<name>", "POST /login", "POST /logout"]


def test_viewers_change_nothing() -> None:
    assert [route for route, role in ROUTES if role is Role.VIEWER and route[0] != "GET"] == []


@pytest.mark.parametrize(("route", "least"), [each for each in ROUTES if each[1] is not OPEN])
def test_a_route_admits_only_callers_with_its_role(client: FlaskClient, route: tuple[str, str], least: Role) -> None:
    without = send(client, route)
    lower = [send(client, route, headers=bearer(role)) for role in Role if role < least]
    enough = send(client, route, headers=bearer(Role.ADMIN))
    page = route[0] == "GET" and not route[1].startswith(("/api", "/metrics"))
    assert (without, set(lower) - {403}) == (303 if page else 401, set())
    assert enough not in (401, 403, 405)


@pytest.mark.parametrize(
    ("key", "role", "status"),
    [
        ("placement.paused", Role.VIEWER, 403),
        ("placement.paused", Role.APPROVER, 200),
        ("placement.mode", Role.APPROVER, 403),
        ("placement.max_marks", Role.APPROVER, 403),
        ("placement.mode", Role.ADMIN, 200),
    ],
)
def test_approvers_pause_and_admins_set_everything(client: FlaskClient, key: str, role: Role, status: int) -> None:
    value = {"placement.paused": True, "placement.mode": "approve"}.get(key, 5)
    response = client.put(f"/api/config/{key}", json={"value": value}, headers=bearer(role))
    assert response.status_code == status


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS"])
def test_other_methods_of_a_read_need_a_token_too(client: FlaskClient, method: str) -> None:
    assert client.open("/api/status", method=method).status_code == 401


def test_an_unknown_address_is_not_disclosed(client: FlaskClient) -> None:
    assert (client.get("/api/none").status_code, client.get("/api/none", headers=bearer(Role.VIEWER)).status_code) == (
        401,
        404,
    )


def test_a_refusal_says_what_is_missing(client: FlaskClient) -> None:
    missing = client.get("/api/status")
    lower = client.post("/api/approve", json={"all": True}, headers=bearer(Role.VIEWER)).get_json()
    assert (missing.headers["WWW-Authenticate"], missing.get_json()["found"]) == ('Bearer realm="trueup"', "no token")
    assert (lower["expected"], lower["found"]) == ("a caller with the role approver", "viewer, whose role is viewer")


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Basic dTpw"},
        {"Authorization": "Bearer"},
        {"Trueup-Token": "wrong"},
        {"Authorization": f"Bearer {'x' * 5000}"},
        {"Cookie": f"{COOKIE}=wrong"},
        {"Trueup-User": "admin"},
    ],
)
def test_what_is_no_token_admits_nobody(client: FlaskClient, headers: dict[str, str]) -> None:
    assert client.get("/api/status", headers=headers).status_code == 401


def test_a_token_may_be_sent_beside_the_credentials_of_a_proxy(client: FlaskClient) -> None:
    headers = {"Authorization": "Basic dTpw", "Trueup-Token": TOKENS[Role.VIEWER]}
    assert client.get("/api/status", headers=headers).status_code == 200


def test_metrics_can_be_open(access: Access) -> None:
    opened = create_app(FakeEngine(), all_metrics(), access, HttpSettings(open_metrics=True)).test_client()
    assert (opened.get("/metrics").status_code, opened.get("/api/status").status_code) == (200, 401)


def test_readiness_tells_reasons_only_to_callers(access: Access) -> None:
    engine = FakeEngine()
    engine.state |= {"ready": False, "problems": ["no response of zk1"]}
    client = create_app(engine, all_metrics(), access).test_client()
    assert client.get("/readyz").get_json() == {"ready": False, "reasons": []}
    assert client.get("/readyz", headers=bearer(Role.VIEWER)).get_json()["reasons"] == ["no response of zk1"]


def test_an_action_is_attributed_to_the_token_and_not_to_the_name_that_is_claimed(access: Access) -> None:
    seen: list[str] = []
    engine = FakeEngine()
    engine.approve = lambda _ids: seen.append(WHO.get()) or []  # type: ignore[func-returns-value, method-assign]
    headers = {**bearer(Role.APPROVER), "Trueup-User": "root"}
    create_app(engine, all_metrics(), access).test_client().post("/api/approve", json={"all": True}, headers=headers)
    assert (seen, WHO.get()) == (["approver at 127.0.0.1"], ITSELF)


def test_an_order_is_logged_with_its_caller(client: FlaskClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    client.post("/api/approve", json={"all": True}, headers=bearer(Role.APPROVER))
    found = [record.__dict__ for record in caplog.records if record.message == "request answered"]
    assert [(row["by"], row["path"], row["status"]) for row in found] == [
        ("approver at 127.0.0.1", "/api/approve", 200)
    ]


def test_refused_requests_are_counted_and_rarely_logged(
    client: FlaskClient, refused: list[str], clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(50):
        client.get("/api/status", headers={"Authorization": "Bearer wrong"})
    client.get("/api/status")
    client.post("/api/approve", json={}, headers=bearer(Role.VIEWER))
    clock.now_s = 10.0
    client.get("/api/status")
    lines = [record.__dict__ for record in caplog.records if record.message == "request refused"]
    assert refused == [*["invalid"] * 50, "missing", "role", "missing"]
    assert [line["not_logged_before"] for line in lines] == [0, 51]


def test_no_token_is_logged(client: FlaskClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for token in (*TOKENS.values(), "token-of-nobody"):
        client.get("/api/status", headers={"Authorization": f"Bearer {token}"})
        client.post("/login", json={"token": token})
    text = " ".join(str(record.__dict__) for record in caplog.records)
    assert ("token-of" in text, "session begun" in text) == (False, True)


def test_a_changed_file_is_read_again(client: FlaskClient, file: Path) -> None:
    file.write_text(line_of("carol", Role.VIEWER, "new") + "\n")
    statuses = [
        client.get("/api/status", headers={"Authorization": f"Bearer {t}"}).status_code
        for t in (TOKENS[Role.VIEWER], "new")
    ]
    assert statuses == [401, 200]


@pytest.mark.parametrize("content", [b"", b"# none\n", b"\xff\xfe", b"#" * (1 << 20) + b"##"])
def test_a_file_without_tokens_admits_nobody_and_is_a_problem(
    client: FlaskClient, access: Access, file: Path, content: bytes
) -> None:
    file.write_bytes(content)
    assert client.get("/api/status", headers=bearer(Role.ADMIN)).status_code == 401
    assert ["nobody is admitted" in problem for problem in access.problems] == [True]


def test_a_deleted_file_admits_nobody(client: FlaskClient, access: Access, file: Path) -> None:
    file.unlink()
    assert client.get("/api/status", headers=bearer(Role.ADMIN)).status_code == 401
    assert "No such file" in access.problems[0]


def test_a_login_sets_a_cookie_that_scripts_and_other_sites_cannot_use(client: FlaskClient) -> None:
    response = client.post("/login", json={"token": TOKENS[Role.VIEWER]})
    cookie = response.headers["Set-Cookie"]
    assert [part for part in ("HttpOnly", "SameSite=Strict", "Path=/") if part not in cookie] == []
    assert (TOKENS[Role.VIEWER] in cookie, client.get("/").status_code) == (False, 200)


def test_the_cookie_is_secure_over_tls(access: Access) -> None:
    client = create_app(FakeEngine(), all_metrics(), access).test_client()
    cookie = client.post("/login", json={"token": TOKENS[Role.VIEWER]}, base_url="https://127.0.0.1").headers[
        "Set-Cookie"
    ]
    assert "Secure" in cookie


@pytest.mark.parametrize(("body", "status"), [({"token": "wrong"}, 401), ({}, 400), ([], 400), ({"token": 5}, 400)])
def test_another_login_is_refused(client: FlaskClient, body: object, status: int) -> None:
    response = client.post("/login", json=body)
    assert (response.status_code, "Set-Cookie" in response.headers) == (status, False)


def test_a_form_of_another_site_cannot_log_in(client: FlaskClient) -> None:
    assert client.post("/login", data={"token": TOKENS[Role.VIEWER]}).status_code == 415


ORIGIN = {"Origin": "http://localhost"}


def session_of(client: FlaskClient, role: Role) -> dict[str, str]:
    """Log in, and return the headers that the page sends with a change."""
    client.post("/login", json={"token": TOKENS[role]})
    check = re.search(r'data-check="([^"]+)"', client.get("/").text)
    assert check
    return {**ORIGIN, CHECK: check[1]}


@pytest.mark.parametrize(("role", "status"), [(Role.VIEWER, 403), (Role.APPROVER, 200)])
def test_a_session_has_the_role_of_its_token(client: FlaskClient, role: Role, status: int) -> None:
    headers = session_of(client, role)
    assert client.post("/api/approve", json={"all": True}, headers=headers).status_code == status


@pytest.mark.parametrize("left", [CHECK, "Origin"])
def test_a_session_changes_nothing_without_the_secret_of_the_page(client: FlaskClient, left: str) -> None:
    headers = {name: value for name, value in session_of(client, Role.ADMIN).items() if name != left}
    response = client.post("/api/approve", json={"all": True}, headers=headers)
    assert (response.status_code, "load the page again" in response.get_json()["todo"]) == (401, True)


def test_the_secret_of_another_session_is_refused(access: Access, client: FlaskClient) -> None:
    other = session_of(create_app(FakeEngine(), all_metrics(), access).test_client(), Role.ADMIN)
    session_of(client, Role.ADMIN)
    assert client.post("/api/approve", json={"all": True}, headers=other).status_code == 401


def test_another_site_cannot_use_a_session(client: FlaskClient) -> None:
    headers = session_of(client, Role.ADMIN) | {"Origin": "http://evil.example"}
    assert client.post("/api/approve", json={"all": True}, headers=headers).status_code == 403


@pytest.mark.parametrize(("role", "able"), [(Role.VIEWER, False), (Role.APPROVER, True)])
def test_buttons_need_the_role(access: Access, role: Role, able: bool) -> None:
    client = create_app(FakeEngine().drill(), all_metrics(), access).test_client()
    session_of(client, role)
    assert ("needs the role approver" not in client.get("/plan").text) == able


def test_a_session_ends_with_the_logout(client: FlaskClient) -> None:
    client.post("/login", json={"token": TOKENS[Role.VIEWER]})
    stolen = client.get_cookie(COOKIE)
    client.post("/logout", json={})
    assert stolen is not None
    assert client.get("/api/status", headers={"Cookie": f"{COOKIE}={stolen.value}"}).status_code == 401


def test_the_page_offers_a_logout_only_to_a_session(client: FlaskClient) -> None:
    without = client.get("/", headers=bearer(Role.VIEWER)).text
    client.post("/login", json={"token": TOKENS[Role.VIEWER]})
    assert ('id="logout"' in without, 'id="logout"' in client.get("/").text) == (False, True)


def test_a_session_ends_with_its_token(client: FlaskClient, file: Path) -> None:
    client.post("/login", json={"token": TOKENS[Role.VIEWER]})
    file.write_text(line_of("carol", Role.VIEWER, "new") + "\n")
    assert client.get("/api/status").status_code == 401


def test_a_session_ends_in_time(client: FlaskClient, clock: Clock) -> None:
    client.post("/login", json={"token": TOKENS[Role.VIEWER]})
    clock.now_s = SESSION_S
    assert client.get("/api/status").status_code == 401


def test_sessions_are_bounded_and_the_oldest_ends(access: Access, client: FlaskClient) -> None:
    client.post("/login", json={"token": TOKENS[Role.VIEWER]})
    others = create_app(FakeEngine(), all_metrics(), access).test_client()
    before = client.get("/api/status").status_code
    for _ in range(SESSIONS):
        others.post("/login", json={"token": TOKENS[Role.VIEWER]})
    assert (before, client.get("/api/status").status_code, others.get("/api/status").status_code) == (200, 401, 200)


def test_the_page_sends_unknown_browsers_to_the_form(client: FlaskClient) -> None:
    response = client.get("/")
    form = client.get("/login")
    assert (response.status_code, response.headers["Location"], "password" in form.text) == (303, "/login?to=%2F", True)
    assert "form-action 'self'" in form.headers["Content-Security-Policy"]


def test_the_form_returns_to_the_page_that_was_asked_for(client: FlaskClient) -> None:
    place = client.get("/findings?stream=placement&q=a%20b").headers["Location"]
    assert 'data-to="/findings?stream=placement&amp;q=a%20b"' in client.get(place).text


@pytest.mark.parametrize("to", ["//elsewhere", "/\\elsewhere", "https://elsewhere", "/a\n", "javascript:alert(1)"])
def test_the_form_returns_to_no_other_server(client: FlaskClient, to: str) -> None:
    assert 'data-to="/"' in client.get("/login", query_string={"to": to}).text


def test_the_form_says_why_a_session_ended(client: FlaskClient, clock: Clock, file: Path, access: Access) -> None:
    def said() -> str:
        return re.findall(r"Your session ended: (.*?)</p>", client.get(client.get("/plan").headers["Location"]).text)[0]

    client.post("/login", json={"token": TOKENS[Role.VIEWER]})
    file.write_text(line_of("carol", Role.VIEWER, "new") + "\n")
    found = [said()]
    clock.now_s = SESSION_S
    found.append(said())
    cookie = client.get_cookie(COOKIE)
    assert cookie is not None
    access.end(cookie.value)
    assert [*found, said()] == [
        "its token is not valid any more.",
        "its time was over.",
        "Trueup was restarted, or you logged out elsewhere.",
    ]


def test_a_name_of_the_settings_is_a_host(access: Access) -> None:
    http = HttpSettings(names=["trueup.example.com"])
    client = create_app(FakeEngine(), all_metrics(), access, http).test_client()
    statuses = [
        client.get("/api/status", headers={**bearer(Role.VIEWER), "Host": host}).status_code
        for host in ("trueup.example.com", "other.example.com")
    ]
    assert statuses == [200, 403]
