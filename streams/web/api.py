"""The HTTP API: the methods of `streams.web.engine.Engine` as JSON, probes, metrics and the pages.

Errors are {"error", "expected", "found", "todo"}: 400 for invalid requests, 401 without a valid token, 403 without the
role for the request, 403 and 415 from the guard, 404, 409 for requests that conflict with the present state, 503 for
errors that may be temporary. A list is an array of rows. The header Trueup-Total is the number of rows without the
limit. The header Trueup-Incomplete, a JSON string, is present if rows may be missing or outdated, and contains the
reason.
"""

import json
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

from flask import Flask, Response, jsonify, redirect, request
from flask.json.provider import DefaultJSONProvider
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from trueup.state.common.errors import BadSettings, Refused, Retry, TrueupError, Unknown
from trueup.state.common.options import near, shown
from trueup.state.common.options import one_of as one_of_keys
from trueup.state.settings.roles import Role
from trueup.state.settings.settings import HttpSettings
from trueup.streams.catalog import STREAMS, rules
from trueup.streams.health import health
from trueup.streams.journal.history import ANONYMOUS, ITSELF, WHO
from trueup.streams.rows import Row, RowQuery
from trueup.streams.runtime.descriptor import Noun, ResourceKind, Verb
from trueup.streams.runtime.format import bounded
from trueup.streams.runtime.headers import INCOMPLETE, TOTAL, USER
from trueup.streams.runtime.metrics import CONTENT_TYPE, Metrics
from trueup.streams.runtime.stream import LimitedRows
from trueup.streams.web import login
from trueup.streams.web.access import Access
from trueup.streams.web.engine import SELECTORS, VERDICTS, Engine, rule_row
from trueup.streams.web.guard import READS, Rejected, admit
from trueup.streams.web.pages.pages import Pages
from trueup.streams.web.parameters import body_of_request, id_of, one_of, selected
from trueup.streams.web.roles import OPEN, Route, least, least_roles, undecided
from trueup.streams.web.server import Server, serve

log = logging.getLogger(f"{__name__}.requests")  # Flask's own logger has the name of this module
MOST, MOST_NAME, MOST_PATH = 100_000, 64, 500
LONGEST = 16_384
Answer = tuple[Response, int]

__all__ = ["Server", "create_app", "serve"]


class BoundedJson(DefaultJSONProvider):
    """Limits texts in responses to `LONGEST` characters: any client that may write metadata chooses names."""

    sort_keys = False

    def dumps(self, obj: object, **kwargs: Any) -> str:
        """The value as JSON."""
        return super().dumps(bounded(obj, LONGEST), **kwargs)


def create_app(
    engine: Engine, metrics: Metrics, access: Access | None = None, http: HttpSettings | None = None
) -> Flask:
    """The HTTP application of a running engine. ``access``: admits callers; None: callers are not authenticated. Raises
    `LookupError` if a route has no role."""
    http = http or HttpSettings()
    app = Flask(__name__, static_folder=None)
    app.json = BoundedJson(app)
    app.url_map.strict_slashes = False
    app.before_request(lambda: admit(request, http.names))
    if access is None:
        app.before_request(lambda: _unverified(request.headers.get(USER, ""), request.remote_addr))
    else:
        app.before_request(partial(_admitted, access, _roles(http)))
        login.attach(app, access)
    app.after_request(_recorded)
    app.after_request(_sealed)
    app.teardown_request(lambda _error: _forgotten())
    _probes(app, engine, metrics, access)
    _reads(app, engine)
    _writes(app, engine)
    _errors(app, engine)
    Pages(engine, access).attach(app)
    if missing := undecided(app):
        raise LookupError(f"routes without a role in streams/web/roles.py: {', '.join(missing)}")
    return app


def _roles(http: HttpSettings) -> Mapping[Route, Role | None]:
    return {**least_roles(), **({("GET", "/metrics"): OPEN} if http.open_metrics else {})}


def _admitted(access: Access, roles: Mapping[Route, Role | None]) -> Response | None:
    """Admit a caller with the role of the route, and attribute the actions of this request to it. Raises `Rejected`."""
    role = least(roles, request)
    if role is OPEN:
        WHO.set(f"{ANONYMOUS} at {request.remote_addr}")
        return None
    if request.method == "GET" and (request.endpoint or "").startswith("page ") and access.caller(request) is None:
        return cast("Response", redirect(login.address(request, access), 303))
    WHO.set(f"{access.require(request, role).name} at {request.remote_addr}")
    return None


def _unverified(user: str, address: str | None) -> None:
    """Attribute the actions of this request to nobody, with the name that the client claims."""
    name = "".join(letter for letter in user if letter.isprintable())[:MOST_NAME]
    WHO.set(f"{ANONYMOUS} ({name}) at {address}" if name else f"{ANONYMOUS} at {address}")


