"""What the loss of each rack and of each bookie would do, computed on request while the application runs.

A computation reads the metadata of all ledgers, as `trueup what-if` does. A request returns the newest result with its
time, and asks for another one if it is old: at most one computation runs, for at most a `SHARE` of the time.
"""

import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass

from trueup.state.common.errors import Refused, TrueupError
from trueup.state.placement.what_if import NOW
from trueup.state.settings.settings import Settings
from trueup.streams.placement.what_if.answer import BOOKIE, KINDS, WhatIfAnswer, answer
from trueup.streams.rows import Row

LEAST_MS, SHARE = 60_000, 0.05
LOOK_S = 0.2


@dataclass(slots=True)
class _Computation:
    """The newest answer of one kind, and the state of its computation."""

    at_ms: int = 0
    """When the computation of the answer began; 0 if there is no answer yet."""
    tried_ms: int = 0
    """When the last computation that ended began, whether it succeeded or failed; 0 if none has ended."""
    took_ms: int = 0
    answer: WhatIfAnswer | None = None
    error: str = ""
    """Why the last computation failed; empty if it did not."""
    wanted: bool = False
    """Whether a computation was asked for, or runs."""
    read: int = 0
    """The number of ledgers that the running computation has read."""

    def has_read(self, ledgers: int) -> None:
        """The computation has read so many ledgers."""
        self.read = ledgers

    def due(self, now_ms: int) -> bool:
        """Whether the last computation is so long ago that a request asks for another one."""
        return now_ms - self.tried_ms >= max(LEAST_MS, self.took_ms / SHARE)


class WhatIfJob:
    """The results of all kinds. ``read``: the function that computes a result, by default `what_if.answer`."""

    def __init__(
        self, settings: Settings, clock: Callable[[], int], read: Callable[..., WhatIfAnswer] = answer
    ) -> None:
        self._settings, self._clock, self._read = settings, clock, read
        self._lock = threading.Lock()
        self._results = {kind: _Computation() for kind in KINDS}

    def describe(self, kind: str) -> Row:
        """The newest result: kind, state (computing: none yet, ready, failed), at_ms (None: none yet), took_ms, again
        (a computation is due or runs), read (ledgers that it has read), error (of the last computation), ledgers,
        missing (bookies), writable, unread (ledgers), and failures [name, bookies, ledgers, lost, one_copy, fewer,
        open, unwritable, unrepairable, to_copy, named] as of `state.placement.what_if.FailureEffect`, the worst first;
        now: the same without any failure, or None. Raises `Refused`."""
        if kind not in self._results:
            raise Refused(f"one of {', '.join(KINDS)}", kind[:100], "name one of them")
        with self._lock:
            computation = self._results[kind]
            computation.wanted = computation.wanted or computation.due(self._clock())
            return _row(kind, computation)

    def loss(self, bookie: str) -> Row:
        """The loss of one bookie in the newest result: at_ms and error as in `describe`, and loss, None if it is not
        known or the bookie has no rack."""
        result = self.describe(BOOKIE)
        loss = next((row for row in result["failures"] if row["name"] == bookie), None)
        return {"at_ms": result["at_ms"], "error": result["error"], "loss": loss}

    def step(self) -> None:
        """Compute what was asked for."""
        for kind, computation in self._results.items():
            if computation.wanted:
                self._compute(kind, computation)

    def _compute(self, kind: str, computation: _Computation) -> None:
        began_ms, result, error = self._clock(), None, "the reading ended with a defect; see the log"
        try:
            result, error = self._read(self._settings, kind, (), computation.has_read), ""
        except TrueupError as failed:
            error = str(failed)
        finally:
            with self._lock:
                computation.wanted, computation.read, computation.error = False, 0, error
                computation.tried_ms, computation.took_ms = began_ms, self._clock() - began_ms
                if result is not None:
                    computation.answer, computation.at_ms = result, began_ms


def _row(kind: str, computation: _Computation) -> Row:
    state = "failed" if computation.error else "ready" if computation.answer else "computing"
    shown: Row = {"ledgers": None, "missing": [], "writable": None, "unread": None}
    losses: list[Row] = []
    if computation.answer:
        result = computation.answer
        shown = {
            "ledgers": result.ledgers,
            "missing": [*result.missing],
            "writable": result.writable,
            "unread": result.unread,
        }
        losses = [asdict(loss) for loss in result.losses.values()]
    return {
        "kind": kind,
        "state": state,
        "at_ms": computation.at_ms or None,
        "took_ms": computation.took_ms,
        "again": computation.wanted,
        "read": computation.read,
        "error": computation.error,
        **shown,
        "now": next((row for row in losses if row["name"] == NOW), None),
        "failures": sorted((row for row in losses if row["name"] != NOW), key=worst_first),
    }


def worst_first(row: Row) -> tuple[float, ...]:
    """The order of failures: by lost ledgers, by those with one copy, by those with fewer, by bytes."""
    return -row["lost"], -row["one_copy"], -row["fewer"], -row["to_copy"]
