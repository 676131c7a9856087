"""The plan of moves between log directories: how long it takes, and what it moves beside Cruise Control's rule.

    python -m bench.logdirs [--brokers 1000] [-o table|json]

Both rules get the same unevenly filled brokers: 10 directories and 2,000 replicas each, sizes from a Pareto
distribution. Both use the same target band: the average of the broker, plus or minus 9 % (Cruise Control's
disk.balance.threshold 1.1 with its margin 0.9). Its rule is implemented here from its published source
(IntraBrokerDiskUsageDistributionGoal), with movements and swaps. No server is started. Writes
bench/results/logdirs.json.
"""

import argparse
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.common import rows
from bench.common.rows import Row
from trueup.state.logdirs.model import Broker, LogDir, Replicas, spread, used
from trueup.state.logdirs.plan import Balance, fewest_bytes, plan

RESULTS = Path(__file__).parent / "results" / "logdirs.json"
DIRS, REPLICAS, BAND = 10, 2_000, 0.09
COMPARED = 50
SECONDS = 10.0


class Moved(NamedTuple):
    """The result of a rule: bytes moved, and the skew afterwards."""

    bytes: int
    skew: float


def main() -> int:
    """Measure, print, and write the results."""
    chosen = _arguments()
    rng = np.random.default_rng(1)
    brokers = [uneven(number, rng) for number in range(chosen.brokers)]
    began = time.process_time()
    plans = [plan(broker, _policy(broker)) for broker in brokers]
    spent = time.process_time() - began
    found = [
        rows.less(
            f"Plan for {chosen.brokers:,} brokers, {chosen.brokers * REPLICAS:,} replicas (peer: the limit)",
            "CPU s",
            [SECONDS],
            [spent],
            1.0,
        )
    ]
    few = brokers[:COMPARED]
    found += compared(few, [Moved(sum(m.bytes for m in p.moves), p.after) for p in plans], [goal(b) for b in few])
    rows.write(RESULTS, found)
    print(rows.text(found), end="") if chosen.output == "json" else rows.show(
        found, f"{len(few)} brokers compared; medians"
    )
    return 0


def compared(brokers: list[Broker], ours: list[Moved], theirs: list[Moved]) -> list[Row]:
    """Rows that compare both rules on the same brokers."""
    least = [fewest_bytes(*used(b), _policy(b).target)[0] for b in brokers]
    over = [[moved.bytes / low for moved, low in zip(rule, least, strict=False)] for rule in (theirs, ours)]
    before = median(spread(*used(b)) for b in brokers)
    return [
        rows.less("Bytes moved over the fewest possible; peer: Cruise Control's rule", "times", over[0], over[1], 1.0),
        rows.less(
            "Skew afterwards (of the fullest to the emptiest directory)",
            "share",
            [m.skew for m in theirs],
            [m.skew for m in ours[: len(theirs)]],
        ),
        rows.less("  before (both)", "share", [before], [before]),
    ]


def uneven(number: int, rng: np.random.Generator) -> Broker:
    """A broker whose directories were filled by number of partitions, regardless of size."""
    home = rng.integers(0, DIRS, REPLICAS).astype(np.int32)
    size = np.minimum((rng.pareto(1.3, REPLICAS) * 2e8).astype(np.int64), 50 << 30)
    held = np.bincount(home, weights=size, minlength=DIRS).astype(np.int64)
    total = int(held.max() * 1.3)
    dirs = tuple(LogDir(f"/data{at}", total + at, total + at - int(held[at])) for at in range(DIRS))
    names = tuple(f"topic-{at}" for at in range(500))
    topics, numbers = rng.integers(0, 500, REPLICAS).astype(np.int32), np.arange(REPLICAS, dtype=np.int32)
    columns = Replicas(names, topics, numbers, home, size, np.zeros(REPLICAS, np.int64), np.zeros(REPLICAS, bool))
    return Broker(number, dirs, columns)


def goal(broker: Broker) -> Moved:
    """The moves of Cruise Control's goal on one broker."""
    return _Goal(broker).run()


