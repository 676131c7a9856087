"""The parts of the application that each stream receives."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from trueup.connectors.zookeeper.fence import Fence
from trueup.state.settings.settings import Settings
from trueup.streams.config.live import Live
from trueup.streams.journal.history import History
from trueup.streams.journal.journal import Journal
from trueup.streams.runtime.metrics import Metrics
from trueup.streams.runtime.spark import checkpoints
from trueup.streams.runtime.supervisor import Supervisor
from trueup.streams.runtime.warm import View, Warm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from trueup.streams.runtime.spark.queries import Sink


class Resource(Protocol):
    """A cluster that several streams observe or change. The application starts it before the streams watch, and ends
    and closes it when it ends and closes them."""

    def start(self) -> None:
        """Start to observe."""

    def end(self) -> None:
        """Stop observing, and therefore acting, so that queries finish their batch."""

    def close(self) -> None:
        """Release what the last batch needed."""


R = TypeVar("R", bound=Resource)


@dataclass(frozen=True, slots=True)
class Context:
    """The parts that streams share."""

    settings: Settings
    data: Path
    """The data directory of the application."""
    live: Live
    journal: Journal
    metrics: Metrics
    supervisor: Supervisor
    history: History
    clock: Callable[[], int]
    """Returns the time in ms since the epoch."""
    resources: dict[Callable[..., object], Resource] = field(default_factory=dict)
    """The resources made so far, by the function that made them."""
    begun: set[str] = field(default_factory=set)
    """The names of the queries that were started."""
    epoch: int = 0
    """The epoch of this leader; 0 without section ha."""
    silent_ms: int = 0
    """The time of the last sign of the previous leader, in ms since the epoch; 0 if that leader ended in order, and
    without section ha."""
    fence: Callable[[], Fence] | None = None
    """Makes the fence of changes in ZooKeeper; None without section ha."""
    warm: Warm | None = None
    """The queries that this instance ran as a standby; None without section ha."""
    session: Callable[[], "SparkSession | None"] = lambda: None
    """Returns the session that runs queries, which is also used to look at checkpoints that are not on this machine;
    None if there is no session."""

    def resource(self, make: Callable[["Context"], R]) -> R:
        """What ``make`` returns. It is called once, and again only if it raised an error."""
        if make not in self.resources:
            self.resources[make] = make(self)
        return cast("R", self.resources[make])

    @property
    def checkpoints(self) -> str:
        """The directory of checkpoints. Each leader starts without state: another one may have led since the
        checkpoint, or still write to it."""
        return self._of_epoch(checkpoints.folder_of(self.settings.spark, self.data))

    @property
    def rounds(self) -> str:
        """The directory of checkpoints of queries without state. They hold the number of a batch, only the driver reads
        them, and they may be lost."""
        return self._of_epoch(checkpoints.own_folder(self.data))

    def _of_epoch(self, folder: str) -> str:
        return f"{folder}/epoch-{self.epoch}" if self.epoch else folder

    def query(self, view: View, sink: "Sink", anew: Callable[[], None], again: Callable[[], None]) -> None:
        """Keep a query with state running. If this instance ran it as a standby, it goes on: ``again`` lets all of its
        buckets answer. ``anew`` is called before a query that ran before starts without state."""

        def begun() -> "StreamingQuery":
            return view.start(sink, self.checkpoint(view.name, view.form, view.topics, anew))

        if self.warm is not None and self.warm.take(view.name, sink, begun):
            self.begun.add(view.name)
            again()
        else:
            self.supervisor.query(view.name, begun)

    def checkpoint(self, query: str, form: int, topics: Sequence[str], anew: Callable[[], None]) -> str:
        """The checkpoint of a query with state in buckets. It depends on the topics that the query reads, the division
        into buckets and the form of the state: if one of them changes, the query starts without state. ``anew`` is
        called before a query that ran before starts without state. Raises `Retry`, `Stop`."""
        spark = self.settings.spark
        division = f"b{spark.buckets}-p{spark.partitions}-f{form}"
        location = f"{self.checkpoints}/{query}-{self.journal.identity(topics)}-{division}"
        session = self.session()
        if not checkpoints.readable(location, query, self.supervisor.repeated(query), session) or (
            query in self.begun and not checkpoints.started(location, session)
        ):
            anew()
        self.begun.add(query)
        return location