def _recorded(response: Response) -> Response:
    """Log each request that may change something. Access counts those that it refuses."""
    if request.method not in READS and response.status_code not in (401, 403, 404, 405):
        log.info(
            "request answered",
            extra={
                "by": WHO.get(),
                "request": request.method,
                "path": request.path[:MOST_PATH],
                "status": response.status_code,
            },
        )
    return response


def _forgotten() -> None:
    """Reset the user, because the thread serves other requests."""
    WHO.set(ITSELF)


def _probes(app: Flask, engine: Engine, metrics: Metrics, access: Access | None) -> None:
    @app.get("/healthz")
    def healthz() -> Response:
        return jsonify({"alive": True})

    @app.get("/readyz")
    def readyz() -> Answer:
        status = engine.status()
        ha = status.get("ha")
        if ha and ha["role"] == "standby" and request.args.get("standbyok") == "true":
            able = health(status).level == "healthy"
            return jsonify({"ready": able, "role": ha["role"], "epoch": ha["epoch"]}), 200 if able else 503
        role = {"role": ha["role"], "epoch": ha["epoch"]} if ha else {}
        reasons = [] if status["ready"] else status["problems"] or ["the view is not complete yet"]
        if access is not None and access.caller(request) is None:
            reasons = []  # they name servers and resources
        return jsonify({"ready": status["ready"], "reasons": reasons, **role}), 200 if status["ready"] else 503

    @app.get("/metrics")
    def scrape() -> Response:
        metrics.status(engine.status(), lambda noun: engine.rows(noun, RowQuery()))
        return Response(metrics.text(), content_type=CONTENT_TYPE)


def _reads(app: Flask, engine: Engine) -> None:
    def read(name: str, say: Callable[[], object]) -> None:
        app.add_url_rule(f"/api/{name}", name, lambda: jsonify(say()))

    def rows(name: str, say: Callable[[], list[Row]]) -> None:
        app.add_url_rule(f"/api/{name}", name, lambda: _listed(engine, name, say()))

    read("status", engine.status)
    rows("plan", engine.plan)
    read("config", engine.config)
    rows("findings", lambda: _findings(engine))
    rows("actions", lambda: _actions(engine))
    app.add_url_rule("/api/trends/<stream>", "trends", lambda stream: jsonify(engine.trends(_stream(stream))))
    read("rules", lambda: [rule_row(rule) for rule in rules()])
    for stream in STREAMS:
        for noun in stream.lists:
            rows(noun.name, partial(_rows, engine, noun))
        for thing in stream.things:
            app.add_url_rule(f"/api/{thing.path}", thing.name, partial(_thing, engine, thing))
    app.add_url_rule("/api", "index", lambda: jsonify(_index(app)))


def _stream(name: str) -> str:
    if name not in (names := [stream.name for stream in STREAMS]):
        raise Rejected(404, f"a stream, one of {', '.join(names)}", repr(name)[:100], "name one of them")
    return name


def _rows(engine: Engine, noun: Noun) -> list[Row]:
    """The rows of a noun, with the parameters that it declares."""
    if not noun.limit and not noun.choices and not noun.selectors:
        return engine.rows(noun.name, RowQuery())
    _only(*noun.choices, *noun.selectors, *(["limit"] if noun.limit else []))
    choices = {name: one_of(name, values) for name, values in noun.choices.items()}
    limit = _limit(noun.limit) if noun.limit else 0
    return engine.rows(noun.name, RowQuery(limit, choices, **selected(noun.selectors)))


def _thing(engine: Engine, thing: ResourceKind, **names: str | int) -> Response:
    ids = {name: id_of(name, str(names[name])) for name in thing.ids}
    return jsonify(engine.describe(thing.name, {**names, **ids}))


def _order(engine: Engine, verb: Verb, **names: str | int) -> Response:
    body = body_of_request()
    if (arguments := verb.read(body)) is None:
        raise Rejected(400, verb.form, shown(body), verb.todo)
    ids = {name: id_of(name, str(names[name])) for name in verb.ids}
    return jsonify(engine.execute(verb.name, {**names, **ids}, arguments))


def _listed(engine: Engine, name: str, rows: list[Row]) -> Response:
    """The rows, with headers for their total number and for the reason why they may be incomplete."""
    every = name == "ledgers" and request.args.get("all") == "true"
    incomplete = engine.incomplete("all ledgers" if every else name)
    response = jsonify(rows)
    response.headers[TOTAL] = str(rows.total if isinstance(rows, LimitedRows) else len(rows))
    if incomplete:
        response.headers[INCOMPLETE] = json.dumps(incomplete)  # escapes characters that a header cannot contain
    return response


def _index(app: Flask) -> dict[str, list[str]]:
    return {str(rule): sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}) for rule in app.url_map.iter_rules()}


