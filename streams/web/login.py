"""The login of the pages: a form that exchanges a token for the cookie of a session."""

from flask import Flask, Response, jsonify, render_template, request

from trueup.streams.web.access import COOKIE, SESSION_S, Access
from trueup.streams.web.guard import Rejected
from trueup.streams.web.pages.files import POLICY
from trueup.streams.web.parameters import body_of_request


def attach(app: Flask, access: Access) -> None:
    """Add the form, and the requests that begin and end a session. Their bodies are JSON, as the guard requires."""

    @app.get("/login")
    def login_form() -> Response:
        response = Response(render_template("login.html"))
        response.headers["Content-Security-Policy"] = POLICY
        return response

    @app.post("/login")
    def login() -> Response:
        token = body_of_request().get("token")
        if not isinstance(token, str):
            raise Rejected(400, '{"token": "..."}', "something else", "send the token as JSON")
        response = jsonify({"ok": True})
        _set(response, access.begin(request, token.strip()), SESSION_S)
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
