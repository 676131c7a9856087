"""Waits of demos: each lasts as long as something moves, and shows what it waits for. Machines that do other work take
many times as long."""

import os
import time
from collections.abc import Callable

from trueup.state.common.errors import Retry

Say = Callable[[str], None]
STILL_S = 420.0
"""Seconds without any change after which a wait ends. A machine that also runs tests needs minutes to start Spark."""
SAY_S, LOOK_S = 10.0, 0.25
BUSY = 2.0
"""Processes that want to run, for each core, from which on a machine is too slow for a demo."""


def wait_for(
    what: str, condition: Callable[[], object], say: Say, left: Callable[[], object] = str, still_s: float = STILL_S
) -> None:
    """Return once ``condition()`` is true. ``left``: what shows that something moves. Raises `Retry` if it does not
    change for ``still_s`` seconds."""
    now = begun = moved = said = time.monotonic()
    shown = left()
    while not condition():
        time.sleep(LOOK_S)
        now, before = time.monotonic(), shown
        shown = left()
        moved = now if shown != before else moved
        if now - moved >= still_s:
            raise Retry(what, f"{shown or 'nothing'} for {now - moved:.0f} s; {machine()}", "run the demo again alone")
        if now - said >= SAY_S:
            said = now
            say(f"  waiting for {what} for {now - begun:.0f} s: {f'{shown}; ' if shown else ''}{machine()}")


def machine() -> str:
    """The load of the machine, as text."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    slow = ": this machine is too slow at the moment" if load > BUSY * cores else ""
    return f"load {load:.1f} on {cores} cores{slow}"
