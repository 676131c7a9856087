"""Faults at random moments, from a seed: SIGKILL of whatever one names, and its return."""

import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from connectors.sandbox.processes import wait_until
from state.errors import TrueupError


class Faults:
    """Runs one of the ``kinds`` after another in a thread, ``every_s`` seconds apart on average.

    A kind is a function that hurts something and heals it again. What goes wrong in it is raised at the end.
    """

    def __init__(self, kinds: Mapping[str, Callable[[], None]], every_s: float, seed: int) -> None:
        self.done: Counter[str] = Counter()
        self._kinds, self._every_s, self._random = dict(kinds), every_s, random.Random(seed)
        self._stop = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="faults")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        if self._error is not None and error is None:
            raise self._error

    def wait_done(self, times: int, limit_s: float = 420.0) -> None:
        """Let it rage until so much was hurt and healed. What went wrong in that is raised by the exit."""
        wait_until(lambda: self._error or sum(self.done.values()) >= times, limit_s, f"{times} faults")

    def _run(self) -> None:
        try:
            while not self._stop.wait(self._random.uniform(0.3, 1.7) * self._every_s):
                name = self._random.choice(sorted(self._kinds))
                self._kinds[name]()
                self.done[name] += 1
        except (OSError, TrueupError, AssertionError) as error:
            self._error = error
