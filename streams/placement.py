"""The placement stream: ledgers, marks and topologies from the journal into the view, one packed row a bucket out.

Topics are not ordered against each other, so a bucket keeps the topology in its state and holds every row that
arrives against it. A topology is copied to every bucket. The operator is a thin adapter over `state.view.Bucket`.
"""

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from state.ledgers import EMPTY, Ledgers, concat
from state.observations import LedgerState
from state.topology import Topology
from state.view import CELLS, FINDING, MARK, NO_MARKS, Answer, Bucket, Rows
from streams.codec import schema_text, topology_bytes, topology_from
from streams.journal import Journal

ANSWER = "bucket int, epoch bigint, full boolean, ledgers bigint, findings binary, marks binary"
"""One row for each bucket that has something to say: `state.view.Answer` with its arrays as bytes."""
LEDGER, MARKED, TOPOLOGY = 0, 1, 2
_LENGTHS = struct.Struct(f"<{len(CELLS)}I")
_COLUMNS = ("ledger", "mzxid", "ctime_ms", "seen_ms", "version", "fragments", "ensemble", "quorum", "state", "hollow")


class SparkStore:
    """A bucket's store in Spark state: the log as a list, all cells in one value (an access costs, bytes do not)."""

    def __init__(self, log: Any, cells: Any) -> None:
        self._log, self._value = log, cells
        raw = cells.get()
        self._cells = _unpack(raw[0]) if raw else {}
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
            parts = [self._cells.get(cell, b"") for cell in CELLS]
            self._value.update((_LENGTHS.pack(*map(len, parts)) + b"".join(parts),))


def _unpack(raw: bytes) -> dict[str, bytes]:
    at, cells = _LENGTHS.size, {}
    for cell, length in zip(CELLS, _LENGTHS.unpack_from(raw), strict=True):
        cells[cell] = raw[at : at + length]
        at += length
    return cells


# All buckets of a task get the same topology.
_topology = lru_cache(8)(topology_from)
_topology_bytes = lru_cache(8)(topology_bytes)


