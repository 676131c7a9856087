"""Checks that requests to the API do not come from another site. `streams.web.access` checks their tokens.

A browser on the operator's machine can send requests on behalf of any page. Therefore the Host must be an IP address, a
name without dots, the name of this machine or one of http.names, which excludes DNS rebinding; an Origin must match the
Host; and a write must have the Content-Type of JSON, which a page of another origin cannot send without a preflight
request.
"""

import functools
import ipaddress
import re
import socket
from collections.abc import Collection
from urllib.parse import urlsplit

from flask import Request

from trueup.state.common.errors import Stop

OPEN_TO_ALL = ("/healthz", "/readyz", "/metrics")
READS = ("GET", "HEAD", "OPTIONS")


class Rejected(Stop):
    """A rejected request. ``status`` is the HTTP status."""

    def __init__(self, status: int, expected: str, found: str, todo: str) -> None:
        super().__init__(expected, found, todo)
        self.status = status

    def __reduce__(self) -> tuple[type["Rejected"], tuple[int, str, str, str]]:  # type: ignore[override]
        return type(self), (self.status, self.expected, self.found, self.todo)


def admit(request: Request, names: Collection[str] = ()) -> None:
    """Accept a request, or raise `Rejected`. ``names``: further names of this machine."""
    if request.path in OPEN_TO_ALL and request.method in READS:
        return
    if not _is_ours(request.host, names):
        found = f"Host {request.host!r}"
        raise Rejected(
            403,
            "the address or name of this machine",
            found,
            "use its address, such as 127.0.0.1, or add the name to http.names",
        )
    origin = request.headers.get("Origin")
    if origin is not None and _netloc(origin) != request.host:
        raise Rejected(
            403,
            f"a request from this page or without Origin, for {request.host}",
            f"Origin {origin!r}",
            "use the command line",
        )
    if request.method not in READS and request.mimetype != "application/json":
        found = f"Content-Type {request.content_type!r}"
        raise Rejected(415, "Content-Type application/json", found, "send JSON")


def _netloc(origin: str) -> str:
    """Host and port of an Origin; empty if it is not a URL."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _is_ours(host: str, names: Collection[str]) -> bool:
    if not (match := _HOST.fullmatch(host)):
        return False
    if match["address"]:
        return _is_address(match["address"])
    name = match["name"].lower().removesuffix(".")
    return bool(name) and ("." not in name or _is_address(name) or name in {*_own_names(), *map(str.lower, names)})


_HOST = re.compile(r"(\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(:[0-9]{0,5})?")
"""uri-host [ ":" port ] of RFC 9110, without user information and percent-encoding."""


@functools.cache
def _own_names() -> frozenset[str]:
    """Cached: a name server may be slow, and every caller can make Trueup ask."""
    return frozenset({socket.gethostname().lower(), socket.getfqdn().lower()})


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
