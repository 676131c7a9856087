"""The files that the pages load, and what browsers may load at all."""

from pathlib import Path
from typing import cast

from flask import Response, request
from werkzeug.exceptions import NotFound

STATIC = Path(__file__).parents[1] / "static"
KEPT_S = 3_600
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""The header Content-Security-Policy of the pages."""


TYPES = {".css": "text/css", ".js": "text/javascript", ".LICENSE": "text/plain"}
FILES = {path.name: path for path in STATIC.iterdir() if path.suffix in TYPES}


def file(name: str) -> Response:
    """A file of the pages. Raises `NotFound`."""
    if name not in FILES:
        raise NotFound
    response = Response(FILES[name].read_bytes(), mimetype=TYPES[FILES[name].suffix])
    response.headers["Cache-Control"] = f"public, max-age={KEPT_S}"
    response.add_etag()
    return cast("Response", response.make_conditional(request))
