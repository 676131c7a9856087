"""The records of observations of BookKeeper in the journal: ledgers in columns, and the topology of bookies.

Ledgers are encoded directly from the columns in which the connector reads them.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import fastavro
import numpy as np

from trueup.state.bookkeeper.isolation import isolation_of
from trueup.state.bookkeeper.ledgers import EMPTY, Column, Ledgers, entries_of
from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.bookkeeper.topology import Bookie, NamespaceGroups, PlacementPolicy, Status, Topology
from trueup.state.common.arrays import Array, spans
from trueup.streams.bookkeeper.topics import LEDGERS, TOPOLOGY, TOPOLOGY_KEY
from trueup.streams.journal.codec import WRONG, checked, encode
from trueup.streams.journal.decode import BodyReader
from trueup.streams.journal.encode import BodyWriter, blob, long, text
from trueup.streams.journal.signing import Signer
from trueup.streams.journal.topic import Record

if TYPE_CHECKING:
    from trueup.connectors.bookkeeper.metadata.bulk import LedgerBatch  # tasks decode records and need no connector


CUSTOM = fastavro.parse_schema({"type": "map", "values": "bytes"})
_REST = fastavro.parse_schema(
    {
        "type": "record",
        "name": "Rest",
        "fields": [{"name": "custom", "type": CUSTOM}, {"name": "error", "type": "string"}],
    }
)
"""The last fields of ledger.avsc."""


def ledger_bodies(batch: "LedgerBatch") -> list[bytes]:
    """`streams.journal.codec.encode` of each record of a batch, in the order of the fields of ledger.avsc."""
    rows, scalars, fragments = batch.ledgers, batch.scalars, batch.ledgers.fragments.astype(np.int64)
    size = rows.ensemble.astype(np.int64)
    block = fragments * (size + 3)  # first entry, number of members, members, end
    some = fragments > 0
    writer = BodyWriter(len(scalars) + some + block + 3)  # number of fragments, block; end, custom metadata, error
    for place, column in enumerate(scalars):
        writer.longs(writer.starts + place, column)
    at = writer.starts + len(scalars)
    writer.longs(at[some], fragments[some])
    owner = np.repeat(np.arange(len(rows)), fragments)
    fragment = np.arange(len(owner)) - np.repeat(np.cumsum(fragments) - fragments, fragments)
    begin = (at + some)[owner] + fragment * (size + 3)[owner]
    writer.longs(begin, batch.first_entry)
    writer.longs(begin + 1, size[owner])
    writer.blobs(spans(begin + 2, begin + 2 + size[owner]), rows.members, [text(name) for name in rows.names])
    writer.blobs(at + some + block + 1, *_customs(batch))
    bodies = writer.bytes()
    for row, record in batch.alone.items():
        bodies[row] = encode(LEDGERS, record)
    return bodies


def _customs(batch: "LedgerBatch") -> tuple[Array, list[bytes]]:
    """Custom metadata of each row as codes into a table of Avro maps."""
    codes, forms = batch.customs()
    return codes, [_map(custom) for custom in forms]


def _map(custom: Mapping[str, bytes]) -> bytes:
    pairs = [text(key) + blob(value) for key, value in custom.items()]
    return b"".join([long(len(pairs)), *pairs, long(0)]) if pairs else long(0)


def ledgers_of(bodies: Sequence[bytes]) -> tuple[Column, Ledgers]:
    """The ids of ledgers, and their records. Raises `BadBytes`."""
    rows = ledger_rows(bodies)
    return rows.ledger, rows


def ledger_rows(bodies: Sequence[bytes]) -> Ledgers:
    """Columns of bodies of ledger.avsc, in order. Raises `BadBytes`."""
    if not len(bodies):
        return EMPTY
    read = BodyReader(bodies, LEDGERS)
    ledger, mzxid, version, ctime_ms, seen_ms, state, ensemble, quorum, acks, last_entry, _length = (
        read.longs(read.all) for _ in range(11)
    )
    fragments = read.counts(read.all)
    first_entry, members, names = fragment_members(read, fragments, ensemble)
    customs, isolations = _isolations(read)
    columns = {
        "ledger": ledger,
        "mzxid": mzxid,
        "ctime_ms": ctime_ms,
        "seen_ms": seen_ms,
        "version": version,
        "fragments": fragments,
        "ensemble": ensemble,
        "quorum": quorum,
        "acks": np.clip(acks, 0, quorum),
        "isolation": customs,
        "state": state,
        "entries": entries_of((state == LedgerState.CLOSED) & (fragments > 0), first_entry, last_entry),
    }
    read.check((ledger >= 0) & np.isin(state, list(LedgerState)), read.all, "the id and the state of a ledger")
    typed = {name: read.fit(column, getattr(EMPTY, name).dtype) for name, column in columns.items()}
    return Ledgers(**typed, members=members, names=names, isolations=isolations)


def _isolations(read: BodyReader) -> tuple[Column, tuple[str, ...]]:
    """The isolation groups in the custom metadata of each row, as codes, and as text by code. Raises `BadBytes`."""
    codes, rests = read.rests()
    texts = [_isolation(encoded) for encoded in rests]
    read.check(np.array([text is not None for text in texts])[codes], read.all, "custom metadata with names in UTF-8")
    number: dict[str | None, int] = {}
    table = np.array([number.setdefault(text, len(number)) for text in texts], np.uint32)
    return table[codes], tuple(text or "" for text in number)


@lru_cache(maxsize=16_384)
def _isolation(encoded: bytes) -> str | None:
    try:
        rest: Any = fastavro.schemaless_reader(io.BytesIO(encoded), _REST, None)
    except WRONG:
        return None
    return isolation_of(rest["custom"])


def fragment_members(read: BodyReader, fragments: Array, ensemble: Array) -> tuple[Array, Array, tuple[str, ...]]:
    """The first entry of each row's last fragment; the members of all rows as codes; their names. Raises
    `BadBytes`."""
    read.check(
        (ensemble >= 0) & (ensemble <= read.left // np.maximum(fragments, 1)), read.all, "members that are there"
    )
    first_entry = np.zeros(len(fragments), np.int64)
    ends = np.cumsum(fragments * ensemble)
    place = ends - fragments * ensemble
    starts, sizes = np.zeros((2, int(ends[-1])), np.int64)
    left, rows = fragments.copy(), np.flatnonzero(fragments)
    while len(rows):
        first_entry[rows] = read.longs(rows)
        read.check(read.counts(rows) == ensemble[rows], rows, "as many members as the ensemble size")
        some = rows[ensemble[rows] > 0]
        for member in range(int(ensemble[some].max(initial=0))):
            having = some[ensemble[some] > member]
            starts[place[having]], sizes[place[having]] = read.blobs(having)
            place[having] += 1
        read.ends(some)
        left[rows] -= 1
        read.ends(rows[left[rows] == 0])
        rows = rows[left[rows] > 0]
    return first_entry, *read.texts(starts, sizes)


def topology_record(topology: Topology) -> dict[str, object]:
    """A topology as a record of its topic."""
    names = ("epoch", "at_ms", "min_racks", "enforce_min_racks", "held", "released", "collect_ms", "restarted")
    keys = ("id", "rack", "groups", "status", "since_ms", "registered_zxid", "begun_zxid", "was")
    record: dict[str, object] = {name: getattr(topology, name) for name in names}
    bookies = [{k: getattr(b, k) for k in keys} for b in topology.bookies]
    for bookie in bookies:  # a tuple would name the branch of a union
        bookie["groups"] = bookie["groups"] if bookie["groups"] is None else [*bookie["groups"]]
    record["policy"] = asdict(topology.policy)
    record["namespaces"] = None if topology.namespaces is None else [each._asdict() for each in topology.namespaces]
    return {**record, "bookies": bookies, "held_bookies": [b.id for b in topology.bookies if b.held]}


def topology_bytes(topology: Topology) -> bytes:
    """The Avro body of a topology."""
    return encode(TOPOLOGY, topology_record(topology))


def topology_of(record: Record) -> Topology:
    """The inverse of `topology_record`."""
    rest, held = dict(record), {*record["held_bookies"]}
    del rest["held_bookies"]
    bookies = tuple(_bookie(bookie, held) for bookie in record["bookies"])
    parts = {"policy": _policy(record["policy"]), "namespaces": _namespaces(record["namespaces"]), "bookies": bookies}
    return Topology(**{**rest, **parts})


def _namespaces(records: Sequence[Record] | None) -> tuple[NamespaceGroups, ...] | None:
    if records is None:
        return None
    lists = ("primary", "secondary")
    return tuple(NamespaceGroups(**{**each, **{key: tuple(each[key]) for key in lists}}) for each in records)


def _policy(record: Record) -> PlacementPolicy:
    lists = {key: tuple(record[key]) for key in ("regions", "groups", "secondary_groups", "drain")}
    return PlacementPolicy(**{**record, **lists})


def _bookie(record: Record, held: set[str]) -> Bookie:
    groups = record["groups"]
    typed = {"status": Status(record["status"]), "was": Status(record["was"])}
    return Bookie(**{**record, **typed, "groups": None if groups is None else tuple(groups)}, held=record["id"] in held)


def topology_from(body: bytes, signer: Signer | None = None) -> Topology:
    """The inverse of `topology_bytes`. ``signer``: verifies the signature behind it, which is needed then. Raises
    `BadBytes`."""
    where = "a record of the topic topology"
    if signer is not None:
        signer.verify(TOPOLOGY_KEY, body, b"", where)
    topology: Topology = checked(TOPOLOGY, TOPOLOGY_KEY, body, where)
    return topology
