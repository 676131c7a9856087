"""What a session's recursive watch was told, and how much of history that covers.

Events of the connection's thread are kept newest by path until the capture takes them. `Watch` also knows the zxid up
to which nothing can have been missed: while the watch is armed that is whatever this connection delivered last, and
when the connection goes it is frozen until a resynchronisation has caught up.
"""

import threading
import time
from collections.abc import Callable
from math import inf
from typing import NamedTuple

from kazoo.protocol.states import KazooState

from trueup.connectors.zookeeper.client import Client
from trueup.connectors.zookeeper.connection import Events

CALM_S, BURST_S = 0.2, 2.0


class Heard(NamedTuple):
    """The newest event of one path. ``zxid`` -1: the server does not say (before 3.9)."""

    kind: int
    zxid: int


class Watch:
    """Collects events of one client after the other.

    Paths that begin with one of ``ignored`` are not heard. Those with one of ``calm`` come in bursts that nobody waits
    for: they are taken when there were none for `CALM_S`, or `BURST_S` after the first.
    ``wake`` is set when there is something to take or to do, ``turned`` when a connection came or went.
    """

    def __init__(
        self,
        ignored: tuple[str, ...],
        now: Callable[[], int],
        calm: tuple[str, ...] = (),
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ignored, self._calm, self._now, self._timer = ignored, calm, now, timer
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._pending: dict[str, Heard] = {}
        self._burst: dict[str, Heard] = {}
        self._burst_s = 0.0, 0.0  # its first event, and its last
        self._burst_ms = 0
        self._losses = 0
        self._event_zxid = -1
        self.armed = False
        self.covered: int | None = None
        self.last_event_ms = 0
        self.wake, self.turned = threading.Event(), threading.Event()

    def follow(self, client: Client) -> None:
        """Listen to this client, which is not open yet."""
        self._client = client
        client.sink = self._heard
        client.add_listener(self._state)

    def _heard(self, events: Events) -> None:
        news = [event for event in events if not event[2].startswith(self._ignored)]
        if not news:
            return
        with self._lock:
            begins, calm, urgent = not self._burst, False, False
            self.last_event_ms = self._now()
            for zxid, kind, path in news:
                if path.startswith(self._calm):
                    self._burst[path], calm = Heard(kind, zxid), True
                else:
                    self._pending[path], urgent = Heard(kind, zxid), True
            if calm:
                now_s = self._timer()
                self._burst_s = now_s if begins else self._burst_s[0], now_s
                self._burst_ms = self.last_event_ms if begins else self._burst_ms
            self._event_zxid = max(self._event_zxid, news[-1][0])
        if (urgent or begins) and not self.wake.is_set():  # whoever clears it takes events after that
            self.wake.set()

    def _state(self, state: str) -> None:
        with self._lock:
            if state != KazooState.CONNECTED:
                self._losses += 1
                if self.armed:
                    self.armed = False
                    self.covered = self._delivered()
        self.turned.set()
        self.wake.set()

    def _delivered(self) -> int:
        # One transaction may cause many events: the last one heard need not be the last of its zxid. An answer
        # comes after all events up to its zxid.
        assert self._client is not None, "armed only after follow"
        return max(self._event_zxid - 1, self._client.last_zxid)

    @property
    def zxid(self) -> int:
        """Up to where nothing was missed, -1 before anything was read."""
        with self._lock:
            if self.armed:
                return self._delivered()
            return -1 if self.covered is None else self.covered

    def losses(self) -> int:
        """How often the connection was lost; to be passed to `arm`."""
        with self._lock:
            return self._losses

    def arm(self, losses: int) -> bool:
        """All was read since the watch was added: from now on its events are all there is to know.

        False, and nothing changed, if the connection was lost since ``losses`` was read.
        """
        with self._lock:
            assert self._client is not None, "arm comes after follow"
            self.armed = self._losses == losses and bool(self._client.connected)
            return self.armed

    def disarm(self, forget: bool = False) -> None:
        """Have everything read again: what changed since, or (``forget``) all there is."""
        with self._lock:
            if self.armed:
                self.armed, self.covered = False, self._delivered()
            if forget:
                self.covered = None
        self.wake.set()

    def wait(self, limit_s: float) -> None:
        """Wait for something to take or to do."""
        self.wake.wait(max(0.0, min(limit_s, self._burst_over_s())))
        self.wake.clear()

    def _burst_over_s(self) -> float:
        """How long until what came in a burst may be taken."""
        with self._lock:
            first_s, last_s = self._burst_s
            return min(last_s + CALM_S, first_s + BURST_S) - self._timer() if self._burst else inf

    def told_ms(self) -> float:
        """When the first event came that may not be taken yet; infinite if there is none."""
        with self._lock:
            return self._burst_ms if self._burst else inf

    def take(self) -> dict[str, Heard]:
        """The events so far but those of a burst that lasts; the caller must `put_back` what it did not get done."""
        over = self._burst_over_s() <= 0
        with self._lock:
            taken, self._pending = self._pending, {}
            if over:
                taken |= self._burst
                self._burst = {}
        return taken

    def put_back(self, taken: dict[str, Heard]) -> None:
        """Have these again, unless there was something newer."""
        with self._lock:
            self._pending = {**taken, **self._pending}
        self.wake.set()

    def __len__(self) -> int:
        return len(self._pending) + len(self._burst)
