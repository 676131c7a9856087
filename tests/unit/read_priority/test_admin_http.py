"""Requests to the admin API, against a server on loopback: failover, redirects, bounds, and what errors repeat."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from trueup.connectors.embedded.processes import Port
from trueup.connectors.pulsar.admin import http
from trueup.connectors.pulsar.admin.client import PulsarAdmin, scope_of
from trueup.connectors.pulsar.admin.http import AdminHttp, Unauthorized
from trueup.state.common.errors import Refused, Retry, Stop, TrueupError, Unknown

TOKEN = "t0ken"
Answered = tuple[int, dict[str, str], bytes]


class Server(ThreadingHTTPServer):
    """``answers``: status, headers and body by method and path; ``seen``: requests with their Authorization."""

    daemon_threads = True

    def __init__(self) -> None:
        self.answers: dict[str, Answered] = {}
        self.seen: list[tuple[str, str | None]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def _any(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                server.seen.append((f"{self.command} {self.path}", self.headers.get("Authorization")))
                status, headers, body = server.answers.get(f"{self.command} {self.path}", (404, {}, b""))
                if status == 0:
                    self.close_connection = True
                    return
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_PUT = do_DELETE = _any  # noqa: N815

            def log_message(self, *_: Any) -> None:
                return

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def on(self, request: str, status: int, body: bytes = b"", **headers: str) -> None:
        method, _, path = request.partition(" ")
        self.answers[f"{method} /admin/v2/{path}"] = status, headers, body


@pytest.fixture
def servers() -> Iterator[Callable[[], Server]]:
    made: list[Server] = []

    def new() -> Server:
        made.append(Server())
        return made[-1]

    yield new
    for server in made:
        server.shutdown()
        server.server_close()


def test_the_json_of_a_response_is_returned_and_the_token_is_sent(servers: Callable[[], Server]) -> None:
    server = servers()
    server.on("GET brokers", 200, b'["b:1"]')
    with AdminHttp([server.url], TOKEN) as admin:
        assert (admin.get("brokers"), server.seen[0][1]) == (["b:1"], f"Bearer {TOKEN}")


def test_the_next_address_is_used_and_stays_in_use_when_one_is_down(servers: Callable[[], Server]) -> None:
    server, free = servers(), Port()
    server.on("GET brokers/version", 200, b"4.2.4")
    with AdminHttp([f"http://{free}", server.url]) as admin:
        assert (admin.get("brokers/version"), admin.addresses[0]) == ("4.2.4", server.url)
    free.release()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, Unauthorized),
        (403, Unauthorized),
        (404, Refused),
        (409, Refused),
        (412, Refused),
        (405, http.NotEnabled),
        (429, Retry),
        (503, Retry),
    ],
)
def test_a_status_has_the_error_of_its_remedy(
    servers: Callable[[], Server], status: int, kind: type[TrueupError]
) -> None:
    server = servers()
    server.on("GET brokers", status, b'{"reason": "why"}')
    with AdminHttp([server.url]) as admin, pytest.raises(kind) as error:
        admin.get("brokers")
    assert type(error.value) is kind


@pytest.mark.parametrize(("method", "kind"), [("GET", Retry), ("POST", Unknown)])
@pytest.mark.parametrize("status", [0, 500, 504])
def test_a_change_without_a_response_has_an_unknown_outcome(
    servers: Callable[[], Server], method: str, kind: type[TrueupError], status: int
) -> None:
    server = servers()
    server.on(f"{method} x", status)
    with AdminHttp([server.url]) as admin, pytest.raises(kind):
        admin.get("x") if method == "GET" else admin.send(method, "x", {})


def test_a_change_is_not_sent_to_a_second_broker_when_it_may_have_happened(servers: Callable[[], Server]) -> None:
    first, second = servers(), servers()
    first.on("POST x", 500)
    with AdminHttp([first.url, second.url]) as admin, pytest.raises(Unknown):
        admin.send("POST", "x", {})
    assert second.seen == []


def test_a_redirect_to_a_listed_broker_is_followed_with_the_token(servers: Callable[[], Server]) -> None:
    first, owner = servers(), servers()
    first.on("GET x", 307, Location=f"{owner.url}/admin/v2/x?authoritative=true")
    first.on("GET brokers", 200, f'["127.0.0.1:{owner.server_port}"]'.encode())
    owner.on("GET x?authoritative=true", 200, b"{}")
    with AdminHttp([first.url], TOKEN) as admin:
        assert (admin.get("x"), owner.seen) == ({}, [("GET /admin/v2/x?authoritative=true", f"Bearer {TOKEN}")])


@pytest.mark.parametrize("listed", [b"[]", b'["other:8080"]', b"{}", b"null"])
def test_the_token_is_not_sent_to_a_host_that_is_no_broker(servers: Callable[[], Server], listed: bytes) -> None:
    first, other = servers(), servers()
    first.on("GET x", 307, Location=f"http://localhost:{other.server_port}/admin/v2/x")
    first.on("GET brokers", 200, listed)
    with AdminHttp([first.url], TOKEN) as admin, pytest.raises(Stop, match="redirect"):
        admin.get("x")
    assert other.seen == []


@pytest.mark.parametrize(
    "location", ["https://127.0.0.1:1/x", "http://user:pass@127.0.0.1:1/x", "ftp://127.0.0.1/x", "//["]
)
def test_a_redirect_of_another_form_is_refused(servers: Callable[[], Server], location: str) -> None:
    server = servers()
    server.on("GET x", 307, Location=location)
    server.on("GET brokers", 200, b'["127.0.0.1:1"]')
    with AdminHttp([server.url], TOKEN) as admin, pytest.raises(Stop):
        admin.get("x")


def test_redirects_in_a_circle_end(servers: Callable[[], Server]) -> None:
    server = servers()
    server.on("GET x", 307, Location=f"{server.url}/admin/v2/x")
    with AdminHttp([server.url]) as admin, pytest.raises(Stop, match="redirects"):
        admin.get("x")


def test_a_response_is_bounded(servers: Callable[[], Server], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "LONGEST_BODY", 10)
    server = servers()
    server.on("GET x", 200, b'"12345678901"')
    with AdminHttp([server.url]) as admin, pytest.raises(Stop, match="more than 10 bytes"):
        admin.get("x")


@pytest.mark.parametrize("body", [b"{", b"<html>", b"[" * 100_000, b"\xff\xfe{"])
def test_a_response_without_json_is_an_error(servers: Callable[[], Server], body: bytes) -> None:
    server = servers()
    server.on("GET x", 200, body)
    with AdminHttp([server.url]) as admin, pytest.raises(Stop):
        admin.get("x")


def test_an_error_repeats_neither_credentials_nor_the_token(servers: Callable[[], Server]) -> None:
    server = servers()
    server.on("POST x", 412, f'{{"reason": "bad value hidden for {TOKEN}"}}'.encode())
    with AdminHttp([server.url], TOKEN) as admin, pytest.raises(Refused) as error:
        admin.send("POST", "x", {"secret": "hidden"}, ["hidden"])
    assert [word for word in ("hidden", TOKEN) if word in str(error.value)] == []


def test_a_broker_that_does_not_respond_is_reported_beside_those_that_do(servers: Callable[[], Server]) -> None:
    server, free = servers(), Port()
    server.on("GET brokers/version", 200, b"4.2.4")
    server.on("GET brokers/configuration/runtime", 200, b'{"managedLedgerDataReadPriority": "bookkeeper-first"}')
    with PulsarAdmin(AdminHttp([server.url, f"http://{free}"])) as admin:
        found = admin.brokers()
    free.release()
    assert ([one.priority for one in found.brokers], len(found.problems)) == (["bookkeeper-first"], 1)


@pytest.mark.parametrize(
    ("name", "path"),
    [("t/n", "namespaces/t/n"), ("t/n/a", "persistent/t/n/a"), ("t/n/a/b c%", "persistent/t/n/a%2Fb%20c%25")],
)
def test_names_are_quoted_in_paths(name: str, path: str) -> None:
    assert scope_of(name).path == path
