"""Decodes the journal's records for the deletion view: ledgers with their owners, and nodes that reference them."""

import io
from collections.abc import Sequence
from typing import Any

import fastavro
import numpy as np

from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.deletion.owned_ledgers import LISTED, NO_LEDGERS, NO_NODES, NODE, OWNED, OwnedLedgerTable, Rows
from trueup.state.deletion.owners import Claim, OwnerStatus, claim_of
from trueup.streams.bookkeeper.codec import CUSTOM, fragment_members
from trueup.streams.journal.codec import WRONG
from trueup.streams.journal.decode import BodyReader


def owned_rows(bodies: Sequence[bytes]) -> OwnedLedgerTable:
    """Bodies of ledger.avsc as rows of `state.deletion.owned_ledgers.OWNED`, in their order. Raises `BadBytes`."""
    if not len(bodies):
        return NO_LEDGERS
    read = BodyReader(bodies, "ledgers")
    ledger, mzxid, version, ctime_ms, seen_ms, state, ensemble, _quorum, _ack, last_entry, length = (
        read.longs(read.all) for _ in range(11)
    )
    fragment_members(read, read.counts(read.all), ensemble)
    codes, maps = read.maps(read.all)
    decoded = [_claim(encoded) for encoded in maps]
    read.check(
        np.array([claim is not None for claim in decoded])[codes], read.all, "custom metadata with names in UTF-8"
    )
    claims = [claim for claim in decoded if claim is not None]
    names: dict[str, int] = {"": 0}
    table = np.array(
        [
            (claim.component, names.setdefault(claim.owner, len(names)), names.setdefault(claim.name, len(names)))
            for claim in claims
        ],
        np.uint32,
    )
    rows = np.zeros(len(bodies), OWNED)
    columns = {
        "ledger": ledger,
        "mzxid": mzxid,
        "version": version,
        "ctime_ms": ctime_ms,
        "seen_ms": seen_ms,
        "state": state,
        "last_entry": last_entry,
        "length": length,
        "component": table[codes, 0],
        "owner": table[codes, 1],
        "name": table[codes, 2],
    }
    read.check((ledger >= 0) & np.isin(state, list(LedgerState)), read.all, "the id and the state of a ledger")
    for name, column in columns.items():
        rows[name] = read.fit(column, OWNED[name])
    return OwnedLedgerTable(rows, tuple(names))


def _claim(encoded: bytes) -> Claim | None:
    try:
        custom: Any = fastavro.schemaless_reader(io.BytesIO(encoded), CUSTOM, None)
    except WRONG:
        return None
    return claim_of(custom)


def node_rows(bodies: Sequence[bytes], keys: Sequence[bytes] | None = None) -> OwnedLedgerTable:
    """Bodies of owner.avsc as rows of `state.deletion.owned_ledgers.NODE`, in their order. ``keys``: the paths that the
    bodies must contain. Raises `BadBytes`."""
    if not len(bodies):
        return NO_NODES
    read = BodyReader(bodies, "owners")
    texts = {name: read.blobs(read.all) for name in ("path", "owner", "name")}
    if keys is not None:
        read.match(*texts["path"], keys)
    rows = np.zeros(len(bodies), NODE)
    for name in ("status", "version", "mzxid", "seen_ms"):
        rows[name] = read.fit(read.longs(read.all), NODE[name])
    read.check(np.isin(rows["status"], list(OwnerStatus)), read.all, "a status of a node")
    counts, ledgers = read.lists(read.all)
    dropped = read.lists(read.all)
    rows["count"], rows["elsewhere"] = counts, read.longs(read.all) != 0  # true is the byte of the long -1
    texts["error"] = read.blobs(read.all)
    names: dict[str, int] = {}
    for name, blobs in texts.items():
        codes, distinct = read.texts(*blobs)
        lines = (text.replace("\n", " ") for text in distinct)
        rows[name] = np.fromiter((names.setdefault(line, len(names)) for line in lines), np.uint32)[codes]
    listed = np.zeros(len(ledgers), LISTED)
    listed["ledger"], listed["dropped"] = ledgers, _among(counts, ledgers, *dropped)
    return OwnedLedgerTable(rows, tuple(names), listed)


def _among(counts: Rows, items: Rows, others: Rows, members: Rows) -> Rows:
    """Whether each item of lists is in the other list of its row. ``counts``, ``others``: the lengths of
    these lists by row."""
    if not len(members):
        return np.zeros(len(items), bool)
    distinct, codes = np.unique(np.concatenate([items, members]), return_inverse=True)
    row = np.concatenate([np.repeat(np.arange(len(counts)), counts), np.repeat(np.arange(len(others)), others)])
    pairs = row * len(distinct) + codes
    return np.isin(pairs[: len(items)], pairs[len(items) :])
