"""The least role of every route of the API.

`ROUTES` lists the routes of the application; a stream adds reads, and orders with the role that its `Verb` declares.
`create_app` refuses a route that is not listed, so that a new one cannot be reachable without a decision.
"""

from collections.abc import Iterator, Mapping

from flask import Flask, Request

from trueup.state.settings.roles import Role
from trueup.streams.catalog import STREAMS

READ = Role.VIEWER
OPEN = None
Route = tuple[str, str]
"""Method and rule. HEAD has the role of GET, OPTIONS the lowest role of its rule."""

ROUTES: Mapping[Route, Role | None] = {
    ("GET", "/healthz"): OPEN,
    ("GET", "/readyz"): OPEN,
    ("GET", "/metrics"): READ,
    ("GET", "/login"): OPEN,
    ("POST", "/login"): OPEN,
    ("POST", "/logout"): OPEN,
    ("GET", "/"): READ,
    ("GET", "/findings"): READ,
    ("GET", "/plan"): READ,
    ("GET", "/racks"): READ,
    ("GET", "/search"): READ,
    ("GET", "/streams/<name>"): READ,
    ("GET", "/timeline"): READ,
    ("GET", "/static/<name>"): OPEN,
    ("GET", "/api"): READ,
    ("GET", "/api/status"): READ,
    ("GET", "/api/plan"): READ,
    ("GET", "/api/config"): READ,
    ("GET", "/api/findings"): READ,
    ("GET", "/api/actions"): READ,
    ("GET", "/api/rules"): READ,
    ("GET", "/api/trends/<stream>"): READ,
    ("POST", "/api/approve"): Role.APPROVER,
    ("PUT", "/api/config/<name>"): Role.APPROVER,
}
"""OPEN: without a token. The least role for a change of a setting depends on its key: see `of_key`."""
SETTING = ("PUT", "/api/config/<name>")
APPROVERS = ("paused", "paused_topics", "release_hold")
_OF_READS = {"HEAD": "GET", "OPTIONS": "GET"}


def least_roles() -> dict[Route, Role | None]:
    """The least role of every route, with those of the streams."""
    return {**ROUTES, **dict(_of_streams())}


def _of_streams() -> Iterator[tuple[Route, Role]]:
    for stream in STREAMS:
        for noun in stream.lists:
            yield ("GET", f"/api/{noun.name}"), READ
        for thing in stream.things:
            yield ("GET", f"/api/{thing.path}"), READ
            if thing.names is not None:
                yield ("GET", f"/{thing.path}"), READ
        for verb in stream.verbs:
            yield ("POST", f"/api/{verb.path}"), verb.role


def of_key(name: str) -> Role:
    """The least role to set a live key: approvers pause streams and release held repairs; only admins set others."""
    return Role.APPROVER if name.rpartition(".")[2] in APPROVERS else Role.ADMIN


def undecided(app: Flask) -> list[str]:
    """Routes of the application that the table does not contain."""
    table = least_roles()
    return sorted(f"{method} {rule}" for method, rule in routes(app) if (method, rule) not in table)


def routes(app: Flask) -> Iterator[Route]:
    """The routes of the application, without the methods that Flask adds."""
    for rule in app.url_map.iter_rules():
        yield from ((method, str(rule)) for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}))


def least(roles: Mapping[Route, Role | None], request: Request) -> Role | None:
    """The least role of a request. A caller without a token does not learn which addresses do not exist."""
    if request.url_rule is None:
        return READ
    method = _OF_READS.get(request.method, request.method)
    if (method, str(request.url_rule)) == SETTING:
        return of_key((request.view_args or {})["name"])
    return roles.get((method, str(request.url_rule)), READ if request.method in _OF_READS else Role.ADMIN)
