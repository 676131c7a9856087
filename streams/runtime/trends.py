"""The numbers of the last hours, for the charts of the page. They are in memory: a restart begins again."""

import threading
from collections.abc import Mapping
from math import isfinite, nan

import numpy as np
from numpy.typing import NDArray

from trueup.streams.rows import Row
from trueup.streams.runtime.signs import Total

EVERY_S, KEPT_H = 15.0, 6
KEPT = int(KEPT_H * 3_600 / EVERY_S)


class Trends:
    """The newest ``kept`` samples of every series of every stream. A series without a number at a time has a gap there.
    Safe to use from several threads."""

    def __init__(self, kept: int = KEPT) -> None:
        self._lock = threading.Lock()
        self._at_ms = np.zeros(kept, np.int64)
        self._series: dict[str, dict[str, NDArray[np.float64]]] = {}
        self._totals: dict[tuple[str, str], tuple[int, float]] = {}
        self._count = 0

    def add(self, now_ms: int, values: Mapping[str, Mapping[str, float]]) -> None:
        """Add a sample: the numbers by stream and series."""
        with self._lock:
            at = self._count % len(self._at_ms)
            self._at_ms[at] = now_ms
            for series in self._series.values():
                for ring in series.values():
                    ring[at] = nan
            for stream, numbers in values.items():
                for name, value in numbers.items():
                    self._ring(stream, name)[at] = self._value(now_ms, (stream, name), value)
            self._count += 1

    def of(self, stream: str) -> Row:
        """at_ms: the times of the samples, oldest first; series: by name its numbers, null where there is none."""
        with self._lock:
            order = self._order()
            rings = {name: ring[order].tolist() for name, ring in self._series.get(stream, {}).items()}
            at_ms = self._at_ms[order].tolist()
        return {
            "every_ms": int(EVERY_S * 1_000),
            "at_ms": at_ms,
            "series": {name: [v if isfinite(v) else None for v in values] for name, values in rings.items()},
        }

    def _order(self) -> NDArray[np.int64]:
        kept = len(self._at_ms)
        return np.arange(max(0, self._count - kept), self._count) % kept

    def _ring(self, stream: str, name: str) -> NDArray[np.float64]:
        return self._series.setdefault(stream, {}).setdefault(name, np.full(len(self._at_ms), nan))

    def _value(self, now_ms: int, key: tuple[str, str], value: float) -> float:
        if not isinstance(value, Total):
            return float(value)
        before, self._totals[key] = self._totals.get(key), (now_ms, float(value))
        if before is None or now_ms <= before[0] or value < before[1]:
            return nan
        return (value - before[1]) / (now_ms - before[0]) * 1_000
