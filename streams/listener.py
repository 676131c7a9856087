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
    """Hands each progress report on as a dictionary and keeps the last of each query. Runs in py4j's callback
    thread: what it calls must be short."""

    def __init__(self, seen: Callable[[dict[str, Any]], None]) -> None:
        self._seen = seen
        self.last: dict[str, dict[str, Any]] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """See `StreamingQueryListener`."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """See `StreamingQueryListener`."""
        progress = json.loads(event.progress.json)
        self.last[progress["name"]] = progress
        self._seen(progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """See `StreamingQueryListener`."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """See `StreamingQueryListener`."""
