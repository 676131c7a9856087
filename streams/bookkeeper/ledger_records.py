"""Encodes ledgers as records of the journal, directly from their columns."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.connectors.bookkeeper.metadata.bulk import Batch, keys
from trueup.state.bookkeeper.ledgers import spans
from trueup.streams.bookkeeper.topics import LEDGERS
from trueup.streams.journal.codec import encode
from trueup.streams.journal.encode import Bodies, blob, long, text

Array = NDArray[Any]


def encoded(batch: Batch) -> tuple[str, list[bytes], list[bytes]]:
    """A batch in the form of `streams.journal.journal.Journal.send`: topic, keys, bodies."""
    return LEDGERS, keys(batch.ledgers.ledger), ledger_bodies(batch)


def ledger_bodies(batch: Batch) -> list[bytes]:
    """`streams.journal.codec.encode` of each record of a batch, in the order of the fields of ledger.avsc."""
    rows, fragments = batch.ledgers, batch.ledgers.fragments.astype(np.int64)
    size = rows.ensemble.astype(np.int64)
    block = fragments * (size + 3)  # first entry, number of members, members, end
    some = fragments > 0
    made = Bodies(len(_SCALARS) + some + block + 3)  # number of fragments, block; end, custom metadata, error
    for place, column in enumerate((
        rows.ledger, rows.mzxid, rows.version, rows.ctime_ms, rows.seen_ms, rows.state, rows.ensemble, rows.quorum,
        batch.ack, batch.last_entry, batch.length,
    )):  # fmt: skip
        made.longs(made.starts + place, column)
    at = made.starts + len(_SCALARS)
    made.longs(at[some], fragments[some])
    owner = np.repeat(np.arange(len(rows)), fragments)
    fragment = np.arange(len(owner)) - np.repeat(np.cumsum(fragments) - fragments, fragments)
    begin = (at + some)[owner] + fragment * (size + 3)[owner]
    made.longs(begin, batch.first_entry)
    made.longs(begin + 1, size[owner])
    made.blobs(spans(begin + 2, begin + 2 + size[owner]), rows.members, [text(name) for name in rows.names])
    made.blobs(at + some + block + 1, *_customs(batch))
    bodies = made.bytes()
    for row, record in batch.alone.items():
        bodies[row] = encode(LEDGERS, record)
    return bodies


_SCALARS = range(11)


def _customs(batch: Batch) -> tuple[Array, list[bytes]]:
    """Custom metadata of each row as codes into a table of Avro maps."""
    codes, forms = batch.customs()
    return codes, [_map(custom) for custom in forms]


def _map(custom: Mapping[str, bytes]) -> bytes:
    pairs = [text(key) + blob(value) for key, value in custom.items()]
    return b"".join([long(len(pairs)), *pairs, long(0)]) if pairs else long(0)
