"""The running application, over HTTP with short time-outs. Errors become ours."""

import getpass
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote, urlencode

import urllib3
from urllib3.exceptions import HTTPError
from urllib3.util import Timeout

from trueup.state.common.errors import BadSettings, Retry, TrueupError
from trueup.streams.runtime.headers import INCOMPLETE, TOTAL, USER

CONNECT_S, READ_S = 2.0, 30.0


class Answered(TrueupError):  # noqa: N818 - as in trueup.state.common.errors
    """The application answered with an error. ``status`` is the HTTP status."""

    def __init__(self, status: int, expected: str, found: str, todo: str) -> None:
        super().__init__(expected, found, todo)
        self.status = status

    def __reduce__(self) -> tuple[type["Answered"], tuple[int, str, str, str]]:  # type: ignore[override]
        return type(self), (self.status, self.expected, self.found, self.todo)


@dataclass(frozen=True, slots=True)
class Listed:
    """A list as the application gives it: ``total`` rows without the limit; ``incomplete``: why rows may be missing or
    old, empty if not."""

    rows: list[dict[str, Any]]
    total: int
    incomplete: str


class Api:
    """One application. ``now_ms`` is its clock at the last answer."""

    def __init__(self, base: str, read_s: float = READ_S) -> None:
        self.base = (base if "://" in base else f"http://{base}").rstrip("/")
        self.now_ms = time.time_ns() // 1_000_000
        self._headers: Mapping[str, str] = {}
        self._pool = urllib3.PoolManager(timeout=Timeout(connect=CONNECT_S, read=read_s), retries=False)

    def get(self, path: str, **parameters: object) -> Any:
        """Ask /api/PATH; parameters that are None are left out."""
        asked = {name: value for name, value in parameters.items() if value is not None}
        return self._send("GET", f"{path}?{urlencode(asked)}" if asked else path)

    def rows(self, path: str, **parameters: object) -> "Listed":
        """Ask for a list."""
        found = self.get(path, **parameters)
        incomplete = self._headers.get(INCOMPLETE)
        total = int(self._headers.get(TOTAL, len(found)))
        return Listed(found, total, json.loads(incomplete) if incomplete else "")

    def post(self, path: str, body: Mapping[str, object]) -> Any:
        """Send a JSON object."""
        return self._send("POST", path, body)

    def put(self, path: str, body: Mapping[str, object]) -> Any:
        """Send a JSON object."""
        return self._send("PUT", path, body)

    def _send(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Any:
        """The answer. Raises `Retry` when there is none, `Answered` or `BadSettings` when it is an error."""
        data = None if body is None else json.dumps(body)
        headers = {USER: _user(), **({"Content-Type": "application/json"} if data else {})}
        try:
            response = self._pool.request(method, f"{self.base}/api/{path}", body=data, headers=headers)
            found = json.loads(response.data)
        except HTTPError as error:
            todo = "start it with `trueup run`, or say where it is with --api or TRUEUP_API"
            raise Retry(f"Trueup to answer at {self.base}", _words(error), todo) from error
        except ValueError as error:
            other = f"HTTP {response.status} without JSON: something else listens there"
            raise Retry(f"Trueup to answer at {self.base}", other, "correct --api or TRUEUP_API") from error
        self._headers = response.headers
        if "Date" in response.headers:
            self.now_ms = int(parsedate_to_datetime(response.headers["Date"]).timestamp() * 1000)
        if response.status >= 400:
            raise _error(response.status, found)
        return found


def _user() -> str:
    """Who asks, for the history."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):
        return ""
    return name if name.isascii() and name.isprintable() else ""


def segment(name: str) -> str:
    """One part of a path."""
    return quote(name, safe="")


def _words(error: HTTPError) -> str:
    cause = getattr(error, "reason", None) or error
    return str(cause).rpartition(": ")[2] or type(error).__name__


def _error(status: int, found: Any) -> Answered | BadSettings:
    said = found if isinstance(found, dict) else {}
    if problems := said.get("problems"):
        return BadSettings(problems)
    expected, seen = said.get("expected", "an answer"), said.get("found", f"HTTP {status}")
    return Answered(status, expected, seen, said.get("todo", "look at its log"))
