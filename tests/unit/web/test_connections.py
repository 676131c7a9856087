"""Clients that keep connections open, on a real port: others are served."""

import logging
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import product
from pathlib import Path

import pytest
from flask import Response
from waitress.adjustments import Adjustments

from tests.certificates import certify
from tests.unit.cli.fake_engine import FakeEngine
from tests.unit.web.test_proxies import ADA, GATEWAY, GROUPS, app
from trueup.connectors.embedded.processes import wait_until
from trueup.streams.catalog import all_metrics
from trueup.streams.terminal.client import Api, ApiTarget
from trueup.streams.web import connections
from trueup.streams.web.api import Server, create_app, serve
from trueup.streams.web.server import THREADS
from trueup.streams.web.tls import Certificate

HEAD = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
MOST = 40
MANY = MOST + 30


@pytest.fixture
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    certificate = Certificate(*certify(tmp_path)) if request.param == "https" else None
    made = serve(create_app(FakeEngine(), all_metrics()), "127.0.0.1", 0, certificate)
    yield made
    made.stop()


@pytest.fixture
def api(server: Server, request: pytest.FixtureRequest, tmp_path: Path) -> Api:
    scheme = request.node.callspec.params["server"]
    ca = str(tmp_path / "certificate.pem") if scheme == "https" else ""
    return Api(ApiTarget(f"{scheme}://127.0.0.1:{server.port}", ca=ca), read_s=5.0)


def connected(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=10)


