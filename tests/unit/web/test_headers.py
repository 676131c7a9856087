"""What a request contains before its sender is known: any of it may be anything, and no error is a defect."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from flask.testing import FlaskClient
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.unit.cli.fake_engine import FakeEngine
from tests.unit.web.test_proxies import GATEWAY, GROUPS
from trueup.state.settings.callers import ProxySettings
from trueup.state.settings.roles import Role
from trueup.state.settings.tokens import line_of
from trueup.streams.catalog import all_metrics
from trueup.streams.runtime.headers import CHECK, REPEATED, TOKEN, USER
from trueup.streams.web.access import COOKIE, Access, TokenFile
from trueup.streams.web.api import create_app
from trueup.streams.web.guard import _is_ours
from trueup.streams.web.others import Proxies

NAMES = (
    "Host",
    "Origin",
    "Content-Type",
    "Content-Length",
    "Cookie",
    "Authorization",
    "Accept",
    "Date",
    "Range",
    "Referer",
    "Transfer-Encoding",
    "X-Forwarded-User",
    "X-Forwarded-Groups",
    TOKEN,
    CHECK,
    USER,
    REPEATED,
)
PIECES = st.sampled_from(
    [
        "http://",
        "//",
        "[",
        "]",
        "::1",
        "127.0.0.1",
        ":8642",
        "%00",
        "@",
        "/",
        "Bearer ",
        "Basic ",
        "a.b.c",
        "e30.e30.e30",
        f"{COOKIE}=",
        ";",
        ",",
        '"',
        "=",
        "application/json",
        "charset=",
        "utf-7",
        "\xbd",
        "\xff",
        "9" * 20,
        "-1",
        "bytes=",
    ]
)
VALUES = st.lists(PIECES | st.text(st.characters(max_codepoint=255, exclude_characters="\r\n\0"), max_size=8)).map(
    "".join
)
REQUESTS = [
    ("GET", "/healthz"),
    ("GET", "/api/status"),
    ("POST", "/login"),
    ("POST", "/logout"),
    ("GET", "/"),
    ("POST", "/api/approve"),
    ("OPTIONS", "/api/status"),
    ("PUT", "/api/config/x"),
    ("GET", "/none"),
]


@pytest.fixture(scope="module", params=["with tokens", "without"])
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> FlaskClient:
    if request.param == "without":
        return create_app(FakeEngine(), all_metrics()).test_client()
    file: Path = tmp_path_factory.mktemp("access") / "tokens"
    file.write_text(f"{line_of('gateway', Role.VIEWER, GATEWAY)}\n")
    proxies = Proxies(ProxySettings(tokens=["gateway"], **GROUPS))
    return create_app(
        FakeEngine(), all_metrics(), Access(TokenFile(file), lambda _: None, proxies=proxies)
    ).test_client()


@given(st.sampled_from(REQUESTS), st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4), st.binary(max_size=40))
@example(("GET", "/api/status"), {"Origin": "http://[::1"}, b"")
@example(("GET", "/api/status"), {"Host": "[::1"}, b"")
@example(("GET", "/api/status"), {"Host": "\xbd", "Origin": "http://\xbd"}, b"")
@example(("POST", "/login"), {"Content-Type": "application/json"}, b"[" * 100_000)
@example(("POST", "/login"), {"Content-Type": "application/json"}, b'{"token": "\\ud800"}')
@example(("GET", "/api/status"), {TOKEN: GATEWAY, "X-Forwarded-User": "\xff", "X-Forwarded-Groups": "\xff,"}, b"")
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_header_and_no_body_is_a_defect(
    client: FlaskClient, request_line: tuple[str, str], headers: Mapping[str, str], body: bytes
) -> None:
    method, path = request_line
    client._cookies.clear()
    response = client.open(path, method=method, headers=dict(headers), data=body)
    assert response.status_code < 500, (method, path, headers, body, response.text)


@pytest.mark.parametrize(
    "host",
    [
        "[::1",
        "::1]",
        "[::1]x",
        "127.0.0.1:80, evil.example",
        "127.0.0.1@evil.example",
        "",
        ":80",
        "evil.example#127.0.0.1",
        "[evil]",
        "evil.example",
        "127.0.0.1 evil",
        "localhost/../evil.example",
        "\xbd",
        "127.0.0.1:80:80",
    ],
)
def test_a_host_that_is_not_one_address_of_this_machine_is_refused(host: str) -> None:
    assert not _is_ours(host, ())


@pytest.mark.parametrize(
    "host", ["[::1]:8642", "127.0.0.1", "localhost:80", "LOCALHOST.", "10.0.0.1:", "trueup.example"]
)
def test_addresses_names_without_dots_and_declared_names_are_ours(host: str) -> None:
    assert _is_ours(host, ["Trueup.example"])
