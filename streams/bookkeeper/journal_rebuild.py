"""Resets the journal's state of a cluster whose ZooKeeper was replaced.

Observations of the old ZooKeeper and decisions based on them are deleted. The state of other clusters and operators'
settings remain.
"""

import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from trueup.connectors.kafka.journal.embedded import EmbeddedKafka
from trueup.state.settings.settings import Settings
from trueup.streams.journal.journal import Journal
from trueup.streams.runtime.process.lock import alone, make_private
from trueup.streams.runtime.process.patience import patiently


def rebuild(settings: Settings, topics: Sequence[str], queries: Sequence[str]) -> list[str]:
    """Delete these topics and create them again, empty, and delete the checkpoints of these queries. Returns the names
    of the topics. Raises `BadSettings` while an application uses the data directory, and `Retry` or `Stop` if the
    journal does not execute it; a repetition deletes the rest."""
    data = Path(settings.data_dir).absolute()
    with alone_with(settings) as journal:
        forgotten = journal.forget(topics)
        if not settings.spark.checkpoint:
            for query in queries:
                for checkpoint in (data / "checkpoints").glob(f"{query}-*"):
                    shutil.rmtree(checkpoint)
    return forgotten


@contextmanager
def alone_with(settings: Settings) -> Iterator[Journal]:
    """The journal of an application that is not running. Raises `BadSettings` while one uses the data directory."""
    data = Path(settings.data_dir).absolute()
    make_private(data)
    with alone(data), _opened(settings, data) as journal:
        yield journal


@contextmanager
def _opened(settings: Settings, data: Path) -> Iterator[Journal]:
    journal = settings.journal
    if journal.bootstrap:
        yield Journal(journal.bootstrap, journal, settings.cluster.name)
        return
    broker = EmbeddedKafka(data / "journal")
    broker.start()
    try:
        patiently("the embedded journal", broker.wait_ready, threading.Event())
        yield Journal(broker.bootstrap, replace(journal, security=broker.security), settings.cluster.name)
    finally:
        broker.stop()
