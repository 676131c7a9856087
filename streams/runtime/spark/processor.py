"""The stateful operator of the placement and deletion streams: one bucket per key.

Before the first batch, Spark starts a process that reads the declaration of the state. The first batch waits until that
process has imported this module, so other modules are imported with the first rows.
"""

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

if TYPE_CHECKING:
    import pandas as pd


class Buckets(StatefulProcessor):
    """The operator. ``module`` defines ``folded(store, frames, *more)``, which folds the rows of a batch into a bucket
    and returns an output row without the number of the bucket, or None. ``names``: names of a bucket's cells."""

    def __init__(self, module: str, names: tuple[str, ...], *more: object) -> None:
        self._module, self._names, self._more = module, names, more

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self._log = handle.getListState("log", "block binary")
        self._cells = handle.getValueState("cells", "content binary")

    def handleInputRows(self, key: Any, rows: Iterator["pd.DataFrame"], timerValues: Any) -> Iterator["pd.DataFrame"]:  # type: ignore[override]  # noqa: N802, N803, ARG002
        """Fold the rows of one batch into the bucket."""
        import pandas as pd

        from trueup.streams.runtime.spark.spark_store import SparkStore

        store = SparkStore(self._log, self._cells, self._names)
        row = import_module(self._module).folded(store, rows, *self._more)
        store.flush()
        if row is not None:
            yield pd.DataFrame([{"bucket": int(key[0]), **row}])

    def close(self) -> None:
        """Nothing to release."""
