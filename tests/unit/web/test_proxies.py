"""Callers whom a proxy names: only a proxy with its token can, and never above the role of that token."""

from pathlib import Path

import pytest
from flask import Flask
from flask.testing import FlaskClient

from tests.unit.cli.fake_engine import FakeEngine
from trueup.state.settings.callers import ProxySettings
from trueup.state.settings.roles import Role
from trueup.state.settings.tokens import line_of
from trueup.streams.catalog import all_metrics
from trueup.streams.web.access import Access, TokenFile
from trueup.streams.web.api import create_app
from trueup.streams.web.others import Proxies

GATEWAY, ADA = "token-of-the-gateway", "token-of-ada"
GROUPS = {"groups_header": "X-Forwarded-Groups", "roles": {"ops": "admin", "dev": "viewer"}}


def app(root: Path, **settings: object) -> Flask:
    file = root / "tokens"
    file.write_text(f"{line_of('gateway', Role.APPROVER, GATEWAY)}\n{line_of('ada', Role.VIEWER, ADA)}\n")
    proxies = Proxies(ProxySettings(tokens=["gateway"], **settings))
    access = Access(TokenFile(file), lambda _: None, proxies=proxies)
    return create_app(FakeEngine(), all_metrics(), access)


def client(root: Path, **settings: object) -> FlaskClient:
    return app(root, **settings).test_client()


def get(client: FlaskClient, token: str, path: str = "/api/status", **headers: str) -> int:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.get(path, headers={"Trueup-Token": token, **sent}).status_code


def approve(client: FlaskClient, **headers: str) -> int:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.post("/api/approve", json={}, headers={"Trueup-Token": GATEWAY, **sent}).status_code


def test_a_caller_has_the_role_of_the_proxy(tmp_path: Path) -> None:
    made = client(tmp_path)
    put = made.put("/api/config/x", json={}, headers={"Trueup-Token": GATEWAY, "X-Forwarded-User": "eve"})
    assert (approve(made, X_Forwarded_User="eve") != 403, put.status_code) == (True, 403)


@pytest.mark.parametrize(("groups", "status"), [("ops", 400), ("dev, ops", 400), ("dev", 403), ("", 403), ("OPS", 403)])
def test_groups_give_roles_within_that_of_the_proxy(groups: str, status: int, tmp_path: Path) -> None:
    made = client(tmp_path, **GROUPS)
    assert approve(made, X_Forwarded_User="eve", X_Forwarded_Groups=groups) == status
    assert (
        made.put(
            "/api/config/x",
            json={},
            headers={"Trueup-Token": GATEWAY, "X-Forwarded-User": "e", "X-Forwarded-Groups": "ops"},
        ).status_code
        == 403
    )


@pytest.mark.parametrize("name", ["", "a,b", "a, ada", "a b", "x" * 129])
def test_a_proxy_names_exactly_one_caller(name: str, tmp_path: Path) -> None:
    assert get(client(tmp_path), GATEWAY, X_Forwarded_User=name) == 401


def test_nobody_else_can_name_a_caller(tmp_path: Path) -> None:
    made = client(tmp_path)
    without = made.get("/api/status", headers={"X-Forwarded-User": "eve"}).status_code
    write = made.post("/api/approve", json={}, headers={"Trueup-Token": ADA, "X-Forwarded-User": "eve"}).status_code
    assert (without, get(made, ADA, X_Forwarded_User="eve"), write) == (401, 200, 403)


def test_the_name_tells_the_proxy(tmp_path: Path) -> None:
    proxies = Proxies(ProxySettings(tokens=["gateway"]))
    token = TokenFile(tmp_path / "tokens")
    client(tmp_path)
    (gateway, _) = token.tokens()
    assert proxies.caller(gateway, {"X-Forwarded-User": "ada"}).name == "gateway:ada"
