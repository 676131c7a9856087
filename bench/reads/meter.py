"""Measures one read inside the process that does it."""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.common.measure import cpu_s

_REQUEST = b"HTTP/1.1"
"""In each line of the log of the object store that is a request."""


class Meter:
    """The job contains: broker and bookies (process ids), log (of the object store)."""

    def __init__(self, job: Mapping[str, Any]) -> None:
        self._broker, self._bookies, self._log = job["broker"], job["bookies"], Path(job["log"])
        self._before: tuple[float, float, float, float, int] = (0.0, 0.0, 0.0, 0.0, 0)

    def begin(self) -> None:
        """Start the measurement."""
        self._before = self._now()

    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._before[0]

    def result(self, what: str, messages: int, size: int) -> dict[str, Any]:
        """What was spent since the start: a `contenders.Reading` without the time to the first message."""
        spent = [now - before for now, before in zip(self._now(), self._before, strict=True)]
        names = ("s", "cpu_s", "broker_s", "bookies_s", "requests")
        return {"what": what, "messages": messages, "bytes": size, **dict(zip(names, spent, strict=True))}

    def _now(self) -> tuple[float, float, float, float, int]:
        requests = self._log.read_bytes().count(_REQUEST)
        return time.monotonic(), cpu_s(os.getpid()), cpu_s(self._broker), cpu_s(*self._bookies), requests


def tell_result(result: Mapping[str, Any], first_s: float) -> None:
    """Print a result for `bench.common.jobs`."""
    print(json.dumps({**result, "first_s": first_s}), flush=True)
