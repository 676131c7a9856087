"""Which bookies still hold a ledger: a deletion is complete when none does.

One entry is read: a bookie that dropped the ledger reports this for any entry. (A request for the list of its entries
is not possible: DbLedgerStorage of 4.17 and 4.18 does not answer it.)
"""

import ssl
from collections import defaultdict
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import NamedTuple

from trueup.connectors.bookkeeper.bookie.admin_calls import Calls
from trueup.connectors.bookkeeper.bookie.codes import Code, named
from trueup.connectors.bookkeeper.metadata.addresses import Address, address_or_error
from trueup.connectors.zookeeper.errors import Forbidden
from trueup.state.common.errors import TrueupError

_THREADS = 32


class PresenceAnswer(StrEnum):
    """The result for a ledger on a bookie. SILENT: unknown; the bookie may hold it."""

    GONE = "gone"
    HELD = "held"
    SILENT = "silent"


_ANSWERS: dict[int, PresenceAnswer] = {
    Code.NO_LEDGER: PresenceAnswer.GONE,
    Code.OK: PresenceAnswer.HELD,
    Code.NO_ENTRY: PresenceAnswer.HELD,
}


class _LedgerCodes(NamedTuple):
    """The response codes of one bookie."""

    codes: dict[int, int]
    """The code of each ledger that the bookie responded to."""
    problem: str = ""
    """The reason why other ledgers have no code; empty if there is none."""


def presence(
    asked: Mapping[int, Sequence[str]],
    addresses: Callable[[str], Address | None],
    timeout_s: float,
    *,
    reasons: MutableMapping[tuple[int, str], str] | None = None,
    tls: ssl.SSLContext | None = None,
    threads: int = _THREADS,
) -> dict[int, dict[str, PresenceAnswer]]:
    """Query these bookies for these ledgers in parallel, with one connection to each bookie.

    ``addresses`` returns None for a bookie without an address: it is silent, and so is one whose registration may not
    be read. ``timeout_s``: the maximum time of each bookie to connect and between responses. ``reasons`` receives, by
    ledger and bookie, the reason why the bookie is silent. Raises only what ``addresses`` raises, except `Forbidden`:
    any other error makes a bookie silent.
    """
    by_bookie: defaultdict[str, list[int]] = defaultdict(list)
    for ledger, bookies in asked.items():
        for bookie in dict.fromkeys(bookies):
            by_bookie[bookie].append(ledger)
    places = {bookie: address_or_error(bookie, addresses) for bookie in by_bookie}
    with ThreadPoolExecutor(max(1, min(threads, len(by_bookie))), "presence") as pool:
        answers = pool.map(lambda bookie: _ask(bookie, places[bookie], by_bookie[bookie], timeout_s, tls), by_bookie)
        answer_of = dict(zip(by_bookie, answers, strict=True))
    if reasons is not None:
        reasons.update(
            ((ledger, bookie), _reason(ledger, answer))
            for bookie, answer in answer_of.items()
            for ledger in by_bookie[bookie]
            if _answer(ledger, answer) is PresenceAnswer.SILENT
        )
    return {i: {bookie: _answer(i, answer_of[bookie]) for bookie in bookies} for i, bookies in asked.items()}


def _ask(
    bookie: str, address: Address | Forbidden | None, ledgers: list[int], timeout_s: float, tls: ssl.SSLContext | None
) -> _LedgerCodes:
    if not isinstance(address, tuple):
        return _LedgerCodes({}, f"bookie {bookie} is not registered" if address is None else str(address))
    codes: dict[int, int] = {}
    try:
        with Calls(bookie, address, timeout_s, tls) as calls:
            codes.update(calls.codes(ledgers))  # responses before an error count
    except TrueupError as error:
        return _LedgerCodes(codes, str(error))
    return _LedgerCodes(codes)


def _answer(ledger: int, answer: _LedgerCodes) -> PresenceAnswer:
    code = answer.codes.get(ledger)
    return PresenceAnswer.SILENT if code is None else _ANSWERS.get(code, PresenceAnswer.SILENT)


def _reason(ledger: int, answer: _LedgerCodes) -> str:
    code = answer.codes.get(ledger)
    return answer.problem if code is None else f"it responded with {named(code)}"
