"""The query of placement as a view that a standby can run. Apart from `query`, which every Python worker imports."""

from collections.abc import Callable

from pyspark.sql import SparkSession

from trueup.state.settings.spark import SparkSettings
from trueup.streams.journal.journal import Journal
from trueup.streams.placement import query
from trueup.streams.runtime.warm import View


def view(spark: Callable[[], SparkSession], journal: Journal, settings: SparkSettings) -> View:
    """The query of placement."""
    return View(
        "placement",
        query.FORM,
        query.TOPICS,
        lambda sink, checkpoint: query.start(spark(), journal, settings, sink, checkpoint),
    )
