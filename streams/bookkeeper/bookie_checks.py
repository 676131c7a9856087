"""Checks of `trueup doctor` on connections to bookies: confirmations of deletions and reads of ledgers need them."""

import ssl
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from trueup.connectors.bookkeeper.bookie.admin_calls import Calls
from trueup.connectors.bookkeeper.metadata.addresses import Address, address_or_error
from trueup.connectors.zookeeper.errors import Forbidden
from trueup.state.common.counts import many
from trueup.state.common.errors import Retry, TrueupError
from trueup.streams.runtime.checks import Check, fail, ok, warn

NAME = "bookie connections"
_MOST, _THREADS, _ANSWER_S = 200, 32, 5.0
_NO_SUCH_LEDGER = (1 << 63) - 1


def connections(
    bookies: Sequence[str], addresses: Callable[[str], Address | None], tls: ssl.SSLContext | None
) -> Iterator[Check]:
    """Registered bookies respond to a read, of at most 200 of them: one row for each different problem."""
    asked = sorted(bookies)[:_MOST]
    places = [address_or_error(bookie, addresses) for bookie in asked]
    with ThreadPoolExecutor(_THREADS, "bookies") as pool:
        errors = list(pool.map(lambda bookie, place: _error(bookie, place, tls), asked, places))
    by_problem = defaultdict(list)
    for bookie, error in zip(asked, errors, strict=True):
        if error is not None:
            by_problem[isinstance(error, Retry), error.found, error.todo].append(bookie)
    if good := errors.count(None):
        yield ok(NAME, f"{good} of {many(len(bookies), 'bookie')} responded, {'TLS' if tls else 'no TLS'}")
    for (transient, problem, todo), named in by_problem.items():
        judged = warn if transient else fail
        others = f" and {len(named) - 1} more" if len(named) > 1 else ""
        yield judged(NAME, f"{named[0]}{others}: {problem}", todo)


def _error(bookie: str, place: Address | Forbidden | None, tls: ssl.SSLContext | None) -> TrueupError | None:
    if isinstance(place, Forbidden):
        return place
    if place is None:
        return Retry("an address", "none in its registration", "check the bookie's log")
    try:
        with Calls(bookie, place, _ANSWER_S, tls) as calls:
            calls.read(_NO_SUCH_LEDGER, 0)
    except TrueupError as error:
        return error
    return None
