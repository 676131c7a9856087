"""Common parts of stateful queries over the journal: its records as a stream, and a bucket's store in Spark state."""

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from trueup.connectors.kafka.client.security import java_of
from trueup.streams.journal.topic import topic_of

if TYPE_CHECKING:
    from trueup.streams.journal.journal import Journal


_ZSTD = pa.Codec("zstd", 1)
_LENGTH = struct.Struct("<I")
FETCH_WAIT_MS = 10
"""After its last record, Spark's reader queries the end offset on a connection on which a fetch is already waiting, and
a broker responds in order: Kafka's default of 500 ms would delay every micro-batch by that time."""


class SparkStore:
    """A bucket's store in Spark state: the log as a list, all cells in one value.

    Both accesses and bytes are expensive: Spark passes binary data to Python as escaped text. Blocks are therefore
    compressed, four to one: each is its length (uint32, little-endian) and a zstd frame.
    """

    def __init__(self, log: Any, value: Any, cells: Sequence[str]) -> None:
        self._log, self._value, self._names = log, value, cells
        self._lengths = struct.Struct(f"<{len(cells)}I")
        raw = value.get()
        self._cells = self._unpack(_larger(raw[0])) if raw else {}
        self._dirty = False

    def blocks(self) -> list[bytes]:
        """See `state.common.block_store.Store`."""
        return [_larger(block) for (block,) in self._log.get()]

    def append(self, block: bytes) -> None:
        """See `state.common.block_store.Store`."""
        self._log.appendValue((_smaller(block),))

    def rewrite(self, blocks: Sequence[bytes]) -> None:
        """See `state.common.block_store.Store`."""
        self._log.put([(_smaller(block),) for block in blocks]) if blocks else self._log.clear()

    def get(self, cell: str) -> bytes:
        """See `state.common.block_store.Store`."""
        return self._cells.get(cell, b"")

    def put(self, cell: str, content: bytes) -> None:
        """See `state.common.block_store.Store`."""
        self._cells[cell] = content
        self._dirty = True

    def flush(self) -> None:
        """Write the cells if any was changed."""
        if self._dirty:
            parts = [self._cells.get(cell, b"") for cell in self._names]
            self._value.update((_smaller(self._lengths.pack(*map(len, parts)) + b"".join(parts)),))

    def _unpack(self, raw: bytes) -> dict[str, bytes]:
        at, cells = self._lengths.size, {}
        for cell, length in zip(self._names, self._lengths.unpack_from(raw), strict=True):
            cells[cell] = raw[at : at + length]
            at += length
        return cells


def _smaller(raw: bytes) -> bytes:
    frame: bytes = _ZSTD.compress(raw, asbytes=True)
    return _LENGTH.pack(len(raw)) + frame


def _larger(block: bytes) -> bytes:
    raw: bytes = _ZSTD.decompress(block[_LENGTH.size :], _LENGTH.unpack_from(block)[0], asbytes=True)
    return raw


def records_of(spark: SparkSession, journal: "Journal", topics: Sequence[str], max_records: int) -> DataFrame:
    """The stream of records of these topics: kind int (the index of its topic), key binary, value binary."""
    names = [journal.topic(what) for what in topics]
    by_ledger = [name for what, name in zip(topics, names, strict=True) if topic_of(what).partitioned]
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", journal.bootstrap)
    for key, value in {**journal.settings.options, **java_of(journal.settings.security, "journal")}.items():
        reader = reader.option(f"kafka.{key}", value)
    if journal.transactional:
        reader = reader.option("kafka.isolation.level", "read_committed")
    records = (
        reader.option("subscribe", ",".join(names))
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", max_records)
        .option("kafka.fetch.max.wait.ms", FETCH_WAIT_MS)
        .load()
        .where("value is not null")
        .where((F.length("key") == 8) | ~F.col("topic").isin(by_ledger))
    )
    kind = F.array_position(F.array(*map(F.lit, names)), F.col("topic")) - 1
    return records.select(kind.cast("int").alias("kind"), "key", "value")
