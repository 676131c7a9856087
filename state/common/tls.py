"""The keys by which settings describe TLS, of whatever system: see `connectors.tls.tls_of`."""

from collections.abc import Iterator, Mapping

from trueup.state.common import secrets
from trueup.state.common.options import shown, unknown

KEYS = ("tls.ca", "tls.certificate", "tls.key", "tls.key.password", "tls.check.host")
SECRETS = ("tls.key.password",)
DOC = (
    "tls.ca (PEM file, or system), tls.certificate, tls.key, tls.key.password (also as tls.key.password.file: PATH or "
    "tls.key.password.env: VARIABLE), tls.check.host"
)


def uses_tls(options: Mapping[str, str]) -> bool:
    """Whether connections use TLS."""
    return any(name.startswith("tls.") for name in options)


def only_tls(options: Mapping[str, str]) -> Iterator[str]:
    """`problems` of options that describe nothing else."""
    yield from unknown(options, (*KEYS, *secrets.keys_of(SECRETS)), "")
    yield from secrets.repeated(SECRETS, options)
    yield from problems(options)


def problems(options: Mapping[str, str]) -> Iterator[str]:
    """One line for each key of TLS that is invalid, or lacks another."""
    if options.get("tls.check.host", "true") not in ("true", "false"):
        yield f"tls.check.host: expected true or false; found {shown(options['tls.check.host'])}"
    if ("tls.certificate" in options) != ("tls.key" in options):
        yield "tls.key: expected tls.certificate and tls.key, or neither; found one of them"
    if any(name.startswith("tls.key.password") for name in options) and "tls.key" not in options:
        yield "tls.key.password: expected tls.key; found none"
