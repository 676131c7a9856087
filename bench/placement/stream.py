"""The placement stream alone: time to report a lost bookie by size of the view, and cost per record."""

from pathlib import Path
from typing import Any

from bench.common import jobs
from bench.common.measure import tell
from bench.common.rows import Row, less, more
from trueup.connectors.embedded.kafka import Kafka

SIZES = (100_000, 1_000_000, 5_000_000)
GROWTH = 4.0
LIMIT_S = 1_200.0
Results = list[dict[str, Any]]


def run(root: Path, sizes: tuple[int, ...] = SIZES, deaths: int = 3) -> list[Row]:
    """Load the view to each size and lose bookies there."""
    tell(f"the stream with {', '.join(f'{size:,}' for size in sizes)} ledgers")
    with Kafka(root / "journal") as broker:
        broker.up()
        job = {"bootstrap": broker.bootstrap, "data": str(root / "data"), "sizes": sizes, "deaths": deaths}
        results = jobs.run("bench.placement.drive_stream", job, root, LIMIT_S)
    return [*_deaths(results, sizes), *_ingest(results)]


def _deaths(results: Results, sizes: tuple[int, ...]) -> list[Row]:
    times = {size: [s["s"] for s in results if s["what"] == "death" and s["ledgers"] == size] for size in sizes}
    costs = {size: [s["cpu_s"] for s in results if s["what"] == "death" and s["ledgers"] == size] for size in sizes}
    least = min(sizes)
    return [
        row
        for size in sizes[1:]
        for row in (
            less(
                f"Bookie lost to its list in the stream: {least:,} (peer), {size:,} ledgers",
                "s",
                times[least],
                times[size],
                1 / GROWTH if (least, size) == (SIZES[0], SIZES[-1]) else 0.0,
            ),
            less(f"  CPU of the stream, {least:,} (peer), {size:,} ledgers", "s", costs[least], costs[size]),
        )
    ]


def _ingest(results: Results) -> list[Row]:
    ours = [s for s in results if s["what"] == "ingest"][-1]
    peer = next(s for s in results if s["what"] == "noop")
    what = f"Records from Kafka into the view ({ours['records']:,}); peer: Spark's Kafka into nothing"
    return [
        more(what, "1/s", [_rate(peer)], [_rate(ours)]),
        less("  CPU of a record", "us", [_cost(peer)], [_cost(ours)]),
    ]


def _rate(result: dict[str, Any]) -> float:
    return float(result["records"] / result["s"])


def _cost(result: dict[str, Any]) -> float:
    return float(result["cpu_s"] / result["records"] * 1e6)
