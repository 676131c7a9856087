"""Faults at random times, from a seed."""

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType, TracebackType
from typing import Self

from confluent_kafka import KafkaException

from trueup.connectors.embedded.processes import wait_until
from trueup.state.common.errors import TrueupError


class Faults:
    """Runs one of the ``kinds`` after another in a thread, ``every_s`` seconds apart on average.

    A kind is a function that injects a fault and removes it. ``weights`` is the number of its runs per round (default
    one). ``works`` returns when everything works. It is called before and after each fault, so each counted fault began
    in a working system, which worked again afterwards. Errors are raised at the exit.
    """

    def __init__(
        self,
        kinds: Mapping[str, Callable[[], None]],
        every_s: float,
        seed: int,
        weights: Mapping[str, int] = MappingProxyType({}),
        works: Callable[[str], None] = lambda _when: None,
    ) -> None:
        self.done: Counter[str] = Counter()
        self._kinds, self._every_s, self._random, self._works = dict(kinds), every_s, random.Random(seed), works
        self._deck = [name for name in sorted(kinds) for _ in range(weights.get(name, 1))]
        self._stop, self._failed = threading.Event(), threading.Event()
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
        """Wait until this number of faults is complete. The exit raises errors of the faults."""
        wait_until(lambda: self._error or sum(self.done.values()) >= times, limit_s, f"{times} faults")

    def wait_failed(self, limit_s: float) -> bool:
        """Wait for this time or until a fault raises an error. Returns whether one did."""
        return self._failed.wait(limit_s)

    def _run(self) -> None:
        try:
            for name in self._names():
                if self._stop.wait(self._random.uniform(0.3, 1.7) * self._every_s):
                    return
                self._works(f"before {name}")
                self._kinds[name]()
                self._works(f"after {name}")
                self.done[name] += 1
        except (OSError, TrueupError, AssertionError, KafkaException) as error:
            self._error = error
            self._failed.set()

    def _names(self) -> Iterator[str]:
        """Kinds without end. Each round contains all kinds by weight, in random order."""
        while True:
            self._random.shuffle(self._deck)
            yield from self._deck
