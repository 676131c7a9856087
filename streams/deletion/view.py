"""The query of deletion as a view that a standby can run. Apart from `query`, which every Python worker imports."""

from collections.abc import Callable

from pyspark.sql import SparkSession

from trueup.state.settings.spark import SparkSettings
from trueup.streams.deletion import query
from trueup.streams.journal.journal import Journal
from trueup.streams.runtime.warm import View


def view(spark: Callable[[], SparkSession], journal: Journal, settings: SparkSettings) -> View:
    """The query of deletion."""
    return View(
        "deletion",
        query.FORM,
        query.TOPICS,
        lambda sink, checkpoint: query.start(spark(), journal, settings, sink, checkpoint),
    )
