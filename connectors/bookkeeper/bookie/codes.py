"""Response codes of bookies: both encodings under one name, and errors for those that are refusals.

Sources: BookkeeperProtocol.proto (StatusCode), BookieProtocol.java.
"""

from enum import IntEnum

from trueup.state.common.errors import Refused, Retry, Stop, TrueupError


class Code(IntEnum):
    """A response code, by its number in the third encoding."""

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
    0: Code.OK,
    1: Code.NO_LEDGER,
    2: Code.NO_ENTRY,
    100: Code.BAD_REQUEST,
    101: Code.IO,
    102: Code.UNAUTHORIZED,
    103: Code.BAD_VERSION,
    104: Code.FENCED,
    105: Code.READ_ONLY,
    106: Code.TOO_MANY,
    107: Code.UNKNOWN_STATE,
}
"""Codes by their number in the second encoding."""


class NoSuchLedger(Refused):
    """The bookies that should hold this ledger do not have it."""


class NoSuchEntry(Refused):
    """A bookie that holds the ledger does not have this entry."""


def named(code: int) -> str:
    """The name of a code."""
    return Code(code).name if code in Code._value2member_map_ else f"code {code}"


def failure(code: int, what: str, bookie: str) -> TrueupError:
    """The error for a response other than `Code.OK`. ``what`` was requested, such as "entry 3 of ledger 7"."""
    expected, found = f"{what} from bookie {bookie}", named(code)
    match code:
        case Code.NO_LEDGER:
            return NoSuchLedger(expected, found, "read the ledger's metadata again")
        case Code.NO_ENTRY:
            return NoSuchEntry(expected, found, "read from another bookie of the write set")
        case Code.UNAUTHORIZED:
            todo = (
                "the bookie requires a login (bookieAuthProviderFactoryClass); Trueup supports none but a certificate"
            )
            return Stop(expected, found, f"{todo} (cluster.bookies.tls.certificate)")
        case Code.BAD_REQUEST | Code.BAD_VERSION:
            return Stop(expected, found, "check the bookie's log; its version may be unsupported")
        case _:
            return Retry(expected, found, "retry later or use another bookie; check its log")
