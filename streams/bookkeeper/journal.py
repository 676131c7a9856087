"""The records of observations of BookKeeper: ledgers and marks in columns, and the topology of the bookies."""

from collections.abc import Sequence
from typing import Any

from trueup.state.bookkeeper.ledgers import Ledgers
from trueup.state.bookkeeper.topology import Bookie, Status, Topology
from trueup.state.placement.view import Rows
from trueup.streams.bookkeeper.topics import TOPOLOGY, TOPOLOGY_KEY
from trueup.streams.journal.codec import checked, encode
from trueup.streams.journal.decode import ledger_rows, mark_rows
from trueup.streams.journal.signing import Signer


def ledgers_of(bodies: Sequence[bytes]) -> tuple[Any, Ledgers]:
    """The ids of ledgers, and their records. Raises `BadBytes`."""
    rows = ledger_rows(bodies)
    return rows.ledger, rows


def marks_of(bodies: Sequence[bytes]) -> tuple[Any, Rows]:
    """The ids of marked ledgers, and their marks. Raises `BadBytes`."""
    rows = mark_rows(bodies)
    return rows["ledger"], rows


def topology_record(topology: Topology) -> dict[str, Any]:
    """A topology as a record of its topic."""
    names = ("epoch", "at_ms", "min_racks", "enforce_min_racks", "held", "released", "collect_ms", "restarted")
    keys = ("id", "rack", "status", "since_ms", "registered_zxid", "begun_zxid", "was")
    record: dict[str, Any] = {name: getattr(topology, name) for name in names}
    bookies = [{k: getattr(b, k) for k in keys} for b in topology.bookies]
    return {**record, "bookies": bookies, "held_bookies": [b.id for b in topology.bookies if b.held]}


def topology_bytes(topology: Topology) -> bytes:
    """The Avro body of a topology."""
    return encode(TOPOLOGY, topology_record(topology))


def topology_of(record: dict[str, Any]) -> Topology:
    """The inverse of `topology_record`."""
    rest, held = dict(record), {*record["held_bookies"]}
    del rest["held_bookies"]
    bookies = (
        Bookie(**{**b, "status": Status(b["status"]), "was": Status(b["was"])}, held=b["id"] in held)
        for b in record["bookies"]
    )
    return Topology(**{**rest, "bookies": tuple(bookies)})


def topology_from(body: bytes, signer: Signer | None = None) -> Topology:
    """The inverse of `topology_bytes`. ``signer``: verifies the signature behind it, which is needed then. Raises
    `BadBytes`."""
    where = "a record of the topic topology"
    if signer is not None:
        signer.verify(TOPOLOGY_KEY, body, b"", where)
    found: Topology = checked(TOPOLOGY, TOPOLOGY_KEY, body, where)
    return found
