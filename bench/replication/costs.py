"""What the choice of a path assumes that copying costs, and what it costs as measured now."""

from collections.abc import Mapping
from statistics import mean, median
from typing import NamedTuple

from bench.common.rows import Row, less
from bench.replication.clusters import Load
from bench.replication.contenders import Runs
from trueup.state.replication.anomalies import BATCH_US, BYTE_US, RECORD_US


class Costs(NamedTuple):
    """Microseconds of CPU, of the copier and of both brokers: see `trueup.state.replication.anomalies.BATCH_US`."""

    batch: float
    record: float
    byte: float


def rows(runs: Mapping[Load, Runs]) -> list[Row]:
    """What is assumed beside what was measured; nothing where records of one size alone were copied."""
    totals = {load: {path: median(run.total_us for run in found[path]) for path in ("batches", "records")}
              for load, found in runs.items()}  # fmt: skip
    now = costs({(load.size, load.batch): (each["batches"], each["records"]) for load, each in totals.items()})
    if now is None:
        return []
    named = zip(("BATCH_US", "RECORD_US", "BYTE_US"), (BATCH_US, RECORD_US, BYTE_US), now, strict=True)
    return [
        less(f"Costs that choose the path: {name}; peer: as the code has it", "us", [assumed], [measured])
        for name, assumed, measured in named
    ]


def costs(totals: Mapping[tuple[int, int], tuple[float, float]]) -> Costs | None:
    """The costs, from microseconds a record of batches and of records for each (bytes of a record, records in a batch);
    None for less than two sizes of both.

    A record in a batch of ``n`` costs a share of the batch, 1/n of it, and what any record costs on that path. So two
    batch sizes give what a batch costs, and what is left is what a record costs more when it is copied by itself.
    """
    found: dict[int, tuple[float, float]] = {}
    for size in {size for size, _ in totals}:
        counts = sorted(count for each, count in totals if each == size)
        small, large = counts[0], counts[-1]
        if small == large:
            continue
        batch = (totals[size, small][0] - totals[size, large][0]) / (1 / small - 1 / large)
        found[size] = batch, totals[size, large][1] - (totals[size, large][0] - batch / large)
    if len(found) < 2:
        return None
    (small, (_, less_us)), (large, (_, more_us)) = min(found.items()), max(found.items())
    byte = (more_us - less_us) / (large - small)
    return Costs(mean(batch for batch, _ in found.values()), less_us - byte * small, byte)
