"""Steps of a start that wait for a server. A machine under load delays them; a start that ends instead is repeated from
the beginning by whoever supervises it, under more load."""

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from trueup.state.common.errors import Retry

log = logging.getLogger(__name__)
LIMIT_S, PAUSE_S = 600.0, 1.0
"""For how long a step is repeated, and the pause before each repetition."""
T = TypeVar("T")


def patiently(
    what: str,
    step: Callable[[], T],
    stop: threading.Event,
    limit_s: float = LIMIT_S,
    pause_s: float = PAUSE_S,
    may: Callable[[], object] = lambda: None,
) -> T:
    """The result of ``step``, which is repeated while it raises `Retry`; each time, the log says what is waited for.
    ``may``: called before each attempt; raises if there must be none. Raises the last `Retry` after ``limit_s``, or
    when ``stop`` is set."""
    until_s = time.monotonic() + limit_s
    while True:
        may()
        try:
            return step()
        except Retry as error:
            if stop.is_set() or time.monotonic() >= until_s or stop.wait(pause_s):
                raise
            left_s = max(0, round(until_s - time.monotonic()))
            log.warning("start delayed", extra={"part": what, "problem": str(error), "at_most_s": left_s})
