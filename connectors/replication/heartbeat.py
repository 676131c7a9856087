"""Heartbeats of a link: written to the source, read back there, brought to the target, read there (RIP-45's way).

One process does all of it, so lags are differences of one clock. A heartbeat is a record whose key names the link and
its source cluster; links that share a topic, and two-way links with one name for it on both sides, read past each
other's. Only what was read back from the source goes on: what arrives proves that both clusters write and read.
"""

import json
import time
from typing import NamedTuple

from trueup.connectors.closing import Closing
from trueup.connectors.replication.ports import HeartbeatLog


class Beat(NamedTuple):
    """What heartbeats tell. Times are ms since the epoch by our clock, 0: never; lags ms, -1: not known yet.

    ``sent_ms``: when the newest that the source acknowledged was written; ``left_ms`` and ``arrived_ms``: when the
    newest that was read at the source, at the target, was written. ``source_lag_ms`` and ``lag_ms``: how long that took
    to be read there. ``source_error`` and ``target_error``: what that side said last, since it last did well.
    """

    sent_ms: int = 0
    left_ms: int = 0
    arrived_ms: int = 0
    source_lag_ms: int = -1
    lag_ms: int = -1
    source_error: str = ""
    target_error: str = ""


class Heartbeat(Closing):
    """The heartbeats of one link between the cluster named ``cluster``, whose topic is ``source``, and ``target``. Not
    thread-safe; to be called every few seconds.

    ``relay``: we bring them to the target; without it the link does, as records like others. What the systems say is
    told in `Beat`.
    """

    def __init__(self, link: str, cluster: str, source: HeartbeatLog, target: HeartbeatLog, relay: bool = True) -> None:
        self._key = json.dumps([link, cluster]).encode()
        self._relay = relay
        self._began_ms = _now_ms()
        self._source, self._target = source, target
        self._beat = Beat()

    def close(self) -> None:
        """Let go of all connections; what is under way is lost."""
        self._source.close()
        self._target.close()

    def beat(self, wait_s: float = 2.0) -> Beat:
        """Write one heartbeat and follow it, and those before it, until it arrived or ``wait_s`` seconds passed."""
        sent_ms, deadline = _now_ms(), time.monotonic() + wait_s
        self._source.prepare()
        self._target.prepare()
        self._source.write(self._key, sent_ms)
        while True:
            self._look()
            if self._beat.arrived_ms >= sent_ms or time.monotonic() >= deadline:
                return self._beat

    def _look(self) -> None:
        for sent_ms in self._source.read(self._key):
            if self._relay and sent_ms > self._beat.left_ms:
                self._target.write(self._key, sent_ms)
            self._beat = self._beat._replace(
                left_ms=max(sent_ms, self._beat.left_ms), source_lag_ms=self._lag(sent_ms, self._beat.source_lag_ms)
            )
        for sent_ms in self._target.read(self._key):
            self._beat = self._beat._replace(
                arrived_ms=max(sent_ms, self._beat.arrived_ms), lag_ms=self._lag(sent_ms, self._beat.lag_ms)
            )
        self._beat = self._beat._replace(
            sent_ms=max(self._source.written_ms, self._beat.sent_ms),
            source_error=self._source.error,
            target_error=self._target.error,
        )

    def _lag(self, sent_ms: int, before: int) -> int:
        """Of what was written before we began to look nobody knows when it arrived."""
        return _now_ms() - sent_ms if sent_ms >= self._began_ms else before


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
