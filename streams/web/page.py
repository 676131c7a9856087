"""The status page. Its sections are rendered on the server; a script on the page requests them periodically."""

import json
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flask import Flask, Response, render_template, request
from jinja2 import FileSystemLoader

from trueup.state.common.errors import TrueupError
from trueup.streams.catalog import STREAMS
from trueup.streams.health import health
from trueup.streams.runtime.descriptor import Section
from trueup.streams.runtime.format import age, cut, many, short, since, size
from trueup.streams.web.access import COOKIE
from trueup.streams.web.engine import Engine, Row

SHARED = ("health", "attention", "actions", "engine")
"""Sections that do not belong to a stream."""
FINDINGS, ACTIONS = 12, 12
GENERIC = "stream.html"
LONGEST = 500
"""Maximum characters of a text."""


class Page:
    """The status page of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def attach(self, app: Flask) -> None:
        """Add `/` and the path that its script requests."""
        app.jinja_env.filters |= {"age": age, "short": short, "size": size}
        app.jinja_loader = FileSystemLoader([Path(__file__).parent / "templates", Path(__file__).parents[1]])
        app.jinja_env.finalize = _cut
        app.jinja_env.globals |= {"many": many, "since": since}
        app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
        app.add_url_rule("/", "page", self._page)
        app.add_url_rule("/api/page", "sections", self._answer)

    def _page(self) -> Response:
        nonce = secrets.token_urlsafe(16)
        known = self._known()
        response = Response(
            render_template("page.html", nonce=nonce, bodies=_bodies(known), session=COOKIE in request.cookies, **known)
        )
        response.headers["Content-Security-Policy"] = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; "
            "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        return response

    def _answer(self) -> Response:
        return Response(json.dumps(_bodies(self._known())), mimetype="application/json")

    def _known(self) -> Mapping[str, Any]:
        status = self._engine.status()
        parts = sections()
        findings = {stream.name: rows for stream in STREAMS if (rows := self._findings(stream.name))}
        return {
            "status": status, "now": status["now_ms"], "health": health(status), "parts": parts,
            "data": {name: self._data(section, findings) for name, section in parts.items()},
            "findings": findings,
            "incomplete": self._engine.incomplete("findings"),
            "actions": _or_none(lambda: self._engine.actions(ACTIONS)),
        }  # fmt: skip

    def _findings(self, stream: str) -> list[Row]:
        """The first findings of a stream."""
        return _or_none(lambda: self._engine.findings(None, None, FINDINGS, stream))

    def _data(self, section: Section, findings: Mapping[str, list[Row]]) -> list[Row]:
        """The rows of a section."""
        if section.template == GENERIC:
            return findings.get(section.name, [])
        return (
            section.shape(_or_none(lambda: self._engine.rows(section.noun, {})))[: section.limit]
            if section.noun
            else []
        )


def sections() -> dict[str, Section]:
    """The sections of the streams, by name. A stream without sections has one with its counts and findings."""
    own = [section for stream in STREAMS for section in stream.page or [Section(stream.name, GENERIC)]]
    return {section.name: section for section in own}


def _bodies(known: Mapping[str, Any]) -> dict[str, str]:
    made = {name: render_template(f"{name}.html", **known) for name in SHARED}
    for name, section in known["parts"].items():
        rows = known["data"][name]
        made[name] = render_template(section.template, **known, section=section, rows=rows, limit=section.limit)
    return made


def _cut(value: Any) -> Any:
    return cut(value, LONGEST) if type(value) is str else value


def _or_none(ask: Callable[[], list[Row]]) -> list[Row]:
    """The rows, or none if they are not available; the problems of the status contain the reason."""
    try:
        return ask()
    except TrueupError:
        return []
