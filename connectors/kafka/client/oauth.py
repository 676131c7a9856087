"""Tokens for SASL/OAUTHBEARER in clients of kafka-python: the grant of client credentials of a token endpoint.

Sources: RFC 6749 section 4.4, RFC 7628, KIP-768. librdkafka and Java's client ask the endpoint themselves.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import urllib3
from kafka import errors as kafka_errors
from kafka.net.sasl.oauth import AbstractTokenProvider
from urllib3.util import make_headers

from trueup.connectors.secrets import resolved
from trueup.connectors.tls import tls_of
from trueup.state.common.errors import BadSettings
from trueup.state.settings.kafka_security import SECRETS

ANSWER_S = 5.0
LARGEST_ANSWER, LONGEST_TOKEN = 1 << 18, 1 << 16
FRESH, SHORTEST_S, DEFAULT_S = 0.8, 1.0, 60.0
"""A token is used for this part of its lifetime; the lifetime of one that does not say it."""


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    """The current token. ``security``: the section security of the cluster. The secret is read for each request to the
    endpoint, so that a replaced secret is used. ``path``: the path of the cluster in the settings."""

    def __init__(self, security: Mapping[str, str], path: str, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._security, self._path, self._clock = security, path, clock
        self._lock = threading.Lock()
        self._token, self._until_s = "", float("-inf")

    def token(self) -> str:
        """The token. Raises errors of kafka-python, which it reports for the connection."""
        with self._lock:
            if self._clock() >= self._until_s:
                self._renew()
            return self._token

    def _renew(self) -> None:
        try:
            options = resolved(self._security, SECRETS, f"{self._path}.security")
            trust = tls_of({"tls.ca": options.get("sasl.oauth.ca", "system")})
        except BadSettings as error:
            raise kafka_errors.SaslAuthenticationFailedError(str(error)) from error
        url = options["sasl.oauth.url"]
        login = f"{options['sasl.oauth.client.id']}:{options['sasl.oauth.client.secret']}"
        form = {"grant_type": "client_credentials"}
        if scope := options.get("sasl.oauth.scope"):
            form["scope"] = scope
        with urllib3.PoolManager(ssl_context=trust, retries=False, timeout=ANSWER_S) as http:
            try:
                answer = http.request(
                    "POST",
                    url,
                    fields=form,
                    encode_multipart=False,
                    headers=make_headers(basic_auth=login),
                    redirect=False,
                    preload_content=False,
                )
                content = answer.read(LARGEST_ANSWER + 1)
            except urllib3.exceptions.HTTPError as error:
                raise kafka_errors.KafkaConnectionError(f"OIDC token from {url}: {error}"[:500]) from error
        if answer.status >= 500:
            raise kafka_errors.KafkaConnectionError(f"OIDC token from {url}: status {answer.status}")
        if answer.status != 200:
            raise kafka_errors.SaslAuthenticationFailedError(f"OIDC token from {url}: status {answer.status}")
        self._token, valid_s = _token(content, url)
        self._until_s = self._clock() + FRESH * valid_s


def _token(content: bytes, url: str) -> tuple[str, float]:
    """The token of an answer, and its lifetime in seconds."""
    try:
        answer: Any = json.loads(content)
        token, valid_s = answer["access_token"], float(answer.get("expires_in", DEFAULT_S))
        if not isinstance(token, str) or not 0 < len(token) <= LONGEST_TOKEN or not token.isascii():
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise kafka_errors.SaslAuthenticationFailedError(f"OIDC token from {url}: an answer without a token") from None
    return token, min(max(valid_s, SHORTEST_S), 86_400.0)


@lru_cache(64)
def _tokens(security: tuple[tuple[str, str], ...], path: str) -> Tokens:
    return Tokens(dict(security), path)


def tokens_of(security: Mapping[str, str], path: str) -> Tokens:
    """The tokens of a cluster, shared by all of its clients in this process."""
    return _tokens(tuple(sorted(security.items())), path)