class Placement(StatefulProcessor):
    """Keeps one bucket for each key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self._log = handle.getListState("log", "block binary")
        self._cells = handle.getValueState("cells", "content binary")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # type: ignore[override]  # noqa: N802, N803, ARG002
        """Fold the rows of one batch into the bucket."""
        store = SparkStore(self._log, self._cells)
        bucket = Bucket(store, _topology_bytes, _topology)
        answer = bucket.step(*split(rows))
        store.flush()
        if answer is not None:
            yield _row(int(key[0]), answer)

    def close(self) -> None:
        """Nothing to let go."""


def _row(bucket: int, answer: Answer) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "bucket": [bucket],
            "epoch": [answer.epoch],
            "full": [answer.full],
            "ledgers": [answer.ledgers],
            "findings": [answer.findings.tobytes()],
            "marks": [answer.marks.tobytes()],
        }
    )


def split(frames: Iterator[pd.DataFrame]) -> tuple[Ledgers, Rows, Topology | None]:
    """Ledgers, marks and the newest topology in the rows of one bucket."""
    ledgers, marks, topology = [EMPTY], [NO_MARKS], None
    for frame in frames:
        kind = frame["kind"].to_numpy()
        ledgers.append(pack(frame[kind == LEDGER]))
        marks.append(pack_marks(frame[kind == MARKED]))
        found = [_topology(bytes(raw)) for raw in frame.loc[kind == TOPOLOGY, "topology"]]
        topology = max([*found, *([topology] if topology else [])], key=lambda t: t.epoch, default=None)
    return concat(ledgers), np.concatenate(marks), topology


def pack(frame: pd.DataFrame) -> Ledgers:
    """Rows with members joined by line feeds into columns."""
    if not len(frame):
        return EMPTY
    joined = pa.array(frame["members"].to_numpy(object), pa.string())
    lists = pc.split_pattern(joined, "\n")
    coded = lists.flatten().dictionary_encode()
    codes = coded.indices.to_numpy().astype(np.uint32)
    values = {name: frame[name].to_numpy(np.int64) for name in _COLUMNS}
    # A ledger without fragments has one empty name after the split; its member is not a member.
    real = np.repeat(values["fragments"] * values["ensemble"] > 0, pc.list_value_length(lists).to_numpy())
    return Ledgers(
        **{name: column.astype(getattr(EMPTY, name).dtype) for name, column in values.items()},
        members=codes[real],
        names=tuple(coded.dictionary.to_pylist()),
    )


def pack_marks(frame: pd.DataFrame) -> Rows:
    """Rows of marks into columns."""
    out = np.zeros(len(frame), MARK)
    for name, column in (("ledger", "ledger"), ("zxid", "mzxid"), ("ctime_ms", "ctime_ms"), ("version", "version"),
                         ("locked", "state")):  # fmt: skip
        out[name] = frame[column].to_numpy(np.int64) if len(frame) else 0
    return out


def answer_of(row: dict[str, Any]) -> tuple[int, Answer]:
    """Bucket and answer in one row of the stream."""
    findings, marks = np.frombuffer(row["findings"], FINDING), np.frombuffer(row["marks"], MARK)
    return row["bucket"], Answer(row["epoch"], row["full"], row["ledgers"], findings, marks)


def answers(spark: SparkSession, journal: Journal, buckets: int, max_records: int) -> DataFrame:
    """The stream of `ANSWER` rows over the topics of a journal."""
    ledgers, marks, topologies = (_read(spark, journal, what, max_records) for what in ("ledgers", "marks", "topology"))
    return fold(ledgers, marks, topologies, buckets)


def fold(ledgers: DataFrame, marks: DataFrame, topologies: DataFrame, buckets: int) -> DataFrame:
    """The stream of `ANSWER` rows over three streams of Avro bodies in a column ``value``."""
    keyed = F.pmod(F.xxhash64("ledger"), F.lit(buckets)).cast("int").alias("bucket")
    copied = topologies.select(
        F.explode(F.sequence(F.lit(0), F.lit(buckets - 1))).alias("bucket"),
        F.lit(TOPOLOGY).alias("kind"),
        F.col("value").alias("topology"),
    )
    return (
        _ledgers(ledgers)
        .select(keyed, "*")
        .unionByName(_marks(marks).select(keyed, "*"), allowMissingColumns=True)
        .unionByName(copied, allowMissingColumns=True)
        .groupBy("bucket")
        .transformWithStateInPandas(Placement(), ANSWER, "Update", "None")
    )


def _read(spark: SparkSession, journal: Journal, what: str, max_records: int) -> DataFrame:
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", journal.bootstrap)
    for key, value in journal.settings.options.items():
        reader = reader.option(f"kafka.{key}", value)
    return (
        reader.option("subscribe", journal.topic(what))
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", max_records)
        .load()
        .where("value is not null")
    )


def _ledgers(source: DataFrame) -> DataFrame:
    seen = source.select(from_avro("value", schema_text("ledgers")).alias("e"))
    hollow = (F.col("e.state") == int(LedgerState.CLOSED)) & (
        F.col("e.last_entry") < F.try_element_at("e.fragments", F.lit(-1))["first_entry"]
    )
    return seen.select(
        F.lit(LEDGER).alias("kind"),
        *(f"e.{name}" for name in ("ledger", "mzxid", "ctime_ms", "seen_ms", "version", "ensemble", "quorum", "state")),
        F.size("e.fragments").alias("fragments"),
        F.coalesce(hollow, F.lit(False)).cast("int").alias("hollow"),
        F.array_join(F.flatten("e.fragments.bookies"), "\n").alias("members"),
    )


def _marks(source: DataFrame) -> DataFrame:
    seen = source.select(from_avro("value", schema_text("marks")).alias("e"))
    return seen.select(
        F.lit(MARKED).alias("kind"),
        "e.ledger",
        F.col("e.zxid").alias("mzxid"),
        "e.ctime_ms",
        "e.version",
        (F.col("e.locked_by") != "").cast("int").alias("state"),
    )
