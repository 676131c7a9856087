"""HTTP client of the running application, with short timeouts. HTTP errors become errors of Trueup."""

import getpass
import json
import ssl
import time
from base64 import b64encode
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPMessage, HTTPSConnection
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlencode, urlsplit

from trueup.state.common.errors import BadSettings, Retry, TrueupError
from trueup.streams.rows import Row
from trueup.streams.runtime.headers import INCOMPLETE, TOKEN, TOTAL, USER

CONNECT_S, READ_S = 2.0, 30.0
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
"""OpenSSL's reasons after a response that is not TLS."""
FAILED = (OSError, HTTPException, ValueError)
"""Errors of a request without a response; `ValueError` of an invalid URL."""


class ApiError(TrueupError):
    """The application returned an error. ``status`` is the HTTP status."""

    def __init__(self, status: int, expected: str, found: str, todo: str) -> None:
        super().__init__(expected, found, todo)
        self.status = status

    def __reduce__(self) -> tuple[type["ApiError"], tuple[int, str, str, str]]:  # type: ignore[override]
        return type(self), (self.status, self.expected, self.found, self.todo)


class ListResponse(NamedTuple):
    """A list from the application."""

    rows: list[Row]
    total: int
    """The number of rows without the limit."""
    incomplete: str
    """Why rows may be missing or outdated; empty if the list is complete and current."""


class ApiTarget(NamedTuple):
    """The address of the API, and the credentials for it."""

    url: str
    """The URL of the API. It may contain user:password@ for a proxy."""
    token: str = ""
    ca: str = ""
    """The PEM file of the authorities that sign the server's certificate. If empty, those of this machine apply."""

    def __repr__(self) -> str:
        return f"Target(ca={self.ca!r})"


class ApiResponse(NamedTuple):
    """A response with any status."""

    status: int
    headers: HTTPMessage
    body: bytes


class Api:
    """The API of one application. ``now_ms``: the time of the application's clock at the last response, in ms since the
    epoch."""

    def __init__(self, target: ApiTarget | str, read_s: float = READ_S) -> None:
        target = ApiTarget(target) if isinstance(target, str) else target
        self.base, self._credentials = _split(target.url)
        self._credentials |= _with(target.token, self._credentials)
        self.now_ms = time.time_ns() // 1_000_000
        self._headers = HTTPMessage()
        self._ca, self._read_s = target.ca, read_s

    def get(self, path: str, **parameters: object) -> Any:
        """GET /api/PATH; parameters that are None are omitted."""
        asked = {name: value for name, value in parameters.items() if value is not None}
        return self._send("GET", f"{path}?{urlencode(asked)}" if asked else path)

    def rows(self, path: str, **parameters: object) -> "ListResponse":
        """Get a list."""
        rows = self.get(path, **parameters)
        incomplete = self._headers.get(INCOMPLETE)
        total = int(self._headers.get(TOTAL, len(rows)))
        return ListResponse(rows, total, json.loads(incomplete) if incomplete else "")

    def metrics(self) -> str:
        """GET /metrics. Raises `Retry` without a response, `ApiError` for an error."""
        try:
            response = self._request("GET", "/metrics", self._credentials)
        except FAILED as error:
            raise Retry(f"metrics of Trueup at {self.base}", _words(error), "see `trueup status`") from error
        if response.status != 200:
            raise _error(response.status, None)
        return response.body.decode(errors="replace")

    def post(self, path: str, body: Mapping[str, object]) -> Any:
        """POST a JSON object."""
        return self._send("POST", path, body)

    def put(self, path: str, body: Mapping[str, object]) -> Any:
        """PUT a JSON object."""
        return self._send("PUT", path, body)

    def _send(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Any:
        """Returns the response. Raises `Retry` if there is none, `ApiError` or `BadSettings` for an error."""
        data = None if body is None else json.dumps(body)
        headers = {USER: _user(), **self._credentials, **({"Content-Type": "application/json"} if data else {})}
        try:
            response = self._request(method, f"/api/{path}", headers, data)
        except FAILED as error:
            todo = "start it with `trueup run`, or set its URL with --api or TRUEUP_API"
            if getattr(error, "reason", "") in _NO_TLS:
                plain = self.base.replace("https://", "http://", 1)
                answer = "a server without TLS on this port"
                raise Retry(f"a response of Trueup at {self.base}", answer, f"use --api {plain}") from error
            if isinstance(error, ssl.SSLError | FileNotFoundError | PermissionError):
                todo = "set the authorities of its certificate with --ca or TRUEUP_CA, or correct http:// or https://"
            raise Retry(f"a response of Trueup at {self.base}", _words(error), todo) from error
        try:
            answer = json.loads(response.body)
        except ValueError as error:
            if response.status in (401, 403):
                raise ApiError(
                    response.status,
                    f"credentials that the server at {self.base} accepts",
                    f"HTTP {response.status} without JSON, so a proxy",
                    "add user:password@ to the URL",
                ) from error
            other = f"HTTP {response.status} without JSON, so another server"
            raise Retry(f"a response of Trueup at {self.base}", other, "correct --api or TRUEUP_API") from error
        self._headers = response.headers
        if "Date" in response.headers:
            self.now_ms = int(parsedate_to_datetime(response.headers["Date"]).timestamp() * 1000)
        if response.status >= 400:
            raise _error(response.status, answer)
        return answer

    def _request(self, method: str, path: str, headers: Mapping[str, str], body: str | None = None) -> ApiResponse:
        """Send one request on a connection of its own. Redirects are not followed: they could carry the token to
        another server. Raises `FAILED`."""
        parts = urlsplit(self.base)
        connection = self._connection(parts.scheme, parts.netloc)
        try:
            connection.connect()
            connection.sock.settimeout(self._read_s)
            connection.request(method, parts.path + path, body, headers)
            response = connection.getresponse()
            return ApiResponse(response.status, response.headers, response.read())
        finally:
            connection.close()

    def _connection(self, scheme: str, host: str) -> HTTPConnection:
        if scheme == "http":
            return HTTPConnection(host, timeout=CONNECT_S)
        context = ssl.create_default_context(cafile=self._ca or None)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return HTTPSConnection(host, timeout=CONNECT_S, context=context)


def _split(url: str) -> tuple[str, dict[str, str]]:
    """The URL without user and password, and the headers with them."""
    base = (url if "://" in url else f"http://{url}").rstrip("/")
    scheme, _, rest = base.partition("://")
    authority, slash, path = rest.partition("/")
    user, at, host = authority.rpartition("@")
    basic = {"Authorization": f"Basic {b64encode(unquote(user).encode()).decode()}"} if at else {}
    return f"{scheme}://{host}{slash}{path}", basic


def _with(token: str, credentials: Mapping[str, str]) -> dict[str, str]:
    """The header with the token: Authorization, unless a proxy uses it."""
    if not token:
        return {}
    return {TOKEN: token} if credentials else {"Authorization": f"Bearer {token}"}


def _user() -> str:
    """The user who runs the command, for the history."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):
        return ""
    return name if name.isascii() and name.isprintable() else ""


def segment(name: str) -> str:
    """One segment of a path, quoted."""
    return quote(name, safe="")


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__


def _error(status: int, answer: object) -> ApiError | BadSettings:
    body = answer if isinstance(answer, dict) else {}
    if problems := body.get("problems"):
        return BadSettings(problems)
    expected, seen = body.get("expected", "a successful response"), body.get("found", f"HTTP {status}")
    return ApiError(status, expected, seen, body.get("todo", "see the log of Trueup"))
