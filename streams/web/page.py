"""The status page: rendered here, section by section; a small script on it asks for the sections again and again."""

import json
import secrets
from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any

from flask import Flask, Response, render_template

from trueup.state.common.errors import TrueupError
from trueup.streams.health import health
from trueup.streams.runtime.format import age, cut, many, short, since, size
from trueup.streams.web.engine import Engine, Row

SECTIONS = ("health", "counts", "links", "logdirs", "deletion", "attention", "actions", "bookies", "engine")
FINDINGS, ACTIONS, DIRECTORIES, FORGOTTEN = 12, 12, 60, 24
LONGEST = 500
"""Characters of a text."""
CHIPS, CHIPS_OF_MANY = 12, 4


class Page:
    """The page of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def attach(self, app: Flask) -> None:
        """Add `/` and what its script asks for."""
        app.jinja_env.filters |= {"age": age, "short": short, "size": size}
        app.jinja_env.finalize = _cut
        app.jinja_env.globals |= {"many": many, "since": since}
        app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
        app.add_url_rule("/", "page", self._page)
        app.add_url_rule("/api/page", "sections", self._answer)

    def _page(self) -> Response:
        nonce = secrets.token_urlsafe(16)
        known = self._known()
        response = Response(render_template("page.html", nonce=nonce, **known))
        response.headers["Content-Security-Policy"] = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; "
            "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        return response

    def _answer(self) -> Response:
        return Response(json.dumps(self._sections()), mimetype="application/json")

    def _sections(self) -> dict[str, str]:
        known = self._known()
        return {name: render_template(f"{name}.html", **known) for name in SECTIONS}

    def _known(self) -> Mapping[str, Any]:
        status = self._engine.status()
        return {
            "status": status, "now": status["now_ms"], "health": health(status),
            "findings": _or_none(lambda: self._engine.findings(None, None, FINDINGS)),
            "incomplete": self._engine.incomplete("findings"),
            "directories": _or_none(lambda: self._engine.rows("directories", {}))[:DIRECTORIES], "forgotten": FORGOTTEN,
            "racks": racks(_or_none(lambda: self._engine.rows("bookies", {}))),
            "actions": _or_none(lambda: self._engine.actions(ACTIONS)),
        }  # fmt: skip


def _cut(value: Any) -> Any:
    return cut(value, LONGEST) if type(value) is str else value


def racks(bookies: list[Row]) -> list[Row]:
    """Bookies by rack, those that are not writable first: rack, counts by status, shown, and how many are not."""
    order = {"lost": 0, "pending": 1, "readonly": 2, "writable": 3}
    rows = sorted(bookies, key=lambda b: (b["rack"] or "", order.get(b["status"], 0), b["bookie"]))
    made = []
    for rack, group in groupby(rows, key=lambda b: b["rack"] or ""):
        members = list(group)
        writable = [b for b in members if b["status"] == "writable"]
        few = writable if len(writable) <= CHIPS else writable[:CHIPS_OF_MANY]
        shown = [b for b in members if b["status"] != "writable"] + few
        counts = {status: sum(b["status"] == status for b in members) for status in reversed(order)}
        made.append({
            "rack": rack or "no rack known (/default-rack)", "shown": shown, "left": len(members) - len(shown),
            "counts": {status: count for status, count in counts.items() if count},
        })  # fmt: skip
    return made


def _or_none(ask: Callable[[], list[Row]]) -> list[Row]:
    """Rows, or none while there is nothing to say yet; why not is among the problems of the status."""
    try:
        return ask()
    except TrueupError:
        return []
