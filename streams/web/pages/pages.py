"""The addresses of the pages, and what each page shows."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

from flask import Flask, Response, g, redirect, render_template, request
from flask.typing import ResponseReturnValue
from jinja2 import FileSystemLoader

from trueup.state.common.counts import many
from trueup.state.common.errors import Refused, TrueupError
from trueup.state.settings.roles import Role
from trueup.streams.catalog import STREAMS, rules
from trueup.streams.health import health
from trueup.streams.rows import Names, Row, RowQuery
from trueup.streams.runtime.descriptor import Descriptor, PageSection, ResourceKind
from trueup.streams.runtime.format import age, ago, cut, short, since, size
from trueup.streams.runtime.stream import AWAITING, LimitedRows
from trueup.streams.web.access import COOKIE, Access
from trueup.streams.web.engine import VERDICTS, Engine
from trueup.streams.web.guard import Rejected
from trueup.streams.web.pages import controls, facts, resources
from trueup.streams.web.pages.files import POLICY, file
from trueup.streams.web.parameters import id_of, one_of, selected

TEMPLATES = Path(__file__).parents[1] / "templates"
GENERIC = "stream.html"
LONGEST = 500
"""Maximum characters of a text."""
SHOWN = ("reason", "verdict", "rule", "history")
"""Fields of a resource that have a place of their own on its page."""
SELECTED_S = 30
"""Seconds between two refreshes of findings that are selected by reads of the metadata of ledgers."""
URGENT, RECENT, LISTED, SEARCHED, FOUND = 5, 12, 200, 5_000, 50


class Pages:
    """The pages of one engine. ``access``: the check of callers; None if callers are not authenticated."""

    def __init__(self, engine: Engine, access: Access | None) -> None:
        self._engine, self._access = engine, access
        self._rules = {rule.id: rule for rule in rules()}

    def attach(self, app: Flask) -> None:
        """Add the pages and the files that they load."""
        app.jinja_env.filters |= {
            "age": age,
            "ago": ago,
            "short": short,
            "size": size,
            "clock": facts.clock,
            "words": facts.words,
        }
        app.jinja_loader = FileSystemLoader([TEMPLATES, Path(__file__).parents[2]])
        app.jinja_env.finalize = _cut
        app.jinja_env.globals |= {
            "many": many,
            "since": since,
            "address": resources.address,
            "approval": controls.approval,
            "quote": quote,
        }
        app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
        views: Mapping[str, Callable[..., ResponseReturnValue]] = {
            "/": self._overview,
            "/findings": self._findings,
            "/plan": self._plan,
            "/timeline": self._timeline,
            "/racks": self._racks,
            "/search": self._search,
            "/streams/<name>": self._stream,
        }
        for rule, view in views.items():
            app.add_url_rule(rule, f"page {rule}", partial(self._answer, view))
        for stream, thing in resources.with_page():
            app.add_url_rule(f"/{thing.path}", f"page {thing.name}", partial(self._answer, self._thing, stream, thing))
        app.add_url_rule("/static/<name>", "file", file)

    def _answer(
        self, view: Callable[..., ResponseReturnValue], *arguments: object, **names: str | int
    ) -> ResponseReturnValue:
        """The page, or a page with the reason why there is none."""
        try:
            return view(*arguments, **names)
        except Rejected as error:
            return self._render("problem.html", "", error=error), error.status
        except Refused as error:
            return self._render("problem.html", "", error=error), HTTPStatus.NOT_FOUND
        except TrueupError as error:
            return self._render("problem.html", "", error=error), HTTPStatus.SERVICE_UNAVAILABLE

    def _render(self, template: str, page: str, refresh_s: int = 5, **more: Any) -> Response:
        status = self._status()
        role = self._role()
        groups = self._groups()
        response = Response(
            render_template(
                template,
                page=page,
                refresh_s=refresh_s,
                status=status,
                now=status["now_ms"],
                health=health(status),
                groups=groups,
                findings_total=sum(row["count"] for row in groups),
                session=COOKIE in request.cookies,
                check=self._access.check(request) if self._access else "",
                may=lambda least: role >= least,
                incomplete=self._engine.incomplete("findings"),
                streams=self._running(),
                **more,
            )
        )
        response.headers["Content-Security-Policy"] = POLICY
        return response

    def _status(self) -> Row:
        """The status, asked once for each request."""
        if "status" not in g:
            g.status = self._engine.status()
        status: Row = g.status
        return status

    def _role(self) -> Role:
        if self._access is None:
            return Role.ADMIN
        caller = self._access.caller(request)
        return caller.role if caller and caller.role else Role.VIEWER

    def _running(self) -> list[Descriptor]:
        names = {subject["name"] for subject in self._status().get("subjects", ())}
        return [stream for stream in STREAMS if stream.name in names]

    def _groups(self) -> list[Row]:
        """Findings by stream and rule, counted once for each request: stream, rule, title, verdict, count."""
        if "groups" not in g:
            g.groups = self._grouped()
        groups: list[Row] = g.groups
        return groups

    def _grouped(self) -> list[Row]:
        return [
            {"stream": stream.name, "rule": rule, "count": count, "title": self._rules[rule].title, "verdict": verdict}
            for stream in STREAMS
            for (rule, verdict), count in self._counted(stream.name).items()
        ]

    def _counted(self, stream: str) -> Mapping[tuple[str, str], int]:
        try:
            return self._engine.grouped(stream)
        except TrueupError:
            return {}

    def _overview(self) -> Response:
        shown = sections(STREAMS)
        urgent = {stream.name: rows for stream in STREAMS if (rows := self._found(stream.name, URGENT))}
        status = self._status()
        return self._render(
            "overview.html",
            "/",
            2,
            parts=shown,
            urgent=urgent,
            actions=self._actions(RECENT),
            bodies={name: self._body(section, status, URGENT) for name, section in shown.items()},
            outdated={name: self._outdated(section) for name, section in shown.items()},
            first=[section.name for section in STREAMS[0].page],
            usual=STREAMS[0].name,
            trends={stream.name: self._sparks(stream, status) for stream in self._running()},
        )

    def _sparks(self, stream: Descriptor, status: Row) -> list[facts.Spark]:
        return facts.sparks(self._engine.trends(stream.name), stream.numbers(status))

    def _body(self, section: PageSection, status: Row, limit: int) -> str:
        """The HTML of a section of a stream."""
        if section.template == GENERIC:
            rows = self._found(section.name, limit)
        else:
            rows = section.shape(_or_none(lambda: self._engine.rows(section.noun, RowQuery()))) if section.noun else []
        return render_template(
            section.template,
            status=status,
            now=status["now_ms"],
            section=section,
            rows=rows[: section.limit],
            limit=section.limit,
        )

    def _outdated(self, section: PageSection) -> str:
        """Why the rows of a section may be incomplete or outdated, or empty."""
        nouns = {noun.name for stream in STREAMS for noun in stream.lists}
        named = [noun for noun in (section.noun, section.name) if noun in nouns]
        return self._engine.incomplete(named[0]) if named else ""

    def _found(self, stream: str, limit: int, verdict: str | None = None, rule: str | None = None) -> list[Row]:
        return _or_none(lambda: self._engine.findings(verdict, rule, limit, stream))

    def _actions(self, limit: int, condition: Callable[[Row], bool] | None = None) -> list[Row]:
        return _or_none(lambda: self._engine.actions(limit, condition))

    def _findings(self) -> Response:
        groups = self._groups()
        stream = _chosen("stream", [candidate.name for candidate in STREAMS]) or next(
            (g["stream"] for g in groups), STREAMS[0].name
        )
        stream_rules = next(candidate.rules for candidate in STREAMS if candidate.name == stream)
        rule, verdict = _chosen("rule", [entry.id for entry in stream_rules]), _chosen("verdict", VERDICTS)
        asked = _asked("q")
        selectors = next(candidate.selectors for candidate in STREAMS if candidate.name == stream)
        where = selected([name for name in selectors if request.args.get(name)])
        rows = self._engine.findings(verdict, rule, SEARCHED if asked else LISTED, stream, where)
        total = rows.total if isinstance(rows, LimitedRows) else len(rows)
        matching = [row for row in rows if _says(row, asked)][:LISTED]
        return self._render(
            "findings.html",
            "/findings",
            SELECTED_S if where else 5,
            rows=matching,
            total=total,
            searched=len(rows),
            chosen={"stream": stream, "rule": rule, "verdict": verdict, "q": asked, **where},
            selectors=selectors,
            explained=self._rules.get(rule or ""),
        )

    def _plan(self) -> Response:
        rows = self._engine.plan()
        waits = [row for row in rows if row["stage"] == AWAITING]
        others = [row for row in rows if row["stage"] != AWAITING]
        return self._render(
            "plan.html",
            "/plan",
            waits=waits[:LISTED],
            waiting=len(waits),
            others=others[:LISTED],
            under_way=len(others),
            does=controls.does,
            lacking=self._engine.incomplete("plan"),
        )

    def _timeline(self) -> Response:
        asked, kind = _asked("q"), _asked("kind")
        newest = self._actions(SEARCHED)
        rows = [
            {**row, "day": facts.clock(row["at_ms"])[:10]}
            for row in newest
            if kind in ("", row["kind"]) and _says(row, asked)
        ]
        return self._render(
            "timeline.html",
            "/timeline",
            rows=rows[:LISTED],
            total=len(rows),
            searched=len(newest),
            kinds=sorted({row["kind"] for row in newest}),
            chosen={"q": asked, "kind": kind},
        )

    def _racks(self) -> Response:
        if not self._status()["watches_ledgers"]:
            raise Refused("a BookKeeper cluster that is observed", "none", "set cluster.zookeeper")
        bookies = self._engine.rows("bookies", RowQuery())
        racks: dict[str, list[Row]] = {}
        for bookie in sorted(bookies, key=lambda b: (b["rack"], b["bookie"])):
            racks.setdefault(bookie["rack"], []).append(bookie)
        what = {kind: self._engine.describe("what-if", {"kind": kind}) for kind in ("rack", "bookie")}
        return self._render(
            "racks.html", "/racks", 2, racks=racks, what=what, outdated=self._engine.incomplete("bookies")
        )

    def _stream(self, name: str) -> Response:
        stream = next((candidate for candidate in STREAMS if candidate.name == name), None)
        if stream is None:
            raise Refused(
                f"one of the streams {', '.join(candidate.name for candidate in STREAMS)}", name[:100], "name one"
            )
        status = self._status()
        running = stream in self._running()
        return self._render(
            "stream_page.html",
            f"/streams/{name}",
            stream=stream,
            bodies={name: self._body(section, status, LISTED) for name, section in sections([stream]).items()},
            outdated={name: self._outdated(section) for name, section in sections([stream]).items()},
            controls=controls.controls(stream, self._engine.config()["live"], status["held"]),
            running=running,
            sparks=self._sparks(stream, status) if running else [],
        )

    def _thing(self, stream: Descriptor, thing: ResourceKind, **path: str | int) -> Response:
        names: Names = {**path, **{name: id_of(name, str(path[name])) for name in thing.ids}}
        description, missing = self._described(thing, names)
        now_ms = self._status()["now_ms"]
        shown = {thing.name, *names, *thing.shown, *SHOWN}

        def chosen(rows: list[Row]) -> list[Row]:
            return [row for row in rows if resources.concerns(thing, row, names)]

        page = self._render(
            "thing.html",
            "",
            title=resources.title(thing, names),
            stream=stream,
            thing=thing,
            found=description,
            facts=facts.facts(description, now_ms, shown),
            tables=list(facts.tables(description, now_ms, shown)),
            missing=missing,
            findings=[] if "verdict" in description else chosen(self._found(stream.name, SEARCHED)),
            upcoming=chosen(_or_none(self._engine.plan)),
            done=self._actions(LISTED, lambda row: resources.concerns(thing, row, names)),
            lacking=self._engine.incomplete("plan"),
            does=controls.does,
            rule=self._rules.get(str(description.get("rule"))),
        )
        page.status_code = HTTPStatus.NOT_FOUND if missing else HTTPStatus.OK
        return page

    def _described(self, thing: ResourceKind, names: Names) -> tuple[Row, Refused | None]:
        """The description of a resource, or why there is none: what was done with it is still known."""
        try:
            answer = self._engine.describe(thing.name, names)
        except Refused as error:
            return {}, error
        return answer if isinstance(answer, dict) else {thing.name: answer}, None

    def _search(self) -> ResponseReturnValue:
        asked = _asked("q")
        if asked.isdecimal() and self._status()["watches_ledgers"]:
            return redirect(f"/ledgers/{asked}", 303)
        titles = dict[str, str]()
        for noun in (noun.name for stream in self._running() for noun in stream.lists if not noun.limit):
            for row in _or_none(lambda noun=noun: self._engine.rows(noun, RowQuery())):  # type: ignore[misc]
                if _says(row, asked) and (page := resources.page_and_title(row)):
                    titles[page[0]] = page[1]
        if len(titles) == 1:
            return redirect(next(iter(titles)), 303)
        return self._render("search.html", "", asked=asked, found=dict(list(titles.items())[:FOUND]), total=len(titles))


def _says(row: Row, asked: str) -> bool:
    """Whether a row contains the text. Times are left out: nobody searches for a part of their milliseconds."""
    return asked.lower() in str([value for name, value in row.items() if not name.endswith("_ms")]).lower()


def sections(streams: Iterable[Descriptor]) -> dict[str, PageSection]:
    """The sections of the streams, by name. A stream without sections has one with its counts and findings."""
    own = [section for stream in streams for section in stream.page or [PageSection(stream.name, GENERIC)]]
    return {section.name: section for section in own}


def _chosen(name: str, values: Iterable[str]) -> str | None:
    """The chosen value; None also for the empty one, which forms send for any."""
    return one_of(name, tuple(values)) if request.args.get(name) else None


def _asked(name: str) -> str:
    return request.args.get(name, "").strip()[:LONGEST]


def _cut(value: object) -> object:
    return cut(value, LONGEST) if type(value) is str else value


def _or_none(ask: Callable[[], list[Row]]) -> list[Row]:
    """The rows, or none if they are not available; the problems of the status contain the reason."""
    try:
        return ask()
    except TrueupError:
        return []
