"""Checks of what a request names in its path, parameters and body, for the API and the pages."""

from collections.abc import Sequence

from flask import request

from trueup.state.common.options import shown
from trueup.streams.rows import Row
from trueup.streams.web.engine import SELECTORS
from trueup.streams.web.guard import Rejected


def id_of(name: str, text: str) -> int:
    """The number in a path, such as that of a ledger. Raises `Rejected`."""
    if not text.isdecimal() or len(text) > 19 or int(text) >= 1 << 63:
        raise Rejected(400, f"a {name} id, 0 to 2^63 - 1", repr(text), "give its decimal id")
    return int(text)


def one_of(name: str, values: tuple[str, ...]) -> str | None:
    """The value of a parameter, None without it. Raises `Rejected`."""
    value = request.args.get(name)
    if value is not None and value not in values:
        raise Rejected(400, f"{name} to be one of {', '.join(values)}", repr(value), "use one of these")
    return value


def selected(names: Sequence[str]) -> dict[str, str]:
    """The values of these selectors that the request has. Raises `Rejected`."""
    values = {name: request.args[name] for name in names if name in request.args}
    for name, value in values.items():
        if not all(value.split("/")) or (name == "namespace" and value.count("/") != 1):
            raise Rejected(400, f"{name} to be {SELECTORS[name]}", shown(value), "give its whole name")
    return values


def body_of_request() -> Row:
    """The JSON object in the body. Raises `Rejected`."""
    try:
        body = request.get_json(silent=True)
    except RecursionError:
        body = None
    if not isinstance(body, dict):
        raise Rejected(400, "a JSON object", repr(request.get_data()[:80]), "send a JSON object")
    return body
