"""TLS of connections that Trueup opens itself: options to a context of Python's `ssl`."""

import ssl
from collections.abc import Mapping

from trueup.state.common.errors import BadSettings
from trueup.state.common.tls import KEYS

_NAMES = "certificates do not name the servers as the settings do; change one of them, or set false"
_SIGNS = (
    ("certificate is not valid for", "tls.check.host", _NAMES),
    ("certificate verify failed", "tls.ca", "it must be the authority of the servers' certificates"),
    ("certificate required", "tls.certificate", "the server asks for a certificate that it trusts"),
    ("bad certificate", "tls.certificate", "the server asks for a certificate that it trusts"),
    ("certificate unknown", "tls.certificate", "the server does not trust it"),
    ("unknown ca", "tls.certificate", "the server does not trust its authority"),
    ("wrong version number", "tls.*", "the port does not use TLS; remove them, or set another port"),
)
"""Texts of errors and alerts (`ssl`, OpenSSL), the key to change, and why."""


def tls_of(options: Mapping[str, str], path: str = "") -> ssl.SSLContext | None:
    """The TLS context for these options; None without options: connections are not encrypted then.

    ``tls.ca``: PEM file of authorities, or ``system``; ``tls.certificate`` and ``tls.key`` (PEM), ``tls.key.password``:
    client identity; ``tls.check.host`` false: certificates need not name the server's host. ``path``: the path of the
    options in the settings, for messages. Raises `BadSettings`.
    """
    where = f"{path}." if path else ""
    if unknown := sorted(set(options) - set(KEYS)):
        raise BadSettings([f"{where}{key}: expected one of {', '.join(KEYS)}" for key in unknown])
    if not options:
        return None
    authority = options.get("tls.ca", "system")
    try:
        context = ssl.create_default_context(cafile=None if authority == "system" else authority)
        if certificate := options.get("tls.certificate"):
            context.load_cert_chain(certificate, options.get("tls.key"), options.get("tls.key.password"))
    except (OSError, ssl.SSLError) as error:
        raise BadSettings([f"{where}tls.*: {error}; provide readable PEM files that match each other"]) from error
    context.check_hostname = options.get("tls.check.host", "true").lower() != "false"
    return context


def refusal(error: OSError, path: str) -> str:
    """Which key of ``path`` to change after a connection failed; empty if the error does not say."""
    text = str(error).lower().replace("_", " ")
    return next((f"correct {path}.{key}: {todo}" for sign, key, todo in _SIGNS if sign in text), "")