class _Goal:
    """For each disk, moves the largest replicas to emptier disks, or replicas of fuller disks to it, while a move
    keeps both disks within (or closer to) the band and reduces their difference. If that is not sufficient, swaps
    replicas."""

    def __init__(self, broker: Broker) -> None:
        self._after, self._total = (column.astype(float) for column in used(broker))
        average = self._after.sum() / self._total.sum()
        self._upper, self._lower = average * (1 + BAND), average * (1 - BAND)
        self._average, self._bytes = average, 0
        self._size, self._home = broker.replicas.size.astype(float), broker.replicas.home.copy()

    @property
    def _shares(self) -> NDArray[np.float64]:
        shares: NDArray[np.float64] = self._after / self._total
        return shares

    def run(self) -> Moved:
        for disk in range(len(self._total)):
            if self._shares[disk] > self._upper and not self._moves(disk, out=True):
                self._swaps(disk, out=True)
            if self._shares[disk] < self._lower and not self._moves(disk, out=False):
                self._swaps(disk, out=False)
        return Moved(self._bytes, spread(self._after, self._total))

    def _moves(self, disk: int, out: bool) -> bool:
        """Whether the disk reached the band."""
        others = sorted(self._beyond(disk, out), key=lambda at: self._shares[at] if out else -self._shares[at])
        for other in others:
            source, target = (disk, other) if out else (other, disk)
            mine = np.flatnonzero(self._home == source)
            for row in mine[np.argsort(-self._size[mine])].tolist():
                if self._good(source, target, self._size[row]):
                    self._go(row, target)
                    if self._within(disk, out):
                        return True
        return False

    def _beyond(self, disk: int, out: bool) -> list[int]:
        shares = self._shares
        return [
            at
            for at in range(len(shares))
            if at != disk and (shares[at] < self._average if out else shares[at] > self._average)
        ]

    def _swaps(self, disk: int, out: bool) -> None:
        order = sorted(range(len(self._total)), key=lambda at: self._shares[at] if out else -self._shares[at])
        for other in (at for at in order if at != disk):
            mine, theirs = np.flatnonzero(self._home == disk), np.flatnonzero(self._home == other)
            for row in mine[np.argsort(-self._size[mine] if out else self._size[mine])].tolist():
                gains = (self._size[row] - self._size[theirs]) * (1 if out else -1)
                fit = [at for at in theirs[np.argsort(-gains)].tolist() if self._swappable(disk, other, row, at, out)]
                if fit:
                    self._go(row, other)
                    self._go(fit[0], disk)
                    if self._within(disk, out):
                        return
                    break

    def _swappable(self, disk: int, other: int, row: int, back: int, out: bool) -> bool:
        delta = float(self._size[row] - self._size[back])
        return self._good(disk, other, delta) if out else delta < 0 and self._good(other, disk, -delta)

    def _good(self, source: int, target: int, size: float) -> bool:
        """Whether the move keeps both disks in the band and reduces their difference."""
        spare = self._after[source] - self._lower * self._total[source]
        room = self._upper * self._total[target] - self._after[target]
        if size <= 0 or 0 <= spare < size or 0 <= room < size:
            return False
        before = self._shares[source] - self._shares[target]
        return bool(abs(before - size / self._total[source] - size / self._total[target]) < abs(before))

    def _go(self, row: int, target: int) -> None:
        size, source = self._size[row], self._home[row]
        self._after[source] -= size
        self._after[target] += size
        self._home[row], self._bytes = target, self._bytes + int(size)

    def _within(self, disk: int, out: bool) -> bool:
        return bool(self._shares[disk] < self._upper if out else self._shares[disk] > self._lower)


def _policy(broker: Broker) -> Balance:
    """Trueup's policy with a band of the same width."""
    after, total = used(broker)
    return Balance(target=float(2 * BAND * after.sum() / total.sum()), headroom_bytes=0, least_bytes=1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.logdirs", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--brokers", type=int, default=1_000, help="how many are planned for (default 1000)")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
