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
    """The entries of a ledger up to its next fragment, all stored on the same bookies."""

    first_entry: int
    bookies: list[str]
    """The ensemble, in ring order."""


class LedgerRecord(TypedDict):
    """One ledger. The key of its record is the id, 8 bytes big-endian. Passwords are never copied."""

    ledger: int
    mzxid: int
    """The version of the record: the zxid of the last change of the znode. In state GONE, the zxid of the deletion."""
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
    """What is wrong with the metadata, and at which byte; empty unless the state is UNREADABLE."""


class Sighting(NamedTuple):
    """The state of one bookie in ZooKeeper now, and its rack."""

    bookie: str
    rack: str | None
    """The rack in the rack map; None if the bookie is not in the map."""
    registered: str  # "writable", "readonly" or "" (no registration)
    cookie: bool
    registered_zxid: int
    groups: tuple[str, ...] | None = None
    """The groups of the rack map that list it; None if the rack map has no groups or has not answered."""


class Observation(NamedTuple):
    """One record to write to the journal."""

    topic: str
    key: bytes
    value: LedgerRecord | None
    """The record; None removes the key from a compacted topic."""
