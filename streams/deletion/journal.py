"""Decodes the journal's records for the deletion view: ledgers with their owners, and nodes that reference them."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import fastavro
import numpy as np

from trueup.state.deletion.owned_ledgers import NO_LEDGERS, OWNED, Table, nodes_of
from trueup.state.deletion.owners import Claim, OwnerStatus, Pointers, claim_of
from trueup.streams.deletion.topics import OWNERS
from trueup.streams.journal.codec import decode
from trueup.streams.journal.decode import Bodies, fragment_members

_CUSTOM = fastavro.parse_schema({"type": "map", "values": "bytes"})


def owned_rows(bodies: Sequence[bytes]) -> Table:
    """Bodies of ledger.avsc as rows of `state.deletion.owned_ledgers.OWNED`, in their order. Raises `BadBytes`."""
    if not len(bodies):
        return NO_LEDGERS
    read = Bodies(bodies, "ledgers")
    ledger, mzxid, version, ctime_ms, seen_ms, state, ensemble, _quorum, _ack, last_entry, length = (
        read.longs(read.all) for _ in range(11)
    )
    fragment_members(read, read.counts(read.all), ensemble)
    codes, maps = read.maps(read.all)
    claims = [_claim(encoded) for encoded in maps]
    names: dict[str, int] = {"": 0}
    table = np.array([
        (claim.component, names.setdefault(claim.owner, len(names)), names.setdefault(claim.name, len(names)))
        for claim in claims
    ], np.uint32)  # fmt: skip
    rows = np.zeros(len(bodies), OWNED)
    columns = {
        "ledger": ledger, "mzxid": mzxid, "version": version, "ctime_ms": ctime_ms, "seen_ms": seen_ms,
        "state": state, "last_entry": last_entry, "length": length,
        "component": table[codes, 0], "owner": table[codes, 1], "name": table[codes, 2],
    }  # fmt: skip
    for name, column in columns.items():
        rows[name] = column
    return Table(rows, tuple(names))


def _claim(encoded: bytes) -> Claim:
    custom: Any = fastavro.schemaless_reader(io.BytesIO(encoded), _CUSTOM, None)
    return claim_of(custom)


def pointers_of(record: Mapping[str, Any]) -> Pointers:
    """A record of the topic ``owners``."""
    lists = {name: tuple(record[name]) for name in ("ledgers", "dropped")}
    return Pointers(**{**record, **lists, "status": OwnerStatus(record["status"])})


def node_rows(bodies: Sequence[bytes]) -> Table:
    """These bodies of owner.avsc as rows of `state.deletion.owned_ledgers.NODE`, in their order. Raises `BadBytes`."""
    return nodes_of(pointers_of(decode(OWNERS, body)) for body in bodies)
