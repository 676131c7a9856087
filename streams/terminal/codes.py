"""Exit codes, the same for every command."""

from trueup.state.common.errors import BadSettings, Refused, Retry, TrueupError, Unknown
from trueup.streams.terminal.client import ApiError

OK = 0
ATTENTION = 1
USAGE = 2
CHANGES = 3
UNREACHABLE = 4
REFUSED = 5
INCOMPLETE = 6
INTERRUPTED = 130

TABLE = """Exit codes:

\b
  0  success
  1  an operator is required: not healthy, a check failed, or the command cannot be executed
  2  invalid usage or configuration
  3  trueup plan, trueup delete: changes are pending
  4  no response (application, server or repository); retry later
  5  refused: no valid token or role, or the resource does not exist or has changed
  6  trueup get, trueup plan: rows may be missing or outdated; the output shows the reason

With -o json an error is one JSON object on stderr: {"error": {"expected", "found", "todo", "code"}}."""


_BY_STATUS = {400: USAGE, 401: REFUSED, 403: REFUSED, 404: REFUSED, 409: REFUSED, 415: REFUSED, 503: UNREACHABLE}


def code_of(error: TrueupError) -> int:
    """The exit code for one of our errors."""
    if isinstance(error, ApiError):
        return _BY_STATUS.get(error.status, ATTENTION)
    if isinstance(error, BadSettings):
        return USAGE
    if isinstance(error, Refused):
        return REFUSED
    return UNREACHABLE if isinstance(error, Retry | Unknown) else ATTENTION
