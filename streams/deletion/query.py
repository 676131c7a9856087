"""The Spark query of deletion: folds ledgers and their references from the journal into the view, and returns one
packed row per bucket.

A ledger's key does not contain its owner, so records are first decoded and sorted by owner, and those of one bucket are
packed into one blob. Ledgers that are deleted or cannot be read, and directories of owners, are sent to every bucket. A
topology, which every run publishes, makes all buckets report their whole state.
"""

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NotRequired, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.common.block_store import Store
from trueup.state.deletion.owned_ledgers import NO_LEDGERS, NO_NODES, OwnedLedgerTable, joined, packed
from trueup.state.deletion.owners import Component, home, is_directory
from trueup.state.deletion.verdicts import LEAK
from trueup.state.deletion.view import CELLS, Leaks, OwnerBucket
from trueup.streams.bookkeeper.codec import topology_from
from trueup.streams.deletion.codec import node_rows, owned_rows
from trueup.streams.journal.decode import check_keys, good
from trueup.streams.journal.signing import Signer
from trueup.streams.runtime.spark.processor import Buckets
from trueup.streams.runtime.spark.queries import Sink, started
from trueup.streams.runtime.spark.spark_store import records_of

if TYPE_CHECKING:  # every Python worker imports this module, and those that sort do not need pandas
    import pandas as pd

    from trueup.state.settings.spark import SparkSettings as SparkSettings
    from trueup.streams.journal.journal import Journal

TOPICS = ("ledgers", "owners", "topology")
LEDGER, OWNER, TOPOLOGY = range(3)
ANSWER = "bucket int, epoch bigint, ledgers bigint, leaks binary, names string, elsewhere binary"
"""One row for each bucket with an answer; ``epoch`` -1: without a request."""
ROUTED = "bucket int, kind int, value binary"
_ROUTED = pa.schema([("bucket", pa.int32()), ("kind", pa.int32()), ("value", pa.binary())])
_EPOCH = struct.Struct("<q")


