"""Security of connections to a Kafka cluster in one vocabulary, whatever client library connects.

The keys are those of `KEYS`. A secret is given as it is, or by reference: with ``.env`` the name of an environment
variable, with ``.file`` the path of a file. References are resolved where a client is created, so that a lease of a
worker contains none of the secrets.
"""

from collections.abc import Iterator, Mapping

from trueup.state.common.options import near, shown
from trueup.state.common.tls import KEYS as TLS

SASL = ("sasl.mechanism", "sasl.username", "sasl.password")
SECRETS = ("sasl.password", "tls.key.password")
SOURCES = (".env", ".file")
"""Where a secret is: in an environment variable, or in a file."""
KEYS = (*TLS, *SASL, *(secret + source for secret in SECRETS for source in SOURCES))
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
DOC = (
    "Login and encryption: tls.ca (PEM file, or system), tls.certificate, tls.key, tls.key.password, tls.check.host, "
    f"sasl.mechanism ({', '.join(MECHANISMS)}), sasl.username, sasl.password; secrets also as sasl.password.file: PATH "
    "or sasl.password.env: VARIABLE. With a key tls.*, connections use TLS"
)
_OTHERS = ("security.", "sasl.", "ssl.", "enable.ssl.", "enable.sasl.")


def problems(security: Mapping[str, str], options: Mapping[str, str], path: str) -> Iterator[str]:
    """One line for each key that is invalid by itself or together with others. ``options``: librdkafka's settings of
    the same cluster, which must not repeat ``security``."""
    for name in security:
        if name not in KEYS:
            yield f"{path}.security.{name}: expected one of {', '.join(KEYS)}; found this unknown key{near(name, KEYS)}"
    for secret in SECRETS:
        if len(given := [name for name in _forms(secret) if name in security]) > 1:
            yield f"{path}.security.{secret}: expected one of {', '.join(given)}; found several"
    yield from (f"{path}.security.{problem}" for problem in (*_sasl(security), *_tls(security)))
    if security:
        for name in sorted(settings_of_security(options)):
            yield f"{path}.options.{name}: expected security settings only in {path}.security; found both"


def settings_of_security(options: Mapping[str, str]) -> list[str]:
    """The settings of librdkafka that concern security."""
    return [name for name in options if name.startswith(_OTHERS)]


def uses_tls(security: Mapping[str, str]) -> bool:
    """Whether connections use TLS."""
    return any(name.startswith("tls.") for name in security)


def protocol(security: Mapping[str, str]) -> str:
    """The security protocol, as Kafka names it."""
    login, channel = "sasl.mechanism" in security, "SSL" if uses_tls(security) else "PLAINTEXT"
    return f"SASL_{channel}" if login else channel


def _forms(secret: str) -> tuple[str, ...]:
    return (secret, *(secret + source for source in SOURCES))


def _sasl(security: Mapping[str, str]) -> Iterator[str]:
    mechanism = security.get("sasl.mechanism")
    rest = [name for name in security if name.startswith("sasl.") and name != "sasl.mechanism"]
    if mechanism is None:
        if rest:
            yield f"sasl.mechanism: expected one of {', '.join(MECHANISMS)} beside {rest[0]}; found nothing"
        return
    if mechanism not in MECHANISMS:
        yield f"sasl.mechanism: expected one of {', '.join(MECHANISMS)}; found {shown(mechanism)}"
    if not security.get("sasl.username"):
        yield "sasl.username: expected the name of the user; found nothing"
    if not any(security.get(name) for name in _forms("sasl.password")):
        yield "sasl.password: expected a password, or sasl.password.file or sasl.password.env; found none"


def _tls(security: Mapping[str, str]) -> Iterator[str]:
    if security.get("tls.check.host", "true") not in ("true", "false"):
        yield f"tls.check.host: expected true or false; found {shown(security['tls.check.host'])}"
    if ("tls.certificate" in security) != ("tls.key" in security):
        yield "tls.key: expected tls.certificate and tls.key, or neither; found one of them"
    if any(name.startswith("tls.key.password") for name in security) and "tls.key" not in security:
        yield "tls.key.password: expected tls.key; found none"
