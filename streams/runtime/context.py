"""What the application gives to each stream that it makes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from trueup.state.settings.settings import Settings
from trueup.streams.config.live import Live
from trueup.streams.journal.history import History
from trueup.streams.journal.journal import Journal
from trueup.streams.runtime.metrics import Metrics
from trueup.streams.runtime.stream import Stream
from trueup.streams.runtime.supervisor import Supervisor


@dataclass(frozen=True, slots=True)
class Context:
    """The parts that streams share. ``clock``: ms since the epoch; ``data``: the folder of the application;
    ``streams``: those made so far, by name."""

    settings: Settings
    data: Path
    live: Live
    journal: Journal
    metrics: Metrics
    supervisor: Supervisor
    history: History
    clock: Callable[[], int]
    streams: dict[str, Stream] = field(default_factory=dict)

    @property
    def checkpoints(self) -> str:
        """Where checkpoints go."""
        return self.settings.spark.checkpoint or f"file://{self.data / 'checkpoints'}"

    def checkpoint(self, query: str, form: int) -> str:
        """The checkpoint of a query with state in buckets. It belongs to one journal, one division into buckets and
        one form of the state: another of these starts anew."""
        chosen = self.settings.spark
        division = f"b{chosen.buckets}-p{chosen.partitions}-f{form}"
        return f"{self.checkpoints}/{query}-{self.journal.identity()}-{division}"
