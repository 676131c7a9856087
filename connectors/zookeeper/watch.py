"""The events of a session's recursive watch, and the part of history that they cover.

The newest event of each path is kept until the capture takes it. `NodeWatch` also knows the zxid up to which no event
was missed: while the watch is armed it is the last zxid that this connection delivered; when the connection is lost, it
is frozen until a resynchronisation is complete.
"""

import threading
import time
from collections.abc import Callable
from math import inf
from typing import NamedTuple

from kazoo.protocol.states import KazooState

from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.connectors.zookeeper.connection import Events

FEW = 1_000
"""Maximum events of a burst that takes little time to read."""


class Patience(NamedTuple):
    """The times after which a burst of events is over, whichever comes first."""

    calm_s: float
    """Seconds since the last event of the burst."""
    burst_s: float
    """Seconds since the first event of the burst."""


SOON, LATER = Patience(0.2, 1.0), Patience(0.5, 4.0)
"""For bursts of up to `FEW` events, and for larger ones: to read them would slow the writers that cause them."""


class PathEvent(NamedTuple):
    """The newest event of one path."""

    kind: int
    zxid: int
    """The zxid of the event; -1: unknown (servers before 3.9)."""


class NodeWatch:
    """Collects the events of successive clients.

    Paths with a prefix in ``ignored`` are dropped. Paths with a prefix in ``calm`` arrive in bursts that are not
    urgent: they are taken when the burst is over, see `Patience`. Of these, paths that do not contain ``named`` are
    also dropped. ``wake`` is set when there is work, ``connection_changed`` when a connection was made or lost.
    """

    def __init__(
        self,
        ignored: tuple[str, ...],
        now: Callable[[], int],
        calm: tuple[str, ...] = (),
        named: str = "",
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ignored, self._calm, self._named, self._now, self._timer = ignored, calm, named, now, timer
        self._lock = threading.Lock()
        self._client: ZooKeeperClient | None = None
        self._pending: dict[str, PathEvent] = {}
        self._burst: dict[str, PathEvent] = {}
        self._burst_s = 0.0, 0.0  # times of its first and last event
        self._burst_ms = 0
        self._losses = 0
        self._event_zxid = -1
        self.armed = False
        self.covered: int | None = None
        self.last_event_ms = 0
        self.wake, self.connection_changed = threading.Event(), threading.Event()

    def follow(self, client: ZooKeeperClient) -> None:
        """Listen to this client, which must not be open yet."""
        self._client = client
        client.sink = self._receive
        client.add_listener(self._state)

    def _receive(self, events: Events) -> None:
        news = [event for event in events if not event[2].startswith(self._ignored)]
        if not news:
            return
        with self._lock:
            begins, calm, urgent = not self._burst, False, False
            self.last_event_ms = self._now()
            for zxid, kind, path in news:
                if not path.startswith(self._calm):
                    self._pending[path], urgent = PathEvent(kind, zxid), True
                elif self._named in path:
                    self._burst[path], calm = PathEvent(kind, zxid), True
            if calm:
                now_s = self._timer()
                self._burst_s = now_s if begins else self._burst_s[0], now_s
                self._burst_ms = self.last_event_ms if begins else self._burst_ms
            self._event_zxid = max(self._event_zxid, news[-1][0])
        if (urgent or (calm and begins)) and not self.wake.is_set():  # events are always taken after wake is cleared
            self.wake.set()

    def _state(self, state: str) -> None:
        with self._lock:
            if state != KazooState.CONNECTED:
                self._losses += 1
                if self.armed:
                    self.armed = False
                    self.covered = self._delivered()
        self.connection_changed.set()
        self.wake.set()

    def _delivered(self) -> int:
        # One transaction can cause many events: the last event need not be the last of its zxid. A response comes
        # after all events up to its zxid.
        assert self._client is not None, "armed only after follow"
        return max(self._event_zxid - 1, self._client.last_zxid)

    @property
    def zxid(self) -> int:
        """The zxid up to which no event was missed, -1 before the first complete read."""
        with self._lock:
            if self.armed:
                return self._delivered()
            return -1 if self.covered is None else self.covered

    def losses(self) -> int:
        """The number of lost connections, to be passed to `arm`."""
        with self._lock:
            return self._losses

    def arm(self, losses: int) -> bool:
        """Declare that everything was read since the watch was added: its events are complete from now on.

        Returns False, and changes nothing, if the connection was lost since ``losses`` was read.
        """
        with self._lock:
            assert self._client is not None, "arm comes after follow"
            self.armed = self._losses == losses and bool(self._client.connected)
            return self.armed

    def disarm(self, forget: bool = False) -> None:
        """Request a new read: of the changes since the last one, or (``forget``) of everything."""
        with self._lock:
            if self.armed:
                self.armed, self.covered = False, self._delivered()
            if forget:
                self.covered = None
        self.wake.set()

    def wait(self, limit_s: float) -> None:
        """Wait for work."""
        self.wake.wait(max(0.0, min(limit_s, self._burst_over_s())))
        self.wake.clear()

    def _burst_over_s(self) -> float:
        """Time until the events of a burst may be taken."""
        with self._lock:
            if not self._burst:
                return inf
            first_s, last_s = self._burst_s
            patience = SOON if len(self._burst) <= FEW else LATER
            return min(last_s + patience.calm_s, first_s + patience.burst_s) - self._timer()

    def pending_ms(self) -> float:
        """The time of the first event that may not be taken yet; infinite if there is none."""
        with self._lock:
            return self._burst_ms if self._burst else inf

    def take(self) -> dict[str, PathEvent]:
        """The events so far, except those of a running burst; the caller must `put_back` unhandled ones."""
        over = self._burst_over_s() <= 0
        with self._lock:
            taken, self._pending = self._pending, {}
            if over:
                taken |= self._burst
                self._burst = {}
        return taken

    def put_back(self, taken: dict[str, PathEvent]) -> None:
        """Return these events, except where there is a newer one."""
        with self._lock:
            self._pending = {**taken, **self._pending}
        self.wake.set()

    def has(self, predicate: Callable[[str], bool]) -> bool:
        """Whether an event that was not taken yet has such a path."""
        with self._lock:
            return any(map(predicate, self._pending))

    def __len__(self) -> int:
        return len(self._pending) + len(self._burst)
