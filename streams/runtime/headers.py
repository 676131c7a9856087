"""Headers of the HTTP API, for the server and its client."""

TOTAL, INCOMPLETE = "Trueup-Total", "Trueup-Incomplete"
"""Of a list: the number of rows without the limit; why rows may be missing or outdated, as a JSON string."""
USER = "Trueup-User"
"""The user on whose behalf a program sends the request. It is not verified, and ignored for callers with a token."""
TOKEN = "Trueup-Token"  # noqa: S105 - the name of a header
"""The caller's token, if a proxy before the API uses the header Authorization."""
CHECK = "Trueup-Check"
"""The secret of the page of a session, on requests of the page that may change something."""
REPEATED = "Trueup-Repeated"
"""Of a request inside the server, which sets it always: the names of headers that the client sent more than once."""
