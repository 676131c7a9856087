"""What the stateful queries over the journal share: its records as a stream, and a bucket's store in Spark state."""

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

if TYPE_CHECKING:
    from streams.journal import Journal


class SparkStore:
    """A bucket's store in Spark state: the log as a list, all cells in one value (an access costs, bytes do not)."""

    def __init__(self, log: Any, value: Any, cells: Sequence[str]) -> None:
        self._log, self._value, self._names = log, value, cells
        self._lengths = struct.Struct(f"<{len(cells)}I")
        raw = value.get()
        self._cells = self._unpack(raw[0]) if raw else {}
        self._dirty = False

    def blocks(self) -> list[bytes]:
        """See `state.view.Store`."""
        return [block for (block,) in self._log.get()]

    def append(self, block: bytes) -> None:
        """See `state.view.Store`."""
        self._log.appendValue((block,))

    def rewrite(self, blocks: Sequence[bytes]) -> None:
        """See `state.view.Store`."""
        self._log.put([(block,) for block in blocks]) if blocks else self._log.clear()

    def get(self, cell: str) -> bytes:
        """See `state.view.Store`."""
        return self._cells.get(cell, b"")

    def put(self, cell: str, content: bytes) -> None:
        """See `state.view.Store`."""
        self._cells[cell] = content
        self._dirty = True

    def flush(self) -> None:
        """Write the cells if any was put."""
        if self._dirty:
            parts = [self._cells.get(cell, b"") for cell in self._names]
            self._value.update((self._lengths.pack(*map(len, parts)) + b"".join(parts),))

    def _unpack(self, raw: bytes) -> dict[str, bytes]:
        at, cells = self._lengths.size, {}
        for cell, length in zip(self._names, self._lengths.unpack_from(raw), strict=True):
            cells[cell] = raw[at : at + length]
            at += length
        return cells


def records_of(spark: SparkSession, journal: "Journal", topics: Sequence[str], max_records: int) -> DataFrame:
    """The stream of records of these topics: kind int (the place of its topic), key binary, value binary."""
    names = [journal.topic(what) for what in topics]
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", journal.bootstrap)
    for key, value in journal.settings.options.items():
        reader = reader.option(f"kafka.{key}", value)
    records = (
        reader.option("subscribe", ",".join(names))
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", max_records)
        .load()
        .where("value is not null")
    )
    kind = F.array_position(F.array(*map(F.lit, names)), F.col("topic")) - 1
    return records.select(kind.cast("int").alias("kind"), "key", "value")