def ended(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1000) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    ("server", "sent"), [("http", b""), ("http", HEAD), ("https", b""), ("https", b"\x16\x03\x01")], indirect=["server"]
)
def test_any_number_of_connections_without_a_request_keeps_nobody_out(
    server: Server, api: Api, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MOST", MOST)
    with ExitStack() as stack:
        idle = [stack.enter_context(connected(server)) for _ in range(MANY)]
        for one in idle:
            one.sendall(sent)
        wait_until(lambda: sum(map(ended, idle)) >= MANY - MOST, 60.0, "the oldest ones to be closed")
        assert [api.get("status")["cluster"] for _ in range(3)] == ["east"] * 3
        assert not all(map(ended, idle))


def trickled(server: Server, first: bytes, then: bytes) -> float:
    """Seconds until a connection ends on which some bytes arrive at all times."""
    began_s = time.monotonic()
    with connected(server) as slow:

        def closed_after_more() -> bool:
            with suppress(OSError):
                slow.sendall(then)
            return ended(slow)

        slow.sendall(first)
        wait_until(closed_after_more, 30.0, "the end of the connection")
    return time.monotonic() - began_s


@pytest.mark.parametrize("server", ["http"], indirect=True)
@pytest.mark.parametrize(
    ("first", "then"),
    [
        (HEAD, b"X-Line: more\r\n"),
        (b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\n\r\n", b"."),
        (HEAD + b"\r\n" + HEAD, b"X-Line: more\r\n"),
    ],
    ids=["head", "body", "second request"],
)
def test_a_request_that_arrives_slowly_ends_its_connection(
    server: Server, monkeypatch: pytest.MonkeyPatch, first: bytes, then: bytes
) -> None:
    monkeypatch.setattr(connections, "REQUEST_S", 0.5)
    assert trickled(server, first, then) < 10.0


def test_a_request_in_progress_is_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(FakeEngine):
        def plan(self) -> list[dict[str, object]]:
            until_s = time.monotonic() + 2.5  # longer than the loop's period and the time of a request
            wait_until(lambda: time.monotonic() > until_s, 10.0, "the end")
            return [{"id": "slow"}]

    monkeypatch.setattr(connections, "REQUEST_S", 0.2)
    monkeypatch.setattr(connections, "IDLE_S", 0.2)
    made = serve(create_app(Slow(), all_metrics()), "127.0.0.1", 0)
    try:
        assert Api(f"http://127.0.0.1:{made.port}").get("plan") == [{"id": "slow"}]
    finally:
        made.stop()


@pytest.mark.parametrize("requests", [1, 50], ids=["one", "pipelined"])
def test_clients_that_do_not_read_their_responses_hold_no_thread(
    requests: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "REQUEST_S", 0.5)
    made_app = create_app(FakeEngine(), all_metrics())
    made_app.add_url_rule("/static/large", view_func=lambda: Response(bytes(8 << 20) for _ in range(4)))
    made = serve(made_app, "127.0.0.1", 0)
    try:
        with ExitStack() as stack:
            for _ in range(2 * THREADS):
                stack.enter_context(connected(made)).sendall(
                    requests * b"GET /static/large HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
                )
            assert Api(ApiTarget(f"http://127.0.0.1:{made.port}"), read_s=60.0).get("status")["cluster"] == "east"
    finally:
        made.stop()


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("how", ["end", "reset"])
def test_a_client_that_closes_during_a_large_response_leaves_the_log_empty(
    scheme: str, how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "waitress.queue")  # as for the application: a request may wait for a thread
    served = threading.Event()

    def large() -> Iterator[bytes]:
        try:
            for _ in range(64):
                yield bytes(1 << 20)
        finally:
            served.set()

    made_app = create_app(FakeEngine(), all_metrics())
    made_app.add_url_rule("/static/large", view_func=lambda: Response(large()))
    certificate = Certificate(*certify(tmp_path)) if scheme == "https" else None
    made = serve(made_app, "127.0.0.1", 0, certificate)
    trusting = ssl.create_default_context(cafile=str(tmp_path / "certificate.pem")) if certificate else None
    try:
        for _ in range(3):
            served.clear()
            plain = connected(made)
            with trusting.wrap_socket(plain, server_hostname="127.0.0.1") if trusting else plain as connection:
                connection.sendall(b"GET /static/large HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                assert connection.recv(1000).startswith(b"HTTP/1.1 200")
                if how == "reset":
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            assert served.wait(60)
    finally:
        made.stop()
    assert caplog.text == ""


def test_many_names_of_headers_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [bytes(name) for name in product(b"abcdefghijklmnopqrstuvwxyz", repeat=3)]
    made = serve(create_app(FakeEngine(), all_metrics()), "127.0.0.1", 0)
    try:
        with connected(made) as connection, connection.makefile("rb") as answer:
            connection.sendall(b"GET /healthz HTTP/1.1\r\n" + b"".join(name + b":\r\n" for name in names) + b"\r\n")
            assert answer.readline().split()[1] == b"431"
    finally:
        made.stop()


def test_repeated_headers_are_found_in_one_pass() -> None:
    parser = connections.Parser(Adjustments())
    names = [bytes(name) for name in product(b"abcdefghij", repeat=4)]
    began_s = time.process_time()
    parser.parse_header(b"GET / HTTP/1.1\r\n" + b"".join(name + b": 1\r\n" for name in [*names, b"last", b"last"]))
    assert parser.headers["TRUEUP_REPEATED"] == "last"
    assert time.process_time() - began_s < 1.0  # counting each name in all would take about three seconds


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[Callable[[bytes], bytes]]:
    """The status line of the response to a request with these headers."""
    made = serve(app(tmp_path, **GROUPS), "127.0.0.1", 0)

    def asked(headers: bytes) -> bytes:
        with connected(made) as connection, connection.makefile("rb") as answer:
            connection.sendall(b"GET /api/status HTTP/1.0\r\nHost: 127.0.0.1\r\n" + headers + b"\r\n")
            return answer.readline().split()[1]

    yield asked
    made.stop()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (b"X-Forwarded-Groups: dev\r\n", b"200"),
        (b"X-Forwarded-Groups: none\r\nX-Forwarded-Groups: dev\r\n", b"401"),
        (b"x-forwarded-groups: dev\r\nX-FORWARDED-GROUPS: dev\r\n", b"401"),
        (b"X-Forwarded-Groups: dev\r\nX-Forwarded-User: ada\r\n", b"401"),
        (b"X-Forwarded-Groups: dev\r\nTrueup-Repeated: x\r\nAccept: a\r\nAccept: b\r\n", b"200"),
        (b"X-Forwarded-Groups: none\r\nX-Forwarded-Groups: dev\r\nTrueup-Repeated: accept\r\n", b"401"),
    ],
)
def test_a_proxy_that_repeats_its_header_names_nobody(
    proxied: Callable[[bytes], bytes], headers: bytes, status: bytes
) -> None:
    token = f"Trueup-Token: {GATEWAY}\r\nX-Forwarded-User: eve\r\n".encode()
    assert proxied(token + headers) == status
    assert proxied(f"Trueup-Token: {ADA}\r\n".encode() + headers) == b"200"
