"""Heartbeats of a link: written to the source, read back there, copied to the target, read there (as in RIP-45).

One process does all of it, so lags are differences of one clock. A heartbeat is a record whose key has the name of the
link and the bit of its source cluster; links with a common topic, and links with the same name in several
installations, ignore each other's. Only heartbeats read back from the source are copied: an arrival proves that both
clusters accept writes and reads.
"""

import json
import time
from collections.abc import Iterable
from typing import NamedTuple

from trueup.connectors.clock import now_ms
from trueup.connectors.closing import Closing
from trueup.connectors.replication.ports import HeartbeatLog


class HeartbeatState(NamedTuple):
    """The state of heartbeats.

    Times are in ms since the epoch by the local clock; 0 means never. Lags are in ms; -1 means unknown.
    """

    sent_ms: int = 0
    """The write time of the newest heartbeat that the source acknowledged or returned."""
    left_ms: int = 0
    """The write time of the newest heartbeat that was read at the source."""
    arrived_ms: int = 0
    """The write time of the newest heartbeat that was read at the target."""
    source_lag_ms: int = -1
    """The time from the write of a heartbeat until it was read at the source."""
    lag_ms: int = -1
    """The time from the write of a heartbeat until it was read at the target."""
    source_error: str = ""
    """The last error of the source since its last success. Empty if there is none."""
    target_error: str = ""
    """The last error of the target since its last success. Empty if there is none."""


class Heartbeat(Closing):
    """The heartbeats of one link between the cluster of this bit, whose topic is ``source``, and ``target``. Not
    thread-safe; to be called every few seconds.

    ``relay``: this object copies them to the target; otherwise the link does, like other records. Errors of the
    systems are in `HeartbeatState`.
    """

    def __init__(self, link: str, bit: int, source: HeartbeatLog, target: HeartbeatLog, relay: bool = True) -> None:
        self._key = json.dumps([link, bit]).encode()
        self._relay = relay
        self._began_ms = now_ms()
        self._source, self._target = source, target
        self._beat = HeartbeatState()

    def close(self) -> None:
        """Close all connections; heartbeats in flight are lost."""
        self._source.close()
        self._target.close()

    def beat(self, wait_s: float = 2.0) -> HeartbeatState:
        """Write one heartbeat, and follow it and earlier ones until it arrived or ``wait_s`` seconds passed."""
        sent_ms, deadline = now_ms(), time.monotonic() + wait_s
        self._source.prepare()
        self._target.prepare()
        self._source.write(self._key, sent_ms)
        while True:
            self._look()
            if self._beat.arrived_ms >= sent_ms or time.monotonic() >= deadline:
                return self._beat

    def _look(self) -> None:
        now = now_ms()
        for sent_ms in _before(now, self._source.read(self._key)):
            if self._relay and sent_ms > self._beat.left_ms:
                self._target.write(self._key, sent_ms)
            self._beat = self._beat._replace(
                left_ms=max(sent_ms, self._beat.left_ms), source_lag_ms=self._lag(sent_ms, self._beat.source_lag_ms)
            )
        for sent_ms in _before(now, self._target.read(self._key)):
            self._beat = self._beat._replace(
                arrived_ms=max(sent_ms, self._beat.arrived_ms), lag_ms=self._lag(sent_ms, self._beat.lag_ms)
            )
        self._beat = self._beat._replace(
            sent_ms=max(self._source.written_ms, self._beat.sent_ms, self._beat.left_ms),
            source_error=self._source.error,
            target_error=self._target.error,
        )

    def _lag(self, sent_ms: int, before: int) -> int:
        """The lag; unknown for heartbeats that were written before this object began to read."""
        return now_ms() - sent_ms if sent_ms >= self._began_ms else before


def _before(now: int, sent: Iterable[int]) -> list[int]:
    """Without heartbeats of the future, which an earlier run wrote before the machine's clock was set back: later ones
    would seem to have arrived."""
    return [sent_ms for sent_ms in sent if sent_ms <= now]
