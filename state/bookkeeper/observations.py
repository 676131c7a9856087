"""Records that connectors produce: full values with the version of the observed state, never deltas.

Each record is a plain dictionary in the shape of its Avro schema (`streams/*/schemas/*.avsc`): a connector builds it
once and the journal writes it unchanged. The newest version wins, whatever the order of arrival.
"""

from enum import IntEnum
from typing import NamedTuple, TypedDict


class LedgerState(IntEnum):
    """State of a ledger in its metadata (DataFormats.proto, LedgerMetadataFormat.State), and two states of Trueup."""

    GONE = 0
    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3
    UNREADABLE = 9


class FragmentRecord(TypedDict):
    """Entries from ``first_entry`` up to the next fragment are stored on ``bookies``, in ring order."""

    first_entry: int
    bookies: list[str]


class LedgerRecord(TypedDict):
    """One ledger. Key: the id, 8 bytes big-endian. Version: ``mzxid``.

    A deleted ledger is a record with state GONE and the zxid of the deletion. An unreadable ledger has state
    UNREADABLE, and ``error`` names the byte. Passwords are never copied.
    """

    ledger: int
    mzxid: int
    version: int
    ctime_ms: int
    seen_ms: int
    state: int
    ensemble: int
    quorum: int
    ack_quorum: int
    last_entry: int
    length: int
    fragments: list[FragmentRecord]
    custom: dict[str, bytes]
    error: str


class Sighting(NamedTuple):
    """The state of one bookie in ZooKeeper now, and its rack in the rack map (None: not in the map)."""

    bookie: str
    rack: str | None
    registered: str  # "writable", "readonly" or "" (no registration)
    cookie: bool
    registered_zxid: int


class Observation(NamedTuple):
    """One record to write to the journal. ``value`` None removes the key from a compacted topic."""

    topic: str
    key: bytes
    value: LedgerRecord | None
