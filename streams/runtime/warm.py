"""Queries with state that a standby runs, so that a leader does not read the journal from its beginning.

They fold the journal into the state of buckets, and drop the answers. A leader takes them over with their state: it
publishes another topology, and every bucket answers that, as after a restart from a checkpoint.
"""

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from trueup.streams.runtime.spark import checkpoints
from trueup.streams.runtime.supervisor import Supervisor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

    from trueup.streams.runtime.spark.queries import Sink


class View(NamedTuple):
    """A query with state."""

    name: str
    form: int
    """The version of the form of the state."""
    topics: tuple[str, ...]
    """The topics of the journal that the query reads."""
    start: "Callable[[Sink, str], StreamingQuery]"
    """Starts the query. The arguments are the sink and the location of the checkpoint."""


class Warm:
    """The queries of a standby, each with a private checkpoint below ``folder``. ``identity``: a function that returns
    a name for the present ids of the given topics. Safe to use from several threads."""

    def __init__(self, supervisor: Supervisor, folder: str, identity: Callable[[Sequence[str]], str]) -> None:
        self._supervisor, self._folder, self._identity = supervisor, folder, identity
        self._views: dict[str, _WarmQuery] = {}

    def keep(self, view: View) -> None:
        """Keep a query running, from the beginning of the journal on."""
        location = f"{self._folder}/{view.name}"

        def begun(sink: "Sink") -> "StreamingQuery":
            checkpoints.readable(location, view.name, self._supervisor.repeated(view.name))
            return view.start(sink, location)

        held = self._views[view.name] = _WarmQuery(begun, lambda: self._identity(view.topics))
        self._supervisor.query(view.name, held.start)

    def take(self, view: str, sink: "Sink", again: Callable[[], "StreamingQuery"]) -> bool:
        """Pass the answers of a query to ``sink`` from the next batch on; if it fails, or read other topics of the same
        name, ``again`` starts another one. False if no such query is kept. Raises `Retry`."""
        held = self._views.get(view)
        if held is not None:
            held.take(sink, again)
        return held is not None


class _WarmQuery:
    """One query and the sink of its answers. Until it is taken, answers are computed and dropped."""

    def __init__(self, begun: "Callable[[Sink], StreamingQuery]", identity: Callable[[], str]) -> None:
        self._begun, self._identity, self._lock = begun, identity, threading.Lock()
        self._sink: Sink = dropped
        self._again: Callable[[], StreamingQuery] | None = None
        self._query: StreamingQuery | None = None
        self._read = ""

    def start(self) -> "StreamingQuery":
        with self._lock:
            if self._again is None:
                self._read = self._identity()
                self._query = self._begun(self._batch)
                return self._query
        return self._again()

    def take(self, sink: "Sink", again: Callable[[], "StreamingQuery"]) -> None:
        with self._lock:
            same = self._query is None or self._read == self._identity()
            self._again = again
            if same:
                self._sink = sink
            elif self._query is not None:
                self._query.stop()  # the supervisor starts another one

    def _batch(self, rows: "DataFrame", number: int) -> None:
        self._sink(rows, number)


def dropped(rows: "DataFrame", _number: int) -> None:
    """A sink that computes the answers of a batch, and with them its state, and drops them."""
    rows.write.format("noop").mode("overwrite").save()
