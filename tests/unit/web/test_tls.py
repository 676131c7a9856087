"""The HTTP server over TLS on a real port."""

import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.certificates import certify
from tests.unit.cli.fake_engine import FakeEngine
from trueup.state.common.errors import Retry, Stop
from trueup.streams.catalog import all_metrics
from trueup.streams.runtime.supervisor import Supervisor
from trueup.streams.terminal.client import Api, ApiError, ApiTarget
from trueup.streams.web.api import Server, create_app, serve
from trueup.streams.web.server import claim
from trueup.streams.web.tls import Certificate


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    return Certificate(*certify(tmp_path))


@pytest.fixture
def server(certificate: Certificate) -> Iterator[Server]:
    made = serve(create_app(FakeEngine(), all_metrics()), "127.0.0.1", 0, certificate)
    yield made
    made.stop()


@pytest.fixture
def ca(tmp_path: Path) -> str:
    return str(tmp_path / "certificate.pem")


def api(server: Server, ca: str) -> Api:
    return Api(ApiTarget(f"https://127.0.0.1:{server.port}", ca=ca), read_s=10.0)


def test_a_client_that_knows_the_authority_is_served(server: Server, ca: str) -> None:
    client = api(server, ca)
    assert [client.get("status")["cluster"] for _ in range(20)] == ["east"] * 20


def test_a_client_that_does_not_know_it_refuses(server: Server) -> None:
    with pytest.raises(Retry, match=r"self-signed certificate.*--ca"):
        api(server, "").get("status")


def test_a_file_of_authorities_that_is_missing_is_named(server: Server, tmp_path: Path) -> None:
    with pytest.raises(Retry, match=r"No such file.*--ca"):
        api(server, str(tmp_path / "none")).get("status")


@pytest.mark.parametrize("size", [20_000, 300_000, 900_000])
def test_large_requests_and_responses_arrive_whole(server: Server, ca: str, size: int) -> None:
    with pytest.raises(Exception, match="approve") as found:
        api(server, ca).post("approve", {"ids": [], "text": "x" * size})
    assert len(api(server, ca).get("rules")) > 10
    assert "ids" in str(found.value)


def test_plain_http_is_told_to_use_tls_and_others_are_served(server: Server, ca: str) -> None:
    with pytest.raises(ApiError, match=r"expected https:// on this port; found a request without TLS; use https://"):
        Api(f"http://127.0.0.1:{server.port}").get("status")
    assert api(server, ca).get("status")


def test_a_client_that_resets_its_connection_at_once_ends_nothing(certificate: Certificate, ca: str) -> None:
    listener = claim("127.0.0.1", 0)
    listener.listen()
    for _ in range(3):  # before the server accepts them
        with socket.create_connection(listener.getsockname(), timeout=10) as gone:
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    run = Supervisor(threading.Event(), lambda _: None).run
    made = Server(create_app(FakeEngine(), all_metrics()), listener, run, certificate)
    try:
        assert api(made, ca).get("status")["cluster"] == "east"
    finally:
        made.stop()


def test_bytes_that_are_neither_end_their_connection(server: Server, ca: str) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as other:
        other.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
        assert ended(other)
    assert api(server, ca).get("status")


def test_https_to_a_port_without_tls_is_told_to_use_http() -> None:
    made = serve(create_app(FakeEngine(), all_metrics()), "127.0.0.1", 0)
    try:
        with pytest.raises(Retry, match=rf"without TLS.*--api http://127.0.0.1:{made.port}"):
            Api(f"https://127.0.0.1:{made.port}").get("status")
    finally:
        made.stop()


def ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1000) == b""
    except ConnectionResetError:
        return True


def test_a_client_that_does_not_finish_its_handshake_delays_nobody(server: Server, ca: str) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as slow:
        slow.sendall(b"\x16\x03\x01")
        assert api(server, ca).get("status")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_1_2_and_1_3_are_served(server: Server, ca: str, version: ssl.TLSVersion) -> None:
    assert negotiated(server, ca, version) in ("TLSv1.2", "TLSv1.3")


def test_older_versions_are_refused(certificate: Certificate) -> None:
    assert certificate.context().minimum_version == ssl.TLSVersion.TLSv1_2


def negotiated(server: Server, ca: str, version: ssl.TLSVersion) -> str | None:
    context = ssl.create_default_context(cafile=ca)
    context.minimum_version = context.maximum_version = version
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as made,
    ):
        return made.version()


def serial(server: Server, ca: str) -> str:
    context = ssl.create_default_context(cafile=ca)
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as made,
    ):
        return str((made.getpeercert() or {})["serialNumber"])


def test_a_renewed_certificate_is_used_by_the_next_connection(server: Server, ca: str, tmp_path: Path) -> None:
    before = serial(server, ca)
    certify(tmp_path, serial=7)
    assert (before, serial(server, ca)) == ("01", "07")


def test_a_renewal_that_is_not_valid_leaves_the_last_certificate(
    server: Server, certificate: Certificate, ca: str, tmp_path: Path
) -> None:
    known = tmp_path / "known.pem"
    known.write_bytes(Path(ca).read_bytes())
    Path(ca).write_text("no certificate")
    assert (serial(server, str(known)), certificate.problem[:20]) == ("01", "http.tls_certificate")


def test_a_certificate_with_another_key_is_reported(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    certificate, _ = certify(tmp_path)
    _, key = certify(tmp_path / "other")
    with pytest.raises(Stop, match="belong together"):
        Certificate(certificate, key)


def test_a_server_over_tls_stops_with_a_client_connected(certificate: Certificate) -> None:
    made = serve(create_app(FakeEngine(), all_metrics()), "127.0.0.1", 0, certificate)
    with socket.create_connection(("127.0.0.1", made.port), timeout=10) as idle:
        made.stop()
        with suppress(ConnectionResetError):  # the system resets a connection whose first bytes were not read
            assert idle.recv(1) == b""
