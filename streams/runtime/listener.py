"""Spark's progress reports, for the metrics and the status."""

import json
from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming import StreamingQueryListener
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
)


class Listener(StreamingQueryListener):
    """Hands each progress report on as a dictionary and keeps the last of each query.

    ``alive`` gets the name of a query with every sign of life, and ``heard`` keeps their times in ms: a query without
    input gives one every 10 s, one that hangs gives none. ``idle`` gets the name of a query that had nothing to do: a
    batch that has to be repeated comes before that. Runs in py4j's callback thread: what it calls must be short.
    ``guard`` calls what it is given, and sees to what that raises: Spark only logs it.
    """

    def __init__(
        self,
        seen: Callable[[dict[str, Any]], None],
        alive: Callable[[str], None] = lambda _: None,
        clock: Callable[[], int] = lambda: 0,
        guard: Callable[[Callable[[], None]], None] = lambda act: act(),
        idle: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._seen, self._told, self._clock, self._guard, self._idle = seen, alive, clock, guard, idle
        self._names: dict[str, str] = {}
        self.last: dict[str, dict[str, Any]] = {}
        self.heard: dict[str, int] = {}

    def _alive(self, query: str) -> None:
        self.heard[query] = self._clock()
        self._told(query)

    def _progressed(self, progress: dict[str, Any]) -> None:
        self.last[progress["name"]] = progress
        self._alive(progress["name"])
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
