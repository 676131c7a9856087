"""Security of connections to a Kafka cluster in one vocabulary, whatever client library connects.

The keys are those of `KEYS`. A secret is given as it is, or by reference: with ``.env`` the name of an environment
variable, with ``.file`` the path of a file; see `state.common.secrets`.
"""

from collections.abc import Iterator, Mapping

from trueup.state.common import secrets, tls
from trueup.state.common.options import shown, unknown
from trueup.state.settings.callers import is_private

SASL = ("sasl.mechanism", "sasl.username", "sasl.password")
OAUTH = ("sasl.oauth.url", "sasl.oauth.client.id", "sasl.oauth.client.secret", "sasl.oauth.scope", "sasl.oauth.ca")
SECRETS = ("sasl.password", "sasl.oauth.client.secret", *tls.SECRETS)
KEYS = (*tls.KEYS, *SASL, *OAUTH, *secrets.keys_of(SECRETS))
BEARER = "OAUTHBEARER"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", BEARER)
DOC = (
    "Login and encryption: tls.ca (PEM file, or system), tls.certificate, tls.key, tls.key.password, tls.check.host, "
    f"sasl.mechanism ({', '.join(MECHANISMS)}), sasl.username, sasl.password, and for {BEARER} {', '.join(OAUTH)}; "
    "secrets also as sasl.password.file: PATH or sasl.password.env: VARIABLE. With a key tls.*, connections use TLS"
)
_OTHERS = ("security.", "sasl.", "ssl.", "enable.ssl.", "enable.sasl.")


def problems(security: Mapping[str, str], options: Mapping[str, str], path: str) -> Iterator[str]:
    """One line for each key that is invalid by itself or together with others. ``options``: librdkafka's settings of
    the same cluster, which must not repeat ``security``."""
    yield from unknown(security, KEYS, f"{path}.security.")
    faults = (*secrets.repeated(SECRETS, security), *_sasl(security), *tls.problems(security))
    yield from (f"{path}.security.{problem}" for problem in faults)
    if security:
        for name in sorted(settings_of_security(options)):
            yield f"{path}.options.{name}: expected security settings only in {path}.security; found both"


def settings_of_security(options: Mapping[str, str]) -> list[str]:
    """The settings of librdkafka that concern security."""
    return [name for name in options if name.startswith(_OTHERS)]


def protocol(security: Mapping[str, str]) -> str:
    """The security protocol, as Kafka names it."""
    login, channel = "sasl.mechanism" in security, "SSL" if tls.uses_tls(security) else "PLAINTEXT"
    return f"SASL_{channel}" if login else channel


def _sasl(security: Mapping[str, str]) -> Iterator[str]:
    mechanism = security.get("sasl.mechanism")
    rest = [name for name in security if name.startswith("sasl.") and name != "sasl.mechanism"]
    if mechanism is None:
        if rest:
            yield f"sasl.mechanism: expected one of {', '.join(MECHANISMS)} beside {rest[0]}; found nothing"
        return
    if mechanism not in MECHANISMS:
        yield f"sasl.mechanism: expected one of {', '.join(MECHANISMS)}; found {shown(mechanism)}"
    if mechanism == BEARER:
        yield from _oauth(security)
        return
    if other := [name for name in rest if name.startswith("sasl.oauth.")]:
        yield f"{other[0]}: expected sasl.mechanism {BEARER}; found {shown(mechanism)}"
    yield from secrets.login("sasl", security)


def _oauth(security: Mapping[str, str]) -> Iterator[str]:
    for name in ("sasl.username", *secrets.forms("sasl.password")):
        if name in security:
            yield f"{name}: expected sasl.oauth.client.id and sasl.oauth.client.secret for {BEARER}; found this key"
    if not is_private(url := security.get("sasl.oauth.url", "")):
        expected = "the https URL of the token endpoint (http only for this machine)"
        yield f"sasl.oauth.url: expected {expected}; found {shown(url)}"
    if not security.get("sasl.oauth.client.id"):
        yield "sasl.oauth.client.id: expected the id of the client; found nothing"
    if not secrets.is_given("sasl.oauth.client.secret", security):
        yield "sasl.oauth.client.secret: expected the secret of the client, or its .file or .env; found none"
