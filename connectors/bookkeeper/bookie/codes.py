"""What bookies answer: the codes of both encodings under one name, and our errors for those that are refusals.

Sources: BookkeeperProtocol.proto (StatusCode), BookieProtocol.java.
"""

from enum import IntEnum

from trueup.state.common.errors import Refused, Retry, Stop, TrueupError


class Code(IntEnum):
    """An answer, as the third encoding numbers it."""

    OK = 0
    NO_LEDGER = 402
    NO_ENTRY = 403
    BAD_REQUEST = 404
    IO = 501
    UNAUTHORIZED = 502
    BAD_VERSION = 503
    FENCED = 504
    READ_ONLY = 505
    TOO_MANY = 506
    UNKNOWN_STATE = 507


IN_V2 = {
    0: Code.OK, 1: Code.NO_LEDGER, 2: Code.NO_ENTRY, 100: Code.BAD_REQUEST, 101: Code.IO, 102: Code.UNAUTHORIZED,
    103: Code.BAD_VERSION, 104: Code.FENCED, 105: Code.READ_ONLY, 106: Code.TOO_MANY, 107: Code.UNKNOWN_STATE,
}  # fmt: skip
"""Codes by their number in the second encoding."""


class NoSuchLedger(Refused):
    """The bookies that ought to have it hold nothing of this ledger."""


class NoSuchEntry(Refused):
    """A bookie that holds the ledger does not hold this entry of it."""


def named(code: int) -> str:
    """A code for people."""
    return Code(code).name if code in Code._value2member_map_ else f"code {code}"


def failure(code: int, what: str, bookie: str) -> TrueupError:
    """Our error for an answer that is not `Code.OK`. ``what`` was asked for, such as "entry 3 of ledger 7"."""
    expected, found = f"{what} from bookie {bookie}", named(code)
    match code:
        case Code.NO_LEDGER:
            return NoSuchLedger(expected, found, "read the ledger's metadata again")
        case Code.NO_ENTRY:
            return NoSuchEntry(expected, found, "ask another bookie of the write set")
        case Code.UNAUTHORIZED:
            return Stop(expected, found, "let this host in without a login, or read through the brokers")
        case Code.BAD_REQUEST | Code.BAD_VERSION:
            return Stop(expected, found, "see the bookie's log; its version is not one that is known to work")
        case _:
            return Retry(expected, found, "ask again later, or another bookie; see its log")
