"""What connectors say: full-value records with the version of what they saw, never deltas.

Each record is a plain dictionary in the shape of its Avro schema (`streams/schemas/*.avsc`), so that a
connector builds it once and the journal writes it as it is. Newest version wins, whatever the order of arrival.
"""

from enum import IntEnum
from typing import NamedTuple, TypedDict


class LedgerState(IntEnum):
    """State of a ledger as its metadata says (DataFormats.proto, LedgerMetadataFormat.State), and two of ours."""

    GONE = 0
    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3
    UNREADABLE = 9


class FragmentRecord(TypedDict):
    """Entries from ``first_entry`` up to the next fragment live on ``bookies``, in ring order."""

    first_entry: int
    bookies: list[str]


class LedgerRecord(TypedDict):
    """One ledger. Key: the id, 8 bytes big-endian. Version: ``mzxid``.

    A deleted ledger is a record with state GONE and the zxid of the deletion. An unreadable one has state
    UNREADABLE and ``error`` says which byte. Passwords never get here.
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


class MarkRecord(TypedDict):
    """The under-replication mark of one ledger and the lock on it. Key: the id, 8 bytes big-endian.

    Version: ``zxid`` of the newest change to either. ``version`` is the mark's znode version (-1: no mark),
    ``locked_by`` the worker that holds the lock ("": nobody).
    """

    ledger: int
    zxid: int
    seen_ms: int
    version: int
    ctime_ms: int
    replicas: list[str]
    locked_by: str


class Sighting(NamedTuple):
    """What ZooKeeper says of one bookie now, and where the rack map puts it (None: not in the map)."""

    bookie: str
    rack: str | None
    registered: str  # "writable", "readonly" or "" (no registration)
    cookie: bool
    registered_zxid: int


class Observation(NamedTuple):
    """One record on its way to the journal. ``value`` None removes the key from a compacted topic."""

    topic: str
    key: bytes
    value: LedgerRecord | MarkRecord | None