def route(buckets: int, signer: Signer | None = None) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Sort records, kind int, key binary and value binary, into ``buckets``: rows of `ROUTED`. What is not readable is
    skipped: `streams.journal.journal.Journal.inspect` reports it. ``signer``: verifies topologies."""

    def sorted_(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [
                *(row for part in good(_of(batch, LEDGER), _ledgers) for row in _parted(part, LEDGER, buckets)),
                *(row for part in good(_of(batch, OWNER), _nodes) for row in _parted(part, OWNER, buckets)),
                *_asked([body for _, body in _of(batch, TOPOLOGY)], buckets, signer),
            ]
            if rows:
                yield pa.RecordBatch.from_arrays(list(zip(*rows, strict=True)), schema=_ROUTED)

    return sorted_


Pair = tuple[bytes, bytes]
"""Key and body of a record."""


def _of(batch: pa.RecordBatch, kind: int) -> list[Pair]:
    mask = pc.equal(batch["kind"], kind)
    keys, bodies = (batch[name].filter(mask) for name in ("key", "value"))
    return list(zip(keys.fill_null(b"").to_pylist(), bodies.to_pylist(), strict=True))


def _ledgers(records: Sequence[Pair]) -> OwnedLedgerTable:
    """The ledgers of these records. Raises `BadBytes`, also for a record with the key of another ledger."""
    keys, bodies = zip(*records, strict=True)
    ledgers = owned_rows(bodies)
    check_keys(keys, ledgers.rows["ledger"], "a record of the topic ledgers")
    return ledgers


def _nodes(records: Sequence[Pair]) -> OwnedLedgerTable:
    """The nodes of these records. Raises `BadBytes`, also for a record with the key of another node."""
    keys, bodies = zip(*records, strict=True)
    return node_rows(bodies, keys)


def _asked(bodies: Sequence[bytes], buckets: int, signer: Signer | None) -> list[tuple[int, int, bytes]]:
    epochs = [*chain(*good(bodies, lambda some: [topology_from(body, signer).epoch for body in some]))]
    return [(bucket, TOPOLOGY, _EPOCH.pack(max(epochs))) for bucket in range(buckets) if epochs]


def _parted(table: OwnedLedgerTable, kind: int, buckets: int) -> Iterator[tuple[int, int, bytes]]:
    if not len(table):
        return
    rows = table.rows
    by_name = np.fromiter((zlib.crc32(home(n).encode()) % buckets for n in table.names), np.int64, len(table.names))
    bucket, every = by_name[rows["owner"]], np.zeros(len(rows), bool)
    if kind == OWNER:
        every = np.fromiter(map(is_directory, table.names), bool, len(table.names))[rows["owner"]]
    if kind == LEDGER:
        bucket = np.where(rows["component"] == Component.UNKNOWN, rows["ledger"] % buckets, bucket)
        every = np.isin(rows["state"], (LedgerState.GONE, LedgerState.UNREADABLE))
    for number in range(buckets):
        mine = every | (bucket == number)
        if mine.any():
            listed = table.listed[np.repeat(mine, rows["count"])] if kind == OWNER else table.listed
            # Without the names of other buckets, of which there are many more.
            yield number, kind, packed(OwnedLedgerTable(rows[mine], table.names, listed)).to_bytes()


class LeaksRow(TypedDict):
    """A row of `ANSWER`."""

    bucket: NotRequired[int]
    """Added by the operator."""
    epoch: int
    ledgers: int
    leaks: bytes
    names: str
    elsewhere: bytes


def folded(store: Store, frames: Iterator["pd.DataFrame"]) -> LeaksRow | None:
    """Fold the rows of one batch into a bucket; returns its row of `ANSWER`."""
    ledgers, nodes, epoch = split(frames)
    leaks = OwnerBucket(store).step(ledgers, nodes, epoch >= 0)
    return row_of(leaks, epoch) if leaks is not None else None


def row_of(leaks: Leaks, epoch: int) -> LeaksRow:
    """The findings of a bucket as a row. ``epoch``: the number of the newest request, -1 if there is none."""
    return {
        "epoch": epoch,
        "ledgers": leaks.ledgers,
        "leaks": leaks.rows.tobytes(),
        "names": "\n".join(leaks.names),
        "elsewhere": leaks.elsewhere.tobytes(),
    }


def split(frames: Iterator["pd.DataFrame"]) -> tuple[OwnedLedgerTable, OwnedLedgerTable, int]:
    """Ledgers, nodes and the epoch of the newest request (-1: none) in the rows of one bucket."""
    ledgers, nodes, epoch = [NO_LEDGERS], [NO_NODES], -1
    for frame in frames:
        for kind, value in zip(frame["kind"], frame["value"], strict=True):
            if kind == TOPOLOGY:
                epoch = max(epoch, *_EPOCH.unpack(value))
            else:
                (ledgers if kind == LEDGER else nodes).append(OwnedLedgerTable.from_bytes(bytes(value)))
    return joined(ledgers), joined(nodes), epoch


def leaks_of(row: LeaksRow) -> tuple[int, int, Leaks]:
    """Bucket, epoch and contents of one row of the stream."""
    rows, elsewhere = np.frombuffer(row["leaks"], LEAK), np.frombuffer(row["elsewhere"], np.int64)
    return row["bucket"], row["epoch"], Leaks(rows, tuple(row["names"].split("\n")), row["ledgers"], elsewhere)


def start(
    spark: SparkSession, journal: "Journal", settings: "SparkSettings", sink: Sink, checkpoint: str
) -> StreamingQuery:
    """Start the query of `ANSWER` rows into ``sink``, which is called with a batch and its number."""
    records = records_of(spark, journal, TOPICS, settings.max_records)
    rows = answers(records, settings.buckets, journal.signer("topology"))
    return started(rows, "deletion", f"{max(EVERY_MS, settings.trigger_ms)} milliseconds", sink, checkpoint)


FORM = 5  # version of the state in the checkpoint
EVERY_MS = 1_000  # deletions are not urgent, and each batch reads a whole bucket


def answers(records: DataFrame, buckets: int, signer: Signer | None = None) -> DataFrame:
    """The `ANSWER` rows over records: kind int, key binary, value binary (an Avro body). ``signer``: verifies
    topologies."""
    return (
        records.select("kind", "key", "value")
        .mapInArrow(route(buckets, signer), ROUTED)
        .groupBy("bucket")
        .transformWithStateInPandas(Buckets(__name__, CELLS), ANSWER, "Update", "None")
    )
