"""The Spark query of placement: folds ledgers and topologies from the journal into the view, and returns one packed row
per bucket.

Topics are not ordered relative to each other, so a bucket keeps the topology in its state and checks every later row
against it. A topology is copied to every bucket. `state.placement.view.Bucket` implements a bucket.
"""

from collections.abc import Iterator
from functools import lru_cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.streaming import StreamingQuery

from trueup.state.bookkeeper.ledgers import EMPTY, Ledgers, concat
from trueup.state.bookkeeper.topology import Topology
from trueup.state.common.block_store import Store
from trueup.state.placement.policy.fencing import FormerMembers
from trueup.state.placement.view import CELLS, FINDING, Bucket, BucketAnswer
from trueup.streams.bookkeeper import topics
from trueup.streams.bookkeeper.codec import ledger_rows, topology_bytes, topology_from
from trueup.streams.journal.decode import check_keys, good
from trueup.streams.journal.signing import Signer
from trueup.streams.runtime.spark.processor import Buckets
from trueup.streams.runtime.spark.queries import Sink, started
from trueup.streams.runtime.spark.spark_store import records_of

if TYPE_CHECKING:  # every Python worker imports this module
    import pandas as pd

    from trueup.state.settings.spark import SparkSettings as SparkSettings
    from trueup.streams.journal.journal import Journal

ANSWER = "bucket int, epoch bigint, full boolean, ledgers bigint, findings binary, former binary"
"""One row for each bucket with an answer: `state.placement.view.BucketAnswer` with its arrays as bytes."""
TOPICS = (topics.LEDGERS, topics.TOPOLOGY)
LEDGER, TOPOLOGY = range(2)
FORM = 8  # version of the state in the checkpoint


# All buckets of a task get the same topology.
_topology = lru_cache(8)(topology_from)
_topology_bytes = lru_cache(8)(topology_bytes)


class AnswerRow(TypedDict):
    """A row of `ANSWER`."""

    bucket: NotRequired[int]
    """Added by the operator."""
    epoch: int
    full: bool
    ledgers: int
    findings: bytes
    former: bytes


def folded(store: Store, frames: Iterator["pd.DataFrame"], signer: Signer | None = None) -> AnswerRow | None:
    """Fold the rows of one batch into a bucket; returns its row of `ANSWER`. ``signer``: verifies topologies."""
    answer = Bucket(store, _topology_bytes, _topology).step(*split(frames, signer))
    return row_of(answer) if answer is not None else None


def row_of(answer: BucketAnswer) -> AnswerRow:
    """An answer as a row of the stream."""
    return {
        "epoch": answer.epoch,
        "full": answer.full,
        "ledgers": answer.ledgers,
        "findings": answer.findings.tobytes(),
        "former": answer.former.to_bytes(),
    }


def split(frames: Iterator["pd.DataFrame"], signer: Signer | None = None) -> tuple[Ledgers, Topology | None]:
    """Ledgers and the newest topology in the rows of one bucket. What is not readable is skipped:
    `streams.journal.journal.Journal.inspect` reports it."""
    ledgers, topology = [EMPTY], None
    for frame in frames:
        kind, key, value = (frame[name].to_numpy() for name in ("kind", "key", "value"))
        rows: Any = np.flatnonzero(kind == LEDGER)
        ledgers += good(rows, partial(_ledgers, key, value))
        topologies = [
            *chain(*good(value[kind == TOPOLOGY], lambda some: [_topology(bytes(raw), signer) for raw in some]))
        ]
        topology = max([*topologies, *([topology] if topology else [])], key=lambda t: t.epoch, default=None)
    return concat(ledgers), topology


def _ledgers(keys: Any, bodies: Any, rows: Any) -> Ledgers:
    """The ledgers of these rows of two columns. Raises `BadBytes`, also for a record with the key of another ledger."""
    ledgers = ledger_rows(bodies[rows])
    check_keys(keys[rows], ledgers.ledger, "a record of the topic ledgers")
    return ledgers


def answer_of(row: AnswerRow) -> tuple[int, BucketAnswer]:
    """Bucket and answer of one row of the stream."""
    findings = np.frombuffer(row["findings"], FINDING)
    former = FormerMembers.from_bytes(row["former"], "an answer of the placement stream")
    return row["bucket"], BucketAnswer(row["epoch"], row["full"], row["ledgers"], findings, former)


def start(
    spark: SparkSession, journal: "Journal", settings: "SparkSettings", sink: Sink, checkpoint: str
) -> StreamingQuery:
    """Start the query of `ANSWER` rows into ``sink``, which is called with a batch and its number."""
    rows = answers(spark, journal, settings.buckets, settings.max_records)
    return started(rows, "placement", f"{settings.trigger_ms} milliseconds", sink, checkpoint)


def answers(spark: SparkSession, journal: "Journal", buckets: int, max_records: int) -> DataFrame:
    """The `ANSWER` rows over the topics of a journal."""
    return fold(records_of(spark, journal, TOPICS, max_records), buckets, journal.signer(topics.TOPOLOGY))


def fold(records: DataFrame, buckets: int, signer: Signer | None = None) -> DataFrame:
    """The `ANSWER` rows over records: kind int, key binary, value binary (an Avro body). ``signer``: verifies
    topologies; one that anybody wrote, with a higher epoch, would stay in the state."""
    own = F.array(F.pmod(F.xxhash64("key"), F.lit(buckets)).cast("int"))
    every = F.array(*map(F.lit, range(buckets)))
    return (
        records.select(
            F.explode(F.when(F.col("kind") == TOPOLOGY, every).otherwise(own)).alias("bucket"), "kind", "key", "value"
        )
        .groupBy("bucket")
        .transformWithStateInPandas(Buckets(__name__, CELLS, signer), ANSWER, "Update", "None")
    )
