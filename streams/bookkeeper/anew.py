"""Beginning anew with a cluster whose ZooKeeper is not the one that was observed: the journal forgets what was observed
of it and decided on that, and keeps what concerns other clusters and operators' settings."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trueup.connectors.sandbox.servers.kafka import Kafka
from trueup.state.settings.settings import Settings
from trueup.streams.journal.journal import Journal
from trueup.streams.runtime.lock import alone

FORGOTTEN = ("reached", "ledgers", "marks", "topology", "findings", "repairs", "owners", "markers", "strays")
"""Topics of what ZooKeeper said, and of what was decided on it."""
QUERIES = ("placement", "deletion")


def begin_anew(settings: Settings) -> list[str]:
    """Delete these topics and make them again, empty; their names. Raises `BadSettings` while an application uses the
    data directory, `Retry` and `Stop` where the journal does not do it: what is left then is forgotten by a repetition.
    """
    data = Path(settings.data_dir).absolute()
    data.mkdir(parents=True, exist_ok=True)
    with alone(data), opened(settings, data) as journal:
        forgotten = journal.forget(FORGOTTEN)
        if not settings.spark.checkpoint:
            for query in QUERIES:
                for checkpoint in (data / "checkpoints").glob(f"{query}-*"):
                    shutil.rmtree(checkpoint)
    return forgotten


@contextmanager
def opened(settings: Settings, data: Path) -> Iterator[Journal]:
    """The journal of an application that does not run."""
    chosen = settings.journal
    if chosen.bootstrap:
        yield Journal(chosen.bootstrap, chosen, settings.cluster.name)
        return
    broker = Kafka(data / "journal")
    broker.up()
    try:
        yield Journal(broker.bootstrap, chosen, settings.cluster.name)
    finally:
        broker.stop()
