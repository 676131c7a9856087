"""Memory and open files of the application by kind of process."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import psutil

from bench.common.rows import Row, less
from tests.e2e.trueup import words

KINDS = {"pyspark-shell": "Spark's JVM", "kafka.Kafka": "embedded journal", "pyspark.daemon": "Python workers"}
"""Kinds by a word of the command line."""
DRIVER = "driver"
"""Processes with none of these words."""
FLAT = 0.9
"""Minimum ratio of the first third to the last third."""


class Size(NamedTuple):
    """Memory (PSS, in MB) by kind of process, and the number of open files of all."""

    megabytes: dict[str, float]
    files: int

    @property
    def total(self) -> float:
        """Memory of all processes, in MB."""
        return sum(self.megabytes.values())

    def __str__(self) -> str:
        parts = ", ".join(f"{kind} {megabytes:,.0f}" for kind, megabytes in self.megabytes.items())
        return f"{self.total:,.0f} MB ({parts}), {self.files} open files"


def size_of(processes: Iterable[psutil.Process]) -> Size:
    """The size of these processes. A process that ends meanwhile counts as 0."""
    megabytes, files = dict.fromkeys((DRIVER, *KINDS.values()), 0.0), 0
    for process in processes:
        try:
            megabytes[kind_of(words(process))] += process.memory_full_info().pss / 1e6
            files += process.num_fds()
        except psutil.NoSuchProcess:
            continue
    return Size(megabytes, files)


def kind_of(command: Sequence[str]) -> str:
    """The kind of a process with this command line."""
    return next((kind for word, kind in KINDS.items() if word in command), DRIVER)


def rows(sizes: Sequence[Size]) -> list[Row]:
    """The last third of the sizes beside the first third."""
    third = max(1, len(sizes) // 3)

    def row(what: str, unit: str, value: Callable[[Size], float], target: float = 0.0) -> Row:
        early, late = (list(map(value, part)) for part in (sizes[:third], sizes[-third:]))
        return less(what, unit, early, late, target)

    title = "Memory of the application and Spark, last third of second half (peer: first)"
    total, files = (
        row(title, "MB", lambda size: size.total, FLAT),
        row("  open files", "", lambda size: size.files, FLAT),
    )
    return [total, *(row(f"  {kind}", "MB", partial(_part, kind)) for kind in sizes[0].megabytes), files]


def _part(kind: str, size: Size) -> float:
    return size.megabytes[kind]
