"""Security of connections to ZooKeeper, in the vocabulary of `kafka_security`."""

from collections.abc import Iterator, Mapping

from trueup.state.common import secrets, tls
from trueup.state.common.options import shown, unknown

SECRETS = (*tls.SECRETS, "sasl.password", "digest.password")
KEYS = (
    *tls.KEYS,
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
    "digest.username",
    "digest.password",
    *secrets.keys_of(SECRETS),
)
MECHANISM = "DIGEST-MD5"
DOC = (
    "Login and encryption of ZooKeeper: tls.ca (PEM file, or system), tls.certificate, tls.key, tls.key.password, "
    f"tls.check.host, sasl.mechanism ({MECHANISM}), sasl.username, sasl.password, digest.username, digest.password; "
    "secrets also as sasl.password.file: PATH or sasl.password.env: VARIABLE. With a key tls.*, connections use TLS"
)


def problems(security: Mapping[str, str], auth: Mapping[str, str]) -> Iterator[str]:
    """One line for each invalid key of cluster.security. ``auth``: cluster.auth, which must not repeat it."""
    yield from unknown(security, KEYS, "")
    yield from secrets.repeated(SECRETS, security)
    yield from _sasl(security)
    if _used("digest", security):
        yield from secrets.login("digest", security)
    yield from tls.problems(security)
    if "digest" in auth and _used("digest", security):
        yield "digest.username: expected the user here or in cluster.auth; found both"


def has_identity(security: Mapping[str, str], auth: Mapping[str, str]) -> bool:
    """Whether ZooKeeper knows a session by a user or a certificate."""
    return bool(auth) or any(name in security for name in ("sasl.mechanism", "digest.username", "tls.certificate"))


def _sasl(security: Mapping[str, str]) -> Iterator[str]:
    if not _used("sasl", security):
        return
    if (mechanism := security.get("sasl.mechanism")) != MECHANISM:
        found = "nothing" if mechanism is None else shown(mechanism)
        yield f"sasl.mechanism: expected {MECHANISM}, the only one that is supported; found {found}"
    yield from secrets.login("sasl", security)


def _used(kind: str, security: Mapping[str, str]) -> bool:
    return any(name.startswith(f"{kind}.") for name in security)
