"""The micro-batches of one streaming query without Spark: its checkpoint, and what a crash leaves of a batch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.memory_store import MemoryStore
from tests.simulation.faults import Faults
from tests.simulation.journal import ProcessJournal


@dataclass
class Checkpoint:
    """Spark's durable state: bucket stores, consumed offsets, and the end offsets of the started batch."""

    stores: list[MemoryStore]
    offsets: dict[str, int]
    begun: dict[str, int] | None = None

    @property
    def progress(self) -> Any:
        """The progress report of the last batch."""
        return {"sources": [{"endOffset": {what: {"0": offset} for what, offset in self.offsets.items()}}]}


class Frame:
    """The rows of one batch in the form that `Reconciler.batch` accepts."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows

    def toArrow(self) -> "Frame":  # noqa: N802
        return self

    def to_pylist(self) -> list[dict[str, Any]]:
        return self._rows


class Batch(NamedTuple):
    """The records of one batch. ``fold``: folds them into a bucket, and returns its row if it has one; ``done``: called
    before the batch is committed."""

    fold: Callable[[int, MemoryStore], Mapping[str, Any] | None]
    done: Callable[[], None]


class MicroBatches:
    """The batches of one process. ``sink``: gets the rows of each batch and its number."""

    def __init__(
        self, kept: Checkpoint, journal: ProcessJournal, faults: Faults, sink: Callable[[Any, int], object]
    ) -> None:
        self.kept, self._journal, self._faults, self._sink = kept, journal, faults, sink

    def run(self, read: Callable[[Mapping[str, Sequence[int]]], Batch]) -> bool:
        """Run a batch if there are records. An unfinished batch runs again over the same records. ``read``: reads the
        records at these offsets of each topic. Returns whether a batch ran."""
        kept = self.kept
        begun = kept.begun = kept.begun or self._ends()
        if runs := begun != kept.offsets:
            batch = read({what: range(kept.offsets[what], end) for what, end in begun.items()})
            rows, stores = [], list(kept.stores)
            for number, store in enumerate(kept.stores):
                self._faults.seam()
                stores[number] = MemoryStore(store.log, dict(store.cells))
                row = batch.fold(number, stores[number])
                rows += [{"bucket": number, **row}] if row is not None else []
            self._faults.seam()
            self._sink(Frame(rows), 0)
            self._faults.seam()
            batch.done()
            kept.stores, kept.offsets = stores, begun
        kept.begun = None
        return runs

    def _ends(self) -> dict[str, int]:
        """End offsets of the next batch: the end of each topic, or an offset before it."""
        ends = {what: self._journal.ends(what)[0] for what in self.kept.offsets}
        for what, end in ends.items():
            if self._faults.happens(self._faults.partial):
                ends[what] = self._faults.rng.randint(self.kept.offsets[what], end)
        return ends
