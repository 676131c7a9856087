"""Section cluster.bookies as a TLS context, and the key to change after a bookie refused a connection."""

import ssl
from collections.abc import Mapping

from trueup.connectors import tls
from trueup.connectors.secrets import resolved
from trueup.state.common.tls import SECRETS

PATH = "cluster.bookies"


def bookie_tls(options: Mapping[str, str]) -> ssl.SSLContext | None:
    """The context for connections to bookies; None if they do not use TLS. Secrets are read now. Raises
    `BadSettings`."""
    return tls.tls_of(resolved(options, SECRETS, PATH), PATH)


def remedy(error: OSError) -> str:
    """What to do after TLS failed."""
    return tls.refusal(error, PATH) or f"check {PATH}.*, the bookie's certificate and its log"
