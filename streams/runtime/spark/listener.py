"""Spark's progress reports, for the metrics and the status."""

import json
from collections.abc import Callable

from pyspark.sql.streaming import StreamingQueryListener
from pyspark.sql.streaming.listener import QueryIdleEvent, QueryProgressEvent, QueryStartedEvent, QueryTerminatedEvent

from trueup.streams.progress import QueryProgress


class Listener(StreamingQueryListener):
    """Forwards each progress report as a dictionary and keeps the last report of each query.

    ``alive`` receives the name of a query with every event, and ``last_event_ms`` holds the time of the last event of
    each query in ms: a query without input sends an event every 10 s, a query that hangs sends none. ``idle`` receives
    the name of a query without input; a failed batch is repeated before that. Runs in py4j's callback thread, so
    callbacks must be short. ``guard`` calls its argument and handles exceptions, which Spark would only log.
    """

    def __init__(
        self,
        seen: Callable[[QueryProgress], None],
        alive: Callable[[str], None] = lambda _: None,
        clock: Callable[[], int] = lambda: 0,
        guard: Callable[[Callable[[], None]], None] = lambda act: act(),
        idle: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._seen, self._on_alive, self._clock, self._guard, self._idle = seen, alive, clock, guard, idle
        self._names: dict[str, str] = {}
        self.last: dict[str, QueryProgress] = {}
        self.last_event_ms: dict[str, int] = {}

    def _alive(self, query: str) -> None:
        self.last_event_ms[query] = self._clock()
        self._on_alive(query)

    def _progressed(self, progress: QueryProgress) -> None:
        name = str(progress["name"])
        self.last[name] = progress
        self._alive(name)
        self._seen(progress)

    def _rested(self, query: str) -> None:
        self._alive(query)
        self._idle(query)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """See `StreamingQueryListener`."""
        self._names[str(event.id)] = event.name or ""
        self._guard(lambda: self._alive(event.name or ""))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """See `StreamingQueryListener`."""
        self._guard(lambda: self._progressed(json.loads(event.progress.json)))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """See `StreamingQueryListener`."""
        self._guard(lambda: self._rested(self._names.get(str(event.id), "")))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """See `StreamingQueryListener`."""
