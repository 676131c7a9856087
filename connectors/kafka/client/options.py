"""Client settings of a cluster, for both client libraries.

They are declared once, with librdkafka's names (CONFIGURATION.md of librdkafka 2.16), and what concerns security in
the vocabulary of `state.settings.kafka_security`. librdkafka validates names and
values. kafka-python, whose connections links use, receives the settings of connections under its own names
(``KafkaAdminClient.DEFAULT_CONFIG`` of 3.0.12); settings of librdkafka's own buffers and batches do not apply to it.
"""

import functools
import logging
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from trueup.connectors.contract import Endpoint
from trueup.connectors.kafka.client.oauth import tokens_of
from trueup.connectors.kafka.client.security import NAMES, librdkafka_of, unreadable
from trueup.state.common.errors import BadSettings, Stop
from trueup.state.settings.kafka import KafkaCluster
from trueup.state.settings.kafka_security import BEARER

RESERVED = frozenset(
    {
        "acks",
        "auto.offset.reset",
        "bootstrap.servers",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.idempotence",
        "group.id",
        "group.instance.id",
        "isolation.level",
        "metadata.broker.list",
        "request.required.acks",
        "transactional.id",
    }
)
"""Settings that links set themselves."""

_QUIET = {"client.id": "trueup", "reconnect.backoff.max.ms": "5000"}
_TLS = ("ssl", "sasl_ssl")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_SYNONYMS = {"sasl.mechanisms": "sasl.mechanism"}
_SECURITY = ("ssl.", "sasl.", "https.", "enable.ssl.", "enable.sasl.")
_FALSE = ("false", "0", "f", "n", "no")
_IN_CONTEXT = frozenset(
    {
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.crl.location",
        "ssl.cipher.suites",
        "ssl.endpoint.identification.algorithm",
        "enable.ssl.certificate.verification",
    }
)
_NAMES: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "client.id": ("client_id", str),
    "client.dns.lookup": ("client_dns_lookup", str),
    "connections.max.idle.ms": ("connections_max_idle_ms", int),
    "metadata.max.age.ms": ("metadata_max_age_ms", int),
    "receive.message.max.bytes": ("receive_message_max_bytes", int),
    "reconnect.backoff.max.ms": ("reconnect_backoff_max_ms", int),
    "reconnect.backoff.ms": ("reconnect_backoff_ms", int),
    "retry.backoff.ms": ("retry_backoff_ms", int),
    "sasl.mechanism": ("sasl_mechanism", str.upper),
    "sasl.password": ("sasl_plain_password", str),
    "sasl.username": ("sasl_plain_username", str),
    "security.protocol": ("security_protocol", str.upper),
    "socket.receive.buffer.bytes": ("receive_buffer_bytes", int),
    "socket.send.buffer.bytes": ("send_buffer_bytes", int),
    "socket.timeout.ms": ("request_timeout_ms", int),
}


def endpoint_of(name: str, declared: KafkaCluster) -> Endpoint:
    """A cluster of the settings."""
    return Endpoint(name, declared.bootstrap, declared.bit, declared.options, security=declared.security)


def librdkafka(endpoint: Endpoint, **ours: object) -> dict[str, Any]:
    """Settings for a client of confluent-kafka. ``ours`` override the cluster's, with ``_`` for ``.`` in names (not in
    ``log_level`` and those of callbacks, ``error_cb``).

    Raises `BadSettings` with each invalid key.
    """
    _check(endpoint)
    own = {
        name if name == "log_level" or name.endswith("_cb") else name.replace("_", "."): value
        for name, value in ours.items()
    }
    return {
        "bootstrap.servers": endpoint.address,
        "logger": logging.getLogger("librdkafka"),
        **_QUIET,
        **_given(endpoint),
        **own,
    }


@contextmanager
def client_errors(cluster: str) -> Iterator[None]:
    """Raise `Stop` for what confluent-kafka refuses when a client is made: files that were replaced one by one, such as
    a certificate before its key, pass no check of the configuration."""
    try:
        yield
    except KafkaException as error:
        expected, todo = f"a client of {cluster}", f"check the files of kafka.{cluster}.security; retrying"
        raise Stop(expected, error.args[0].str(), todo) from error


def kafka_python(endpoint: Endpoint) -> dict[str, Any]:
    """Settings for a client of kafka-python, such as ``KafkaAdminClient``. Raises like `settings_of`."""
    return {"bootstrap_servers": endpoint.address.split(","), **settings_of(endpoint)}


def settings_of(endpoint: Endpoint) -> dict[str, Any]:
    """Settings for kafka-python's connections and clients, without addresses.

    Raises `BadSettings` with each invalid key.
    """
    _check(endpoint)
    options = {"client.id": "trueup", "security.protocol": "PLAINTEXT", **_plain(_given(endpoint))}
    translated = {_NAMES[key][0]: _NAMES[key][1](value) for key, value in options.items() if key in _NAMES}
    if options["security.protocol"].lower() in _TLS:
        translated["ssl_context"] = tls(options)
    if endpoint.security.get("sasl.mechanism") == BEARER:
        translated["sasl_oauth_token_provider"] = tokens_of(endpoint.security, f"kafka.{endpoint.name}")
    return translated


