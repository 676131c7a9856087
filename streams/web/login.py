"""The login of the pages: a form that exchanges a token for the cookie of a session."""

from urllib.parse import urlencode

from flask import Flask, Request, Response, jsonify, render_template, request

from trueup.streams.web.access import COOKIE, REMEMBERED_S, Access
from trueup.streams.web.guard import Rejected
from trueup.streams.web.pages.files import POLICY
from trueup.streams.web.parameters import body_of_request

ENDED = {
    "late": "Your session ended: its time was over.",
    "token": "Your session ended: its token is not valid any more.",
    "unknown": "Your session ended: Trueup was restarted, or you logged out elsewhere.",
}


def address(request: Request, access: Access) -> str:
    """The address of the form for a request without a session: it returns to the page, and says why."""
    query = request.query_string.decode("ascii", "replace")
    to = f"{request.path}?{query}" if query else request.path
    why = access.ended(request)
    return f"/login?{urlencode({'to': to, **({'why': why} if why else {})})}"


def _is_page(to: str) -> bool:
    """Whether this is a path of this server: browsers take // and a backslash for another one."""
    return to.startswith("/") and not to.startswith("//") and "\\" not in to and to.isprintable()


def attach(app: Flask, access: Access) -> None:
    """Add the form, and the requests that begin and end a session. Their bodies are JSON, as the guard requires."""

    @app.get("/login")
    def login_form() -> Response:
        to, why = request.args.get("to", ""), request.args.get("why", "")
        response = Response(render_template("login.html", to=to if _is_page(to) else "/", why=ENDED.get(why, "")))
        response.headers["Content-Security-Policy"] = POLICY
        return response

    @app.post("/login")
    def login() -> Response:
        token = body_of_request().get("token")
        if not isinstance(token, str):
            raise Rejected(400, '{"token": "..."}', "something else", "send the token as JSON")
        response = jsonify({"ok": True})
        _set(response, access.begin(request, token.strip()), REMEMBERED_S)
        return response

    @app.post("/logout")
    def logout() -> Response:
        access.end(request.cookies.get(COOKIE, ""))
        response = jsonify({"ok": True})
        _set(response, "", 0)
        return response


def _set(response: Response, session: str, max_age_s: int) -> None:
    response.set_cookie(
        COOKIE, session, max_age=max_age_s, httponly=True, samesite="Strict", secure=request.is_secure, path="/"
    )
