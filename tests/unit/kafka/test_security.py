"""Section security of a Kafka cluster: one vocabulary, three client libraries."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from trueup.connectors.contract import Endpoint
from trueup.connectors.kafka.client import options
from trueup.connectors.kafka.client.security import java_of, librdkafka_of, unreadable
from trueup.state.common.errors import BadSettings
from trueup.state.settings.kafka_security import problems

LOGIN = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "u"}
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with certificate.pem, key.pem (PKCS #8) and old.pem (PKCS #1)."""
    root = tmp_path_factory.mktemp("pem")
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=c", "-days", "1"]
    key, certificate = root / "key.pem", root / "certificate.pem"
    subprocess.run([*make, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    old = ["openssl", "rsa", "-in", key, "-traditional", "-out", root / "old.pem"]
    subprocess.run(old, check=True, capture_output=True)
    return root


@pytest.mark.parametrize(
    ("security", "keys"),
    [
        ({"sasl.user": "u"}, ["sasl.user", "sasl.mechanism"]),
        ({"sasl.mechanism": "GSSAPI", "sasl.username": "u", "sasl.password": "p"}, ["sasl.mechanism"]),
        ({"sasl.username": "u"}, ["sasl.mechanism"]),
        (LOGIN, ["sasl.password"]),
        ({**LOGIN, "sasl.password": "p", "sasl.password.env": "P"}, ["sasl.password"]),
        ({"tls.certificate": "c.pem"}, ["tls.key"]),
        ({"tls.ca": "a.pem", "tls.key.password": "p"}, ["tls.key.password"]),
        ({"tls.check.host": "maybe"}, ["tls.check.host"]),
        ({**LOGIN, "sasl.password.file": "p"}, []),
        ({"tls.ca": "system"}, []),
    ],
)
def test_an_invalid_key_is_named(security: dict[str, str], keys: list[str]) -> None:
    found = [problem.partition(":")[0] for problem in problems(security, {}, "kafka.east")]
    assert found == [f"kafka.east.security.{key}" for key in keys]


def test_security_is_declared_once() -> None:
    given = {"linger.ms": "1", "ssl.ca.location": "a.pem", "security.protocol": "ssl"}
    found = [problem.partition(":")[0] for problem in problems({"tls.ca": "system"}, given, "journal")]
    assert found == ["journal.options.security.protocol", "journal.options.ssl.ca.location"]


def test_librdkafka_gets_its_names() -> None:
    security = {**LOGIN, "sasl.password": "p", "tls.ca": "a.pem", "tls.check.host": "false"}
    assert librdkafka_of(security, "kafka.east") == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "u",
        "sasl.password": "p",
        "ssl.ca.location": "a.pem",
        "ssl.endpoint.identification.algorithm": "none",
    }


def test_java_gets_its_names(pem: Path) -> None:
    authority = str(pem / "certificate.pem")
    security = {**LOGIN, "sasl.password": 'a"b\\c', "tls.ca": authority, "tls.check.host": "false"}
    assert java_of(security, "journal") == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{SCRAM} username="u" password="a\\"b\\\\c";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority,
        "ssl.endpoint.identification.algorithm": "",
    }


def test_java_gets_a_certificate_with_its_key(pem: Path) -> None:
    security = {"tls.certificate": str(pem / "certificate.pem"), "tls.key": str(pem / "key.pem")}
    assert java_of(security, "journal") == {
        "security.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": (pem / "certificate.pem").read_text(),
        "ssl.keystore.key": (pem / "key.pem").read_text(),
    }


def test_a_key_that_java_cannot_read_is_refused(pem: Path) -> None:
    security = {"tls.certificate": str(pem / "certificate.pem"), "tls.key": str(pem / "old.pem")}
    assert [p.partition(": ")[0] for p in unreadable(security, "kafka.east")] == ["kafka.east.security.tls.key"]


def test_kafka_python_gets_its_names() -> None:
    endpoint = Endpoint("east", "a:1", 0, {}, security={**LOGIN, "sasl.password": "p"})
    found = options.kafka_python(endpoint)
    assert {key: found[key] for key in found if key.startswith("s")} == {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "u",
        "sasl_plain_password": "p",
    }


def test_a_secret_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EAST_PASSWORD", "p")
    assert librdkafka_of({**LOGIN, "sasl.password.env": "EAST_PASSWORD"}, "kafka.east")["sasl.password"] == "p"


def test_a_secret_is_read_from_a_file_without_its_line_end(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("p w\n")
    security = {**LOGIN, "sasl.password.file": str(tmp_path / "password")}
    assert librdkafka_of(security, "kafka.east")["sasl.password"] == "p w"


@pytest.mark.parametrize(
    ("reference", "found"),
    [({"sasl.password.env": "NOT_SET"}, "variable NOT_SET"), ({"sasl.password.file": "/missing"}, "No such file")],
)
def test_a_secret_that_is_not_there_is_named(reference: dict[str, str], found: str) -> None:
    ((key, text),) = [p.split(": ", 1) for p in unreadable({**LOGIN, **reference}, "kafka.east")]
    assert (key, found in text) == (f"kafka.east.security.{next(iter(reference))}", True)


def test_a_password_that_jaas_cannot_hold_is_refused_without_being_shown() -> None:
    (problem,) = unreadable({**LOGIN, "sasl.password": "hush\nhush"}, "journal")
    assert ("control characters" in problem, "hush" in problem) == (True, False)


@pytest.mark.parametrize("client", [options.librdkafka, options.kafka_python])
def test_a_missing_authority_has_the_name_of_our_key(client: Callable[[Endpoint], object]) -> None:
    endpoint = Endpoint("east", "a:1", 0, {}, security={"tls.ca": "missing.pem"})
    with pytest.raises(BadSettings, match=r"kafka\.east\.security\.tls\.ca: "):
        client(endpoint)


def test_an_authority_that_librdkafka_refuses_is_a_problem_of_security(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\nno\n-----END CERTIFICATE-----\n")
    endpoint = Endpoint("east", "a:1", 0, {}, security={"tls.ca": str(tmp_path / "ca.pem")})
    with pytest.raises(BadSettings, match=r"kafka\.east\.security"):
        options.librdkafka(endpoint)
