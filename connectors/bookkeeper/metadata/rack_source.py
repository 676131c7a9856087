"""Rack maps that block, queried on a separate thread: the last answer holds until there is a new one, and a bookie
without an answer has an unknown rack."""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from trueup.connectors.bookkeeper.metadata.racks import NO_HOSTS, Script, WithoutGroups, host_of
from trueup.state.bookkeeper.topology import UNKNOWN_RACK

AGAIN_MS = 10_000
"""Delay between attempts while an answer is missing."""


@dataclass(frozen=True, slots=True)
class RackHealth:
    """The state of a rack map."""

    answered_ms: int
    """The time of the oldest answer in use, ms since the epoch; 0: there is none yet."""
    problem: str
    """The error of the last attempt for some bookie, empty if there was none."""
    unknown: int
    """The number of hosts without any answer so far."""
    hosts: int


class RackSource(WithoutGroups):
    """Implements `connectors.bookkeeper.metadata.racks.Racks` without blocking; only `ask` blocks.

    ``changed`` is called when answers change. ``now`` returns the time in ms since the epoch.
    """

    def __init__(self, script: Script, refresh_ms: int, changed: Callable[[], None], now: Callable[[], int]) -> None:
        self._script, self._refresh_ms, self._changed, self._now = script, refresh_ms, changed, now
        self._lock = threading.Lock()
        self._wanted: set[str] = set()
        self._known: dict[str, str] = {}
        self._answered_ms: dict[str, int] = {}
        self._problem, self._next_ms = "", 0
        self._due = threading.Event()

    def resolve(self, bookies: Iterable[str], hosts: Mapping[str, str] = NO_HOSTS) -> dict[str, str | None]:
        """The last answer for each; `UNKNOWN_RACK` if there is none, which is then requested soon."""
        by_bookie = {bookie: host_of(bookie, hosts) for bookie in bookies}
        with self._lock:
            new = {*by_bookie.values()} - self._wanted
            self._wanted = {*by_bookie.values()}
            if new - self._known.keys():
                self._next_ms = 0
                self._due.set()
            return {bookie: self._known.get(host, UNKNOWN_RACK) for bookie, host in by_bookie.items()}

    def named(self, bookie: str) -> str | None:
        """The rack that the script gives for a bookie id whose host is not known; see `RackMap.named`."""
        return self._script.named(bookie)

    def ask(self, wait_s: float) -> None:
        """Query the map if it is due, after at most ``wait_s`` seconds. Blocks for as long as the script."""
        self._due.wait(wait_s)
        self._due.clear()
        with self._lock:
            hosts = sorted(self._wanted)
        if not hosts or self._now() < self._next_ms:
            return
        racks, problem = self._script.locations(hosts)
        now_ms = self._now()
        with self._lock:
            news = {host: rack for host, rack in racks.items() if self._known.get(host) != rack}
            self._known.update(racks)
            self._answered_ms.update(dict.fromkeys(racks, now_ms))
            self._problem = problem
            # Bookies that registered while the script ran do not wait for the next refresh.
            unasked = self._wanted.difference(hosts, self._known)
            wait_ms = min(AGAIN_MS, self._refresh_ms) if problem else self._refresh_ms
            self._next_ms = 0 if unasked else now_ms + wait_ms
        if news:
            self._changed()

    def health(self) -> RackHealth:
        """The current state. Callable from any thread."""
        with self._lock:
            answered = [self._answered_ms[host] for host in self._wanted if host in self._answered_ms]
            unknown = len(self._wanted - self._known.keys())
            return RackHealth(min(answered, default=0), self._problem, unknown, len(self._wanted))