def _findings(engine: Engine) -> list[Row]:
    _only("verdict", "rule", "limit", "stream", *SELECTORS)
    stream = one_of("stream", tuple(candidate.name for candidate in STREAMS)) or STREAMS[0].name
    descriptor = next(candidate for candidate in STREAMS if candidate.name == stream)
    if strange := sorted(set(SELECTORS) & set(request.args) - set(descriptor.selectors)):
        has = f"selectors of the stream {stream}: {', '.join(descriptor.selectors) or 'none'}"
        raise Rejected(400, has, ", ".join(strange), "remove the others, or name another stream")
    verdict, rule = one_of("verdict", VERDICTS), one_of("rule", tuple(rule.id for rule in descriptor.rules))
    return engine.findings(verdict, rule, _limit(100), stream, selected(descriptor.selectors))


def _actions(engine: Engine) -> list[Row]:
    _only("limit")
    return engine.actions(_limit(50))


def _writes(app: Flask, engine: Engine) -> None:
    @app.post("/api/approve")
    def approve() -> Response:
        body = body_of_request()
        ids = body.get("ids")
        if body == {"all": True}:
            return jsonify(engine.approve(None))
        if set(body) != {"ids"} or not isinstance(ids, list) or not ids or not all(isinstance(i, str) for i in ids):
            raise Rejected(400, '{"ids": ["..."]} or {"all": true}', shown(body), "name the actions to approve")
        return jsonify(engine.approve(ids))

    for stream in STREAMS:
        for verb in stream.verbs:
            app.add_url_rule(f"/api/{verb.path}", f"{verb.name} order", partial(_order, engine, verb), methods=["POST"])

    @app.put("/api/config/<name>")
    def set_config(name: str) -> Response:
        settings = engine.config()
        live, body = settings["live"], body_of_request()
        removed = name in settings["refused"] and body == {"value": None}
        if name in settings["fixed"] and not removed:
            found = f"{shown(name)}, which needs a restart"
            raise Rejected(409, "a live key", found, "change it in the configuration file, then restart Trueup")
        if name not in live and not removed:
            raise Rejected(
                404,
                one_of_keys([*live], name, "a live key"),
                f"{shown(name)}{near(name, live)}",
                "`trueup config get` lists all keys",
            )
        if set(body) != {"value"}:
            raise Rejected(400, '{"value": ...}, null to use the value of the file', shown(body), "send the new value")
        return jsonify(engine.set_config(name, body["value"]))


def _errors(app: Flask, engine: Engine) -> None:
    @app.errorhandler(TrueupError)
    def ours(error: TrueupError) -> Answer:
        kind, status = _kind(error, engine)
        problems = {"problems": error.problems} if isinstance(error, BadSettings) else {}
        body = {"error": kind, "expected": error.expected, "found": error.found, "todo": error.todo, **problems}
        response = jsonify(body)
        if status == 401:
            response.headers["WWW-Authenticate"] = 'Bearer realm="trueup"'
        return response, status

    @app.errorhandler(HTTPException)
    def werkzeugs(error: HTTPException) -> Answer:
        status = error.code or 500
        expected, found = {
            404: ("an address of this API", request.path),
            405: (" or ".join(_methods(error)), request.method),
            500: ("a response", "a defect of Trueup; see its log"),
        }.get(status, (f"a request without HTTP status {status}", str(error.description)))
        body = {"error": error.name.lower(), "expected": expected, "found": found, "todo": "GET /api lists all paths"}
        return jsonify(body), status


def _methods(error: HTTPException) -> list[str]:
    valid = error.valid_methods if isinstance(error, MethodNotAllowed) else None
    return sorted(set(valid or ()) - {"HEAD", "OPTIONS"})


def _kind(error: TrueupError, engine: Engine) -> tuple[str, int]:
    if isinstance(error, Rejected):
        return "rejected", error.status
    if isinstance(error, BadSettings):
        return "bad settings", 400
    if isinstance(error, Refused):
        reading = request.method == "GET"
        if reading and not engine.status()["ready"]:
            return "not ready", 503
        return ("not found", 404) if reading else ("refused", 409)
    if isinstance(error, Retry):
        return "unavailable", 503
    return ("unknown outcome", 503) if isinstance(error, Unknown) else ("failed", 500)


def _only(*names: str) -> None:
    if unknown := sorted(set(request.args) - set(names)):
        raise Rejected(400, f"the parameters {', '.join(names)}", ", ".join(unknown), "remove the others")


def _limit(default: int) -> int:
    text = request.args.get("limit", str(default))
    if not text.isdecimal() or len(text) > 9 or not 1 <= int(text) <= MOST:
        raise Rejected(400, f"limit to be an integer from 1 to {MOST}", repr(text), "use a limit in this range")
    return int(text)


def _sealed(response: Response) -> Response:
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["X-Frame-Options"] = "DENY"
    response.headers["Referrer-Policy"] = "no-referrer"
    response.headers.setdefault("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
    return response
