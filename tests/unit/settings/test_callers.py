"""Sections oidc and proxy: what is refused, with the key."""

from typing import Any

import pytest

from tests.configuration import parse
from trueup.state.common.errors import BadSettings
from trueup.state.settings.callers import is_private
from trueup.state.settings.claims import name_of, role_of, values_of
from trueup.state.settings.roles import Role

CLUSTER = {"cluster": {"zookeeper": "h:2181"}}
OIDC = {"issuer": "https://id.example", "audience": "trueup", "roles": {"ops": "admin"}}
PROXY = {"tokens": ["gateway"]}
FILE = {"tokens_file": "/t"}


@pytest.mark.parametrize(
    "raw",
    [
        {"oidc": OIDC},
        {"oidc": OIDC, "http": {"host": "0.0.0.0"}},
        {"http": FILE, "proxy": PROXY},
        {"http": FILE, "proxy": {**PROXY, "groups_header": "X-Groups", "roles": {"*": "viewer"}}},
    ],
)
def test_good_settings_are_accepted(raw: dict[str, Any]) -> None:
    assert parse({**CLUSTER, **raw})


@pytest.mark.parametrize(
    ("raw", "key"),
    [
        ({"oidc": {"audience": "a"}}, "oidc.issuer"),
        ({"oidc": {**OIDC, "issuer": "http://id.example"}}, "oidc.issuer"),
        ({"oidc": {**OIDC, "jwks": "ftp://id.example"}}, "oidc.jwks"),
        ({"oidc": {**OIDC, "audience": ""}}, "oidc.audience"),
        ({"oidc": {**OIDC, "roles": {}}}, "oidc.roles"),
        ({"oidc": {**OIDC, "roles": {"ops": "root"}}}, "oidc.roles.ops"),
        ({"proxy": PROXY}, "http.tokens_file"),
        ({"http": FILE, "proxy": {"tokens": ["oidc"]}}, "proxy.tokens"),
        ({"http": FILE, "proxy": {**PROXY, "user_header": "X User"}}, "proxy.user_header"),
        ({"http": FILE, "proxy": {**PROXY, "user_header": ""}}, "proxy.user_header"),
        ({"http": FILE, "proxy": {**PROXY, "roles": {"a": "viewer"}}}, "proxy.roles"),
        ({"http": {"host": "0.0.0.0"}}, "http.host"),
    ],
)
def test_a_problem_names_its_key(raw: dict[str, Any], key: str) -> None:
    with pytest.raises(BadSettings) as caught:
        parse({**CLUSTER, **raw})
    assert [problem.partition(":")[0] for problem in caught.value.problems] == [key]


@pytest.mark.parametrize(
    ("url", "private"),
    [
        ("https://id.example/x", True),
        ("http://127.0.0.1:1", True),
        ("http://[::1]:1", True),
        ("http://localhost:1", True),
        ("http://id.example", False),
        ("http://127.0.0.1.example", False),
        ("https://u:p@id.example", False),
        ("file:///etc/passwd", False),
        ("https://", False),
        ("", False),
        ("https://[", False),
    ],
)
def test_keys_come_only_from_urls_that_nobody_can_change(url: str, private: bool) -> None:
    assert is_private(url) is private


def test_nested_claims_are_found() -> None:
    claims = {"realm_access": {"roles": ["ops", 7]}, "a.b": "x y", "deep": {"not": 1}}
    assert [values_of(claims, path) for path in ("realm_access.roles", "a.b", "deep.not.there", "none")] == [
        ["ops"],
        ["x", "y"],
        [],
        [],
    ]


def test_everybody_can_have_a_role() -> None:
    assert [role_of(groups, {"*": "viewer", "ops": "admin"}) for groups in ([], ["ops"])] == [Role.VIEWER, Role.ADMIN]


@pytest.mark.parametrize(("value", "name"), [("ada@example.com", "ada@example.com"), ("a\u202eb", ""), (None, "")])
def test_a_name_is_printable(value: object, name: str) -> None:
    assert name_of(value) == name
