"""Processes of links do not load what only other streams need: each would take 70 MB more."""

import subprocess
import sys

WORKER = """
import pyspark.worker
import trueup.streams.replication.links.worker
import trueup.connectors.kafka.replication.connector
"""
RECORDS = """
import pyspark.worker
import trueup.streams.replication.links.worker
import trueup.connectors.kafka.replication.medium
import trueup.connectors.replication.pump
"""
ROCKETMQ = """
import numpy as np
import trueup.streams.replication.links.worker
import trueup.connectors.rocketmq.replication.ends
import trueup.connectors.rocketmq.replication.records.native
from trueup.connectors.byte_rows import column_of, joined, ranges
joined([column_of([b"a", None]), ranges(b"bc", np.array([0, 1]), np.array([1, 2]))])
"""
JOURNAL = """
from trueup.streams.journal.encode import encode_all
from trueup.streams.journal.topic import JournalTopic, declare
declare(JournalTopic("any", {"type": "record", "name": "any", "fields": [{"name": "text", "type": "string"}]}))
encode_all("any", [{"text": str(number)} for number in range(100)])
"""


def loaded(program: str) -> set[str]:
    """The packages that a program loads."""
    words = [sys.executable, "-c", f"{program}\nimport sys; print(*sys.modules)"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_a_worker_that_copies_batches_between_kafka_clusters_loads_no_arrow_and_no_pandas() -> None:
    assert loaded(WORKER) & {"pyarrow", "pandas"} == set()


def test_a_worker_that_copies_records_between_them_loads_no_pandas() -> None:
    assert "pandas" not in loaded(RECORDS)


def test_a_worker_that_copies_from_or_to_rocketmq_loads_no_pandas() -> None:
    assert "pandas" not in loaded(ROCKETMQ)


def test_records_of_the_journal_are_encoded_without_pandas() -> None:
    assert "pandas" not in loaded(JOURNAL)
