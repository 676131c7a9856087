"""One set of options for both client libraries."""

import ssl
import subprocess
from pathlib import Path

import pytest

from trueup.connectors.contract import Endpoint
from trueup.connectors.kafka.client import options
from trueup.state.common.errors import BadSettings


def endpoint(given: dict[str, str]) -> Endpoint:
    return Endpoint("east", "a:1,b:2", 0, given)


@pytest.fixture
def authority(tmp_path: Path) -> str:
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=ca", "-days", "1"]
    out = tmp_path / "ca.pem"
    subprocess.run([*made, "-keyout", tmp_path / "key.pem", "-out", out], check=True, capture_output=True)
    return str(out)


def test_librdkafka_gets_the_options_as_they_are_and_ours_over_them() -> None:
    config = options.librdkafka(endpoint({"linger.ms": "7", "client.id": "them"}), client_id="us", acks="all")
    assert (config["bootstrap.servers"], config["linger.ms"], config["client.id"]) == ("a:1,b:2", "7", "us")


def test_kafka_python_gets_what_concerns_connections_under_its_own_names() -> None:
    given = {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "u",
        "sasl.password": "p",
        "socket.timeout.ms": "5000",
        "linger.ms": "7",
    }
    assert options.kafka_python(endpoint(given)) == {
        "bootstrap_servers": ["a:1", "b:2"],
        "client_id": "trueup",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "u",
        "sasl_plain_password": "p",
        "request_timeout_ms": 5000,
    }


def test_addresses_are_hosts_and_ports() -> None:
    assert options.addresses_of(Endpoint("east", "a:1, [::1]:2", 0)) == [("a", 1), ("::1", 2)]


def test_an_address_without_a_port_is_reported() -> None:
    with pytest.raises(BadSettings, match=r"kafka\.east\.bootstrap: expected host:port, found 'a'"):
        options.addresses_of(Endpoint("east", "a", 0))


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"scurity.protocol": "ssl"}, "scurity.protocol"),
        ({"security.protocol": "tls"}, "security.protocol"),
        ({"socket.timeout.ms": "-7"}, "socket.timeout.ms"),
        ({"group.id": "mine"}, "group.id"),
    ],
)
@pytest.mark.parametrize("client", [options.librdkafka, options.kafka_python])
def test_an_unusable_option_is_named(client: object, given: dict[str, str], key: str) -> None:
    with pytest.raises(BadSettings, match=rf"kafka\.east\.options\.{key}: "):
        client(endpoint(given))  # type: ignore[operator]


def test_contradictory_options_are_reported() -> None:
    given = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN"}
    assert options.problems(endpoint(given)) == [
        "kafka.east.options.*: Failed to create admin client: sasl.username and sasl.password must be set"
    ]


@pytest.mark.parametrize("client", [options.librdkafka, options.kafka_python])
def test_what_only_librdkafka_can_do_is_refused_for_both(client: object, authority: str) -> None:
    given = {"security.protocol": "ssl", "ssl.ca.location": authority, "ssl.curves.list": "P-256"}
    with pytest.raises(BadSettings, match=r"ssl\.curves\.list: links do not support this"):
        client(endpoint(given))  # type: ignore[operator]


def test_a_mechanism_of_librdkafka_alone_is_refused() -> None:
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.config": "x=y"}
    assert [problem.partition(": ")[0] for problem in options.problems(endpoint(given))][:2] == [
        "kafka.east.options.sasl.oauthbearer.config",
        "kafka.east.options.sasl.mechanism",
    ]


def test_tls_trusts_the_given_authority_and_checks_names(authority: str) -> None:
    given = {"security.protocol": "ssl", "ssl.ca.location": authority}
    context = options.kafka_python(endpoint(given))["ssl_context"]
    assert ([dict(c["subject"][0])["commonName"] for c in context.get_ca_certs()][-1:], context.check_hostname) == (
        ["ca"],
        True,
    )


def test_tls_without_names_or_without_verification() -> None:
    loose = options.tls({"ssl.endpoint.identification.algorithm": "none"})
    off = options.tls({"enable.ssl.certificate.verification": "false"})
    assert (loose.check_hostname, loose.verify_mode, off.verify_mode) == (False, ssl.CERT_REQUIRED, ssl.CERT_NONE)


def test_a_missing_file_is_reported() -> None:
    with pytest.raises(BadSettings, match=r"ssl\.\*"):
        options.tls({"ssl.ca.location": "missing.pem"})


def test_a_secret_is_never_in_the_message() -> None:
    with pytest.raises(BadSettings) as raised:
        options.librdkafka(endpoint({"sasl.password": "hush", "foo": "1"}))
    assert "hush" not in str(raised.value)


def test_callbacks_keep_their_names() -> None:
    assert options.librdkafka(endpoint({}), error_cb=print)["error_cb"] is print