def addresses_of(endpoint: Endpoint) -> list[tuple[str, int]]:
    """Host and port of each bootstrap address. Raises `BadSettings`."""
    addresses = []
    for part in endpoint.address.split(","):
        host, _, port = part.strip().rpartition(":")
        if not (host and port.isdecimal()):
            raise BadSettings([f"kafka.{endpoint.name}.bootstrap: expected host:port, found {part.strip()!r}"])
        addresses.append((host.strip("[]"), int(port)))
    return addresses


def problems(endpoint: Endpoint) -> list[str]:
    """Problems of the options and the security of a cluster, one line for each key; nothing is connected."""
    path = f"kafka.{endpoint.name}"
    reserved = [f"{path}.options.{key}: links set this; remove it" for key in endpoint.options if key in RESERVED]
    reserved += [f"{path}.options.{problem}" for problem in _unsupported(endpoint.options)]
    if lines := list(unreadable(endpoint.security, path)):
        return reserved + lines
    given = _given(endpoint)
    judged = _judged(tuple(sorted((key, value) for key, value in given.items() if key not in RESERVED)))
    return reserved + [f"{path}.{_called(endpoint, problem)}" for problem in judged]


def _unsupported(options: Mapping[str, str]) -> list[str]:
    """The options of security that kafka-python, and thus links, do not support; one line for each."""
    plain = _plain(options)
    unknown = [
        f"{key}: links do not support this; remove it"
        for key in plain
        if key.startswith(_SECURITY) and key not in _NAMES and key not in _IN_CONTEXT
    ]
    mechanism = plain.get("sasl.mechanism", _MECHANISMS[0])
    if plain.get("security.protocol", "").lower().startswith("sasl") and mechanism.upper() not in _MECHANISMS:
        supported = ", ".join(_MECHANISMS)
        unknown.append(f"sasl.mechanism: expected one of {supported}, or kafka.NAME.security; found {mechanism}")
    return unknown


def tls(options: Mapping[str, str]) -> ssl.SSLContext:
    """The TLS settings as an SSL context: trusts only the given authority, or those of the system without one.

    Raises `BadSettings` for invalid files.
    """
    try:
        context = _context(options)
    except (OSError, ssl.SSLError) as error:
        raise BadSettings([f"ssl.*: {error}; provide readable PEM files that match each other"]) from error
    context.check_hostname = options.get("ssl.endpoint.identification.algorithm", "https").lower() != "none"
    if options.get("enable.ssl.certificate.verification", "true").lower() in _FALSE:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _context(options: Mapping[str, str]) -> ssl.SSLContext:
    authority = options.get("ssl.ca.location", "probe")
    place = None if authority == "probe" else authority
    file, folder = (None, place) if place and Path(place).is_dir() else (place, None)
    context = ssl.create_default_context(cafile=file, capath=folder, cadata=options.get("ssl.ca.pem"))
    if certificate := options.get("ssl.certificate.location"):
        context.load_cert_chain(certificate, options.get("ssl.key.location"), options.get("ssl.key.password"))
    if revoked := options.get("ssl.crl.location"):
        context.load_verify_locations(cafile=revoked)
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    if ciphers := options.get("ssl.cipher.suites"):
        context.set_ciphers(ciphers)
    return context


def _plain(options: Mapping[str, str]) -> dict[str, str]:
    """Options as texts, each under one name."""
    return {_SYNONYMS.get(key, key): str(value) for key, value in options.items()}


def _check(endpoint: Endpoint) -> None:
    if lines := problems(endpoint):
        raise BadSettings(lines)


def _given(endpoint: Endpoint) -> dict[str, str]:
    """The options and the security of a cluster under librdkafka's names, as texts. Raises `BadSettings`."""
    secured = librdkafka_of(endpoint.security, f"kafka.{endpoint.name}")
    return {**{key: str(value) for key, value in endpoint.options.items()}, **secured}


def _called(endpoint: Endpoint, problem: str) -> str:
    """A problem of librdkafka with the name of its key in the settings."""
    name, _, text = problem.partition(": ")
    if endpoint.security and (name in NAMES or "ssl." in text):
        return f"security.{NAMES.get(name, '*')}: {text}"
    return f"options.{problem}"


@functools.lru_cache(64)
def _judged(options: tuple[tuple[str, str], ...]) -> list[str]:
    """librdkafka's errors for each option separately, and for all together."""
    alone = {key: _judge({key: value}) for key, value in options}
    if bad := [f"{key}: {text}" for key, text in alone.items() if f'"{key}"' in text]:
        return bad
    together = _judge(dict(options))
    return [f"*: {together}"] if together else []


def _judge(options: Mapping[str, str]) -> str:
    try:
        AdminClient({"bootstrap.servers": "", "log_level": "0", **options})
    except KafkaException as error:
        return str(error.args[0].str()).strip()
    return ""
