"""The copy costs that the choice of a path assumes, compared with the measured costs."""

from collections.abc import Mapping
from statistics import mean, median
from typing import NamedTuple

from bench.common.rows import Row, less
from bench.replication.clusters import Load
from bench.replication.contenders import Runs
from trueup.state.replication.anomalies import BATCH_US, BYTE_US, RECORD_US

STORED = 0.6
"""Share of the bytes of a value that is stored: lz4 leaves three fifths of `clusters.values_of`."""


class Costs(NamedTuple):
    """Microseconds of CPU, of the copier and both brokers: see `trueup.state.replication.anomalies.BATCH_US`."""

    batch: float
    record: float
    byte: float


def rows(runs: Mapping[Load, Runs]) -> list[Row]:
    """Assumed costs compared with measured costs. Empty if the records of all loads have the same size."""
    totals = {
        load: {path: median(run.total_us for run in found[path]) for path in ("batches", "records")}
        for load, found in runs.items()
    }
    stored = {load: (round(load.size * STORED), load.batch) for load in totals}
    now = costs({stored[load]: (each["batches"], each["records"]) for load, each in totals.items()})
    if now is None:
        return []
    named = zip(("BATCH_US", "RECORD_US", "BYTE_US"), (BATCH_US, RECORD_US, BYTE_US), now, strict=True)
    return [
        less(f"Costs that choose the path: {name}; peer: as the code has it", "us", [assumed], [measured])
        for name, assumed, measured in named
    ]


def costs(totals: Mapping[tuple[int, int], tuple[float, float]]) -> Costs | None:
    """The costs per batch, record and byte. ``totals`` maps (stored bytes of a record, records in a batch) to the
    microseconds per record of both paths: batches, records. None if fewer than two record sizes have two batch sizes.

    A record in a batch of ``n`` costs 1/n of the path's cost per batch, and the cost of any record on that path. Two
    batch sizes give the cost per batch of each path; that of a batch is the difference between both. The remainder is
    the additional cost of a record on the records path.
    """
    found: dict[int, tuple[float, float]] = {}
    for size in {size for size, _ in totals}:
        counts = sorted(count for each, count in totals if each == size)
        small, large = counts[0], counts[-1]
        if small == large:
            continue
        here, there = totals[size, small], totals[size, large]
        batch = (here[0] - here[1] - there[0] + there[1]) / (1 / small - 1 / large)
        found[size] = batch, there[1] - there[0] + batch / large
    if len(found) < 2:
        return None
    (small, (_, less_us)), (large, (_, more_us)) = min(found.items()), max(found.items())
    byte = (more_us - less_us) / (large - small)
    return Costs(mean(batch for batch, _ in found.values()), less_us - byte * small, byte)
