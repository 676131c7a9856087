"""Requests to the admin REST API of Pulsar's brokers: several addresses, bounded responses, no credential in any error.

A broker redirects requests on a topic to the broker that owns it (307). The token is sent only to declared addresses
and to hosts that `/admin/v2/brokers` of a declared address lists, with the scheme of the declared addresses.
"""

import json
import ssl
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urljoin

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, LocationParseError, NewConnectionError
from urllib3.util import Timeout, parse_url

from trueup.connectors.closing import Closing
from trueup.connectors.tls import tls_of
from trueup.state.common.errors import Refused, Retry, Stop, TrueupError, Unknown

LONGEST_BODY = 8 << 20
"""Bytes of a response."""
LONGEST_REASON = 300
REDIRECTS = 3
CONNECT_S, ANSWER_S = 5.0, 10.0
BASE = "/admin/v2/"
_BUSY = frozenset({429, 503})
_NOT_SENT = (ConnectTimeoutError, NewConnectionError)
_REDIRECTED = frozenset({301, 302, 307, 308})


class NotEnabled(Stop):
    """The brokers do not offer this part of the API: it is disabled, or their version is too old."""


class Untrusted(Retry):
    """The certificate of a broker is not of the declared authorities. Nothing was sent."""


class Unauthorized(Stop):
    """The broker refused the token, or its role lacks a right."""


class AdminResponse(NamedTuple):
    """A response with a status below 500."""

    status: int
    body: bytes
    location: str = ""
    """The target of a redirect; empty for other responses."""


class AdminHttp(Closing):
    """The admin API of one cluster. ``addresses``: the addresses of brokers, http(s)://host:port, all with one scheme;
    the first that responds is used until it fails. ``token``: the token of the requests, empty for none; ``ca``: the
    PEM file of authorities, empty for the authorities of the system."""

    def __init__(self, addresses: Sequence[str], token: str = "", ca: str = "") -> None:
        self.addresses, self._token = [address.rstrip("/") for address in addresses], token
        self._declared = {_origin(address) for address in self.addresses}
        self._hosts: frozenset[str] = frozenset()
        secure = any(address.startswith("https") for address in self.addresses)
        tls = tls_of({"tls.ca": ca or "system"}) if secure else None
        timeout = Timeout(connect=CONNECT_S, read=ANSWER_S)
        self._pool = urllib3.PoolManager(timeout=timeout, retries=False, ssl_context=tls)

    def close(self) -> None:
        """Close all connections."""
        self._pool.clear()

    def get(self, path: str, at: str = "") -> Any:
        """The JSON at a path below /admin/v2, None without content. ``at``: the only address to ask; empty for all.
        Raises `Refused` if the path does not exist, `Retry` without a usable response, `Stop`."""
        return self._sent("GET", path, None, [at] if at else self.addresses, ())

    def send(self, method: str, path: str, body: object = None, secrets: Iterable[str] = ()) -> None:
        """Change something. ``secrets``: texts of the body that no error repeats. Raises like `get`, and `Unknown`
        without a response to a request that may have been executed."""
        self._sent(method, path, body, self.addresses, [text for text in secrets if text])

    def _sent(self, method: str, path: str, body: object, addresses: Sequence[str], secrets: Sequence[str]) -> Any:
        what, error = f"{method} {path}", None
        for address in list(addresses):
            try:
                answer = self._followed(method, f"{address}{BASE}{path}", body, what)
            except Retry as failed:
                error = failed
                continue
            if address in self.addresses[1:]:
                self.addresses.remove(address)
                self.addresses.insert(0, address)
            if answer.status >= 400:
                raise _refused(what, answer, [*secrets, self._token])
            return _json(what, answer)
        raise error or Retry(f"a broker to {what}", "no address", "set read_priority.admin")

    def _followed(self, method: str, url: str, body: object, what: str) -> AdminResponse:
        """The response after redirects."""
        for _ in range(REDIRECTS + 1):
            answer = self._asked(method, url, body, what)
            if answer.status not in _REDIRECTED:
                return answer
            url = self._allowed(url, answer.location, what)
        raise Stop(f"at most {REDIRECTS} redirects of {what}", "more", "check the brokers' advertised addresses")

    def _allowed(self, url: str, location: str, what: str) -> str:
        """The target of a redirect. Raises `Stop` for a host that is not a known broker."""
        try:
            target = parse_url(urljoin(url, location))
        except (LocationParseError, ValueError):
            raise Stop(f"a valid address as the redirect of {what}", repr(location[:200]), _ADVERTISED) from None
        scheme, host = parse_url(url).scheme, target.host or ""
        if target.auth or target.scheme != scheme:
            raise Stop(
                f"a redirect of {what} with {scheme} and without a user", f"another to {host[:200]}", _ADVERTISED
            )
        if _origin(target.url) not in self._declared and host not in self._hosts:
            self._hosts = self._listed()
            if host not in self._hosts:
                raise Stop(f"a redirect of {what} to a broker of the cluster", f"one to {host[:200]}", _ADVERTISED)
        return target.url

    def _listed(self) -> frozenset[str]:
        """Hosts of the active brokers, according to a declared address that does not redirect."""
        for address in self.addresses:
            try:
                answer = self._asked("GET", f"{address}{BASE}brokers", None, "GET brokers")
                brokers = _json("GET brokers", answer) if answer.status == 200 else None
            except TrueupError:
                continue
            if isinstance(brokers, list):
                return frozenset(str(broker).rpartition(":")[0].strip("[]") for broker in brokers)
        return frozenset()

    def _asked(self, method: str, url: str, body: object, what: str) -> AdminResponse:
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        headers |= {"Authorization": f"Bearer {self._token}"} if self._token else {}
        lost = Retry if method == "GET" else Unknown
        where = f"{_origin(url)} to {what}"
        content = None if body is None else json.dumps(body).encode()
        headers |= {"Content-Type": "application/json"} if content is not None else {}
        try:
            answer = self._pool.request(
                method, url, body=content, headers=headers, redirect=False, preload_content=False
            )
            payload = answer.read(LONGEST_BODY + 1, decode_content=False)
            answer.release_conn() if len(payload) <= LONGEST_BODY else answer.close()
        except HTTPError as error:
            if problem := _untrusted(error):
                todo = "set read_priority.ca to the PEM file of its authority"
                raise Untrusted(f"a trusted certificate of {_origin(url)}", problem, todo) from None
            kind = Retry if isinstance(error, _NOT_SENT) else lost
            raise kind(where, f"no response ({type(error).__name__})", "check that the broker is reachable") from None
        if len(payload) > LONGEST_BODY:
            raise Stop(
                where, f"a response of more than {LONGEST_BODY} bytes", "check the address in read_priority.admin"
            )
        if answer.status >= 500 or answer.status in _BUSY:
            kind = Retry if answer.status in _BUSY else lost
            raise kind(where, f"HTTP {answer.status}", "the request is retried later")
        return AdminResponse(answer.status, payload, answer.headers.get("Location", ""))


