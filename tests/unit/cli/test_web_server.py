"""The HTTP server on a real port: requests and shutdown."""

import socket

import pytest
import urllib3
from urllib3.util import Timeout

from tests.unit.cli.fake_engine import FakeEngine
from trueup.state.common.errors import Stop
from trueup.streams.catalog import all_metrics
from trueup.streams.web.api import Server, create_app, serve


@pytest.fixture
def server() -> Server:
    return serve(create_app(FakeEngine(), all_metrics()), "127.0.0.1", 0)


def get(server: Server, path: str) -> urllib3.BaseHTTPResponse:
    with urllib3.PoolManager(timeout=Timeout(5), retries=False) as pool:
        return pool.request("GET", f"http://127.0.0.1:{server.port}{path}")


def test_answers_on_the_port_it_got(server: Server) -> None:
    assert get(server, "/api/status").json()["cluster"] == "east"
    server.stop()


def test_refuses_connections_once_stopped(server: Server) -> None:
    server.stop()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", server.port)) != 0


def ended(connection: socket.socket) -> bool:
    """Whether the server closed the connection. A connection that was not yet accepted is reset."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_stops_with_a_client_connected(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as idle:
        server.stop()
        assert ended(idle)


def test_may_be_stopped_twice(server: Server) -> None:
    server.stop()
    server.stop()


def test_a_port_in_use_is_reported(server: Server) -> None:
    with pytest.raises(Stop, match=rf"expected 127.0.0.1:{server.port} to be free"):
        serve(create_app(FakeEngine(), all_metrics()), "127.0.0.1", server.port)
    server.stop()


def test_a_foreign_host_is_reported() -> None:
    with pytest.raises(Stop, match="http"):
        serve(create_app(FakeEngine(), all_metrics()), "192.0.2.1", 0)


def test_the_server_software_is_not_disclosed(server: Server) -> None:
    assert "Server" not in get(server, "/healthz").headers
    server.stop()
