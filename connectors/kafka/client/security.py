"""Section security of a Kafka cluster as settings of the client libraries: librdkafka and Java.

kafka-python receives librdkafka's; see `options`. Formats: CONFIGURATION.md of librdkafka 2.16; Kafka's documentation
of client settings; KIP-651 for PEM files in Java; JaasConfig.java for the syntax of ``sasl.jaas.config``.
"""

from collections.abc import Iterator, Mapping

from trueup.connectors.secrets import read, resolved
from trueup.state.common.errors import BadSettings
from trueup.state.common.tls import uses_tls
from trueup.state.settings.kafka_security import BEARER, SECRETS, protocol

_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
NAMES = {
    "sasl.mechanism": "sasl.mechanism",
    "sasl.username": "sasl.username",
    "sasl.password": "sasl.password",
    "ssl.ca.location": "tls.ca",
    "ssl.certificate.location": "tls.certificate",
    "ssl.key.location": "tls.key",
    "ssl.key.password": "tls.key.password",
    "ssl.endpoint.identification.algorithm": "tls.check.host",
    "sasl.oauthbearer.token.endpoint.url": "sasl.oauth.url",
    "sasl.oauthbearer.client.id": "sasl.oauth.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauth.client.secret",
    "sasl.oauthbearer.scope": "sasl.oauth.scope",
    "https.ca.location": "sasl.oauth.ca",
}
"""Our keys by librdkafka's names."""
_NO_TOKEN = "the token endpoint gives no token: check sasl.oauth.url, the id and ca"  # noqa: S105 - a text
_SIGNS = (
    (
        "certificate verify failed",
        "tls.ca",
        "it must be the authority of the broker's certificate, and the certificate must name the host in bootstrap",
    ),
    ("alert bad certificate", "tls.certificate", "the broker asks for a certificate that it trusts"),
    ("alert certificate", "tls.certificate", "the broker asks for a certificate that it trusts"),
    ("alert unknown ca", "tls.certificate", "the broker does not trust its authority"),
    ("plaintext broker listener", "tls.ca", "the listener does not use TLS; remove tls.*, or set another bootstrap"),
    ("invalid_token", "sasl.oauth.url", "the broker does not accept its tokens: compare issuer, audience and keys"),
    ("oidc token", "sasl.oauth.client.secret", _NO_TOKEN),
    ("oauthbearer token", "sasl.oauth.client.secret", _NO_TOKEN),
    ("unsupported sasl mechanism", "sasl.mechanism", "the broker does not offer it"),
    ("mechanism handshake", "sasl.mechanism", "the broker does not offer it"),
    ("sasl authentication error", "sasl.password", "the broker refuses it, or sasl.username"),
)
_OAUTH = "org.apache.kafka.common.security.oauthbearer"
_SYSTEM = {("tls.ca", "system"), ("sasl.oauth.ca", "system")}
LARGEST_FILE = 1 << 20
_KEY_OF_JAVA = ("-----BEGIN PRIVATE KEY-----", "-----BEGIN ENCRYPTED PRIVATE KEY-----")


def librdkafka_of(security: Mapping[str, str], path: str) -> dict[str, str]:
    """Settings of librdkafka. ``path``: the name of the cluster's settings, for messages. Raises `BadSettings` for a
    secret that is not where it should be."""
    if not security:
        return {}
    options = resolved(security, SECRETS, f"{path}.security")
    options = {key: value for key, value in options.items() if (key, value) not in _SYSTEM}
    if options.pop("tls.check.host", "true") == "false":
        options["tls.check.host"] = "none"
    settings = {name: options[key] for name, key in NAMES.items() if key in options}
    if options.get("sasl.mechanism") == BEARER:
        settings["sasl.oauthbearer.method"] = "oidc"
    return {"security.protocol": protocol(security), **settings}


def java_of(security: Mapping[str, str], path: str) -> dict[str, str]:
    """Settings of Kafka's Java client. Authorities ``system`` are those of the Java. Raises `BadSettings` for a secret
    or a file that is not readable, or has a form that Java does not read."""
    if not security:
        return {}
    options = resolved(security, SECRETS, f"{path}.security")
    settings = {"security.protocol": protocol(security)}
    if (mechanism := options.get("sasl.mechanism")) == BEARER:
        settings |= _java_oauth(options, path)
    elif mechanism:
        login = {"username": options["sasl.username"], "password": options["sasl.password"]}
        settings |= {"sasl.mechanism": mechanism, "sasl.jaas.config": _jaas(_LOGIN_MODULES[mechanism], login)}
    return {**settings, **(_java_tls(options, path) if uses_tls(options) else {})}


def _java_oauth(options: Mapping[str, str], path: str) -> dict[str, str]:
    """KIP-768. The authority of the endpoint's certificate is an option of the login module."""
    login = {"clientId": options["sasl.oauth.client.id"], "clientSecret": options["sasl.oauth.client.secret"]}
    if scope := options.get("sasl.oauth.scope"):
        login["scope"] = scope
    if (authority := options.get("sasl.oauth.ca", "system")) != "system":
        _pem(authority, f"{path}.security.sasl.oauth.ca", ("-----BEGIN CERTIFICATE-----",))
        login |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": authority}
    return {
        "sasl.mechanism": BEARER,
        "sasl.jaas.config": _jaas(f"{_OAUTH}.OAuthBearerLoginModule", login),
        "sasl.login.callback.handler.class": f"{_OAUTH}.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": options["sasl.oauth.url"],
    }


def _jaas(module: str, login: Mapping[str, str]) -> str:
    words = " ".join(f"{name}={_quoted(value)}" for name, value in login.items())
    return f"{module} required {words};"


def remedy(error: str, path: str) -> str:
    """What to change after this error of a connection; empty if it does not concern security. ``error``: a text of
    librdkafka, which has no codes for most of these."""
    for sign, key, todo in _SIGNS:
        if sign in error.lower():
            return f"correct {path}.security.{key}: {todo}"
    return ""


def unreadable(security: Mapping[str, str], path: str) -> Iterator[str]:
    """One line for each secret or file that is not readable on this machine, or not by every client library."""
    try:
        java_of(security, path)
    except BadSettings as error:
        yield from error.problems


def _java_tls(options: Mapping[str, str], path: str) -> dict[str, str]:
    settings = dict[str, str]()
    if (authority := options.get("tls.ca", "system")) != "system":
        _pem(authority, f"{path}.security.tls.ca", ("-----BEGIN CERTIFICATE-----",))
        settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": authority}
    if certificate := options.get("tls.certificate"):
        settings |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": _pem(
                certificate, f"{path}.security.tls.certificate", ("-----BEGIN CERTIFICATE-----",)
            ),
            "ssl.keystore.key": _pem(options["tls.key"], f"{path}.security.tls.key", _KEY_OF_JAVA),
        }
    if password := options.get("tls.key.password"):
        settings["ssl.key.password"] = password
    if options.get("tls.check.host") == "false":
        settings["ssl.endpoint.identification.algorithm"] = ""
    return settings


def _pem(place: str, name: str, headers: tuple[str, ...]) -> str:
    try:
        text = read(place, LARGEST_FILE)
    except (OSError, ValueError) as error:
        raise BadSettings([f"{name}: expected a readable PEM file; found: {error}"]) from error
    if not any(header in text for header in headers):
        raise BadSettings([f"{name}: expected a PEM file with {' or '.join(headers)}; found none in {place}"])
    return text


def _quoted(value: str) -> str:
    """A value in a JAAS entry, whose tokens are those of java.io.StreamTokenizer."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
