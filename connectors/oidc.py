"""Tokens of an OpenID Connect provider: signatures by its published keys, and the claims that every token needs.

Sources: RFC 7519 (JWT), RFC 7517 (JWK sets), OpenID Connect Discovery 1.0. Only asymmetric algorithms are accepted:
with a symmetric one, whoever knows the public key could sign. PyJWKClient of PyJWT does not serve: it reads a response
without a limit, refuses known keys after their lifespan if the provider does not respond, and lets all callers wait for
one request.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jwt
import urllib3
from jwt.algorithms import get_default_algorithms

from trueup.connectors.tls import tls_of
from trueup.state.common.errors import BadSettings, Refused, Retry
from trueup.state.settings.callers import OidcSettings, is_private

log = logging.getLogger(__name__)
ALGORITHMS: Mapping[str, tuple[str, ...]] = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
"""By type of key (kty)."""
LEAST_RSA_BITS = 2_048
LEEWAY_S = 60
AGAIN_S, REFRESH_S, ANSWER_S = 30.0, 3_600.0, 5.0
LARGEST_ANSWER, MOST_KEYS = 1 << 18, 100
DISCOVERY = "/.well-known/openid-configuration"
_REASONS: Mapping[type[Exception], str] = {
    jwt.ExpiredSignatureError: "one that has expired",
    jwt.ImmatureSignatureError: "one that is not valid yet; compare the clocks",
    jwt.InvalidAudienceError: "one for another audience",
    jwt.InvalidIssuerError: "one of another issuer",
    jwt.MissingRequiredClaimError: "one without exp, iss or aud",
    jwt.InvalidSignatureError: "one with a wrong signature",
}


@dataclass(frozen=True, slots=True)
class _Key:
    key: Any
    algorithms: tuple[str, ...]


class Issuer:
    """The provider that the settings name. ``problem``: the error of the last attempt to read its keys; empty if it
    succeeded.

    Keys are read at the first use, every `REFRESH_S`, and for a token with an unknown key, at most every `AGAIN_S`: a
    caller cannot make Trueup ask more often. While the provider does not respond, known keys remain valid.
    """

    def __init__(self, settings: OidcSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._clock = settings, clock
        self._http = urllib3.PoolManager(
            ssl_context=_trust(settings.ca), retries=False, timeout=urllib3.Timeout(total=ANSWER_S)
        )
        self._lock = threading.Lock()
        self._keys: dict[str, _Key] = {}
        self._asked_s, self._read_s = float("-inf"), float("-inf")
        self.problem = ""

    def claims(self, token: str) -> dict[str, Any]:
        """The claims of a valid token. Raises `Refused`; its text contains no part of the token."""
        try:
            key = self._key(jwt.get_unverified_header(token))
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=list(key.algorithms),
                audience=self._settings.audience,
                issuer=self._settings.issuer,
                leeway=LEEWAY_S,
                options={"require": ["exp", "iss", "aud"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise Refused("a valid token", _REASONS.get(type(error), "another one"), "log in again") from None
        return claims

    @property
    def known(self) -> int:
        """The number of keys that can verify tokens."""
        return len(self._keys)

    def read(self) -> None:
        """Read the keys, if they were not read lately. A failure is ``problem``."""
        now_s = self._clock()
        with self._lock:
            if now_s - self._asked_s < AGAIN_S:
                return
            self._asked_s = now_s
        try:
            self._keys, self._read_s = self._published(), now_s
            problem = ""
        except (Retry, Refused) as error:
            problem = f"oidc: {error}; tokens with keys that are not known are refused"
        if problem != self.problem:
            level = logging.WARNING if problem else logging.INFO
            log.log(level, "keys of the OIDC provider read", extra={"problem": problem})
        self.problem = problem

    def _key(self, header: Mapping[str, Any]) -> _Key:
        kid = header.get("kid", "")
        if self._clock() - self._read_s > REFRESH_S or kid not in self._keys:
            self.read()
        if kid not in self._keys:
            raise Refused("a valid token", "one with a key that the provider does not publish", "log in again")
        return self._keys[kid]

    def _published(self) -> dict[str, _Key]:
        place = self._settings.jwks or self._discovered()
        listed = self._get(place).get("keys")
        if not isinstance(listed, list) or len(listed) > MOST_KEYS:
            raise Refused(f"1 to {MOST_KEYS} keys at {place}", "something else", "correct oidc.jwks")
        keys = {str(jwk.get("kid", "")): key for jwk in listed if isinstance(jwk, dict) and (key := usable(jwk))}
        if not keys:
            raise Refused(f"a key that can verify tokens at {place}", "none", "correct oidc.jwks")
        return keys

    def _discovered(self) -> str:
        document = self._get(self._settings.issuer.rstrip("/") + DISCOVERY)
        if document.get("issuer") != self._settings.issuer:
            issuer = str(document.get("issuer"))[:200]
            raise Refused(f"the issuer {self._settings.issuer} in {DISCOVERY}", issuer, "correct oidc.issuer")
        place = document.get("jwks_uri")
        if not isinstance(place, str) or not is_private(place):
            raise Refused(f"an https URL as jwks_uri in {DISCOVERY}", str(place)[:200], "set oidc.jwks")
        return place

    def _get(self, url: str) -> dict[str, Any]:
        try:
            answer = self._http.request("GET", url, redirect=False, preload_content=False)
            content = answer.read(LARGEST_ANSWER + 1, decode_content=True)
            answer.drain_conn() if len(content) <= LARGEST_ANSWER else answer.close()
        except urllib3.exceptions.HTTPError as error:
            raise Retry(
                f"a response of {url}", str(error)[:200], "check oidc.issuer, oidc.ca and the provider"
            ) from error
        if answer.status != 200:
            raise Retry(f"a response of {url}", f"status {answer.status}", "check oidc.issuer and oidc.jwks")
        return _object(content, url)


def usable(jwk: Mapping[str, Any]) -> _Key | None:
    """A published key as one that can verify tokens; None for another kind."""
    algorithms = ALGORITHMS.get(str(jwk.get("kty")), ())
    if jwk.get("use", "sig") != "sig" or not algorithms:
        return None
    if stated := jwk.get("alg"):
        algorithms = (stated,) if stated in algorithms else ()
    try:
        key: Any = get_default_algorithms()[algorithms[0]].from_jwk(dict(jwk)) if algorithms else None
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    if key is None or hasattr(key, "private_numbers") or hasattr(key, "private_bytes"):
        return None
    if jwk.get("kty") == "RSA" and key.key_size < LEAST_RSA_BITS:
        return None
    return _Key(key, algorithms)


def _object(content: bytes, url: str) -> dict[str, Any]:
    if len(content) > LARGEST_ANSWER:
        raise Refused(f"at most {LARGEST_ANSWER} bytes at {url}", "more", "correct oidc.issuer and oidc.jwks")
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise Refused(f"a JSON object at {url}", repr(content[:80]), "correct oidc.issuer and oidc.jwks")
    return answer


def _trust(authority: str) -> Any:
    try:
        return tls_of({"tls.ca": authority})
    except BadSettings as error:
        raise BadSettings([f"oidc.ca: {problem}" for problem in error.problems]) from error