def _untrusted(error: BaseException) -> str:
    """Why the authority of a certificate is not trusted; empty for other errors, and for another host's certificate."""
    for cause in (error, *error.args, error.__cause__):
        if isinstance(cause, ssl.SSLCertVerificationError) and cause.verify_code not in _OTHER_HOST:
            return cause.verify_message
    return ""


_OTHER_HOST = frozenset({62, 64})
"""X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH of OpenSSL."""
_ADVERTISED = "declare the broker in read_priority.admin, or correct its advertised address"


def _origin(url: str) -> str:
    address = parse_url(url)
    return f"{address.scheme}://{address.host}:{address.port or (443 if address.scheme == 'https' else 80)}"


def _json(what: str, answer: AdminResponse) -> Any:
    if not answer.body:
        return None
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        # The version of a broker is plain text.
        if answer.body.isascii() and answer.body[:1] not in (b"{", b"[", b"<"):
            return answer.body[:LONGEST_REASON].decode().strip()
        raise Stop(f"JSON from {what}", "something else", "check the address in read_priority.admin") from None


def _refused(what: str, answer: AdminResponse, secrets: Iterable[str]) -> TrueupError:
    """The error for a status from 400 to 499."""
    expected, found = f"the broker to {what}", f"HTTP {answer.status}: {_reason(answer.body, secrets)}"
    if answer.status in (401, 403):
        todo = "grant the role of the token the rights of docs/reads.md, or set read_priority.token_env"
        return Unauthorized(expected, found, todo)
    if answer.status == 405:
        return NotEnabled(expected, found, "enable topicLevelPoliciesEnabled and systemTopicEnabled in the brokers")
    if answer.status in (404, 409, 412):
        return Refused(expected, found, "it is observed again")
    return Stop(expected, found, "check the version and the settings of the broker")


def _reason(body: bytes, secrets: Iterable[str]) -> str:
    """The reason in an error response, without these texts."""
    try:
        response = json.loads(body)
        text = str(response.get("reason", "")) if isinstance(response, Mapping) else ""
    except (ValueError, RecursionError):
        text = ""
    for secret in secrets:
        text = text.replace(secret, "***") if secret else text
    return "".join(c if c.isprintable() else " " for c in text[:LONGEST_REASON]) or "no reason"
