"""This instance among those of one application: its signs of life in the journal, its role, and proof of it.

The decisions are those of `state.instance.leadership`. The signs have a producer of their own: a large write to the
journal does not delay them.
"""

import logging
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from trueup.connectors.zookeeper.fence import Fence
from trueup.state.common.errors import Refused, Retry, Stop, TrueupError
from trueup.state.instance.leadership import ENDED, STANDBY, WAITING, Contender, InstanceRole, LeadershipTimes, Sign
from trueup.streams.journal.journal import Journal, JournalRecord
from trueup.streams.journal.topic import INSTANCES

log = logging.getLogger(__name__)
TICK_S = 0.05
FENCES = "/trueup"
"""The parent of the fences in ZooKeeper."""
LEADER, CLAIM = b"leader", b"claim"
"""Keys of a leader's signs and of claims. Compaction keeps the newest of each, so the epoch never decreases."""


def awake_s() -> float:
    """Seconds of a clock that also counts suspensions of the machine."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Election:
    """Safe to use from several threads. ``name``: the name of the application in ZooKeeper; ``clock``: the time in ms
    since the epoch; ``now``: the seconds of a clock, by default `awake_s`; ``lost``: the function that is called when
    this instance lost its place, and must end the process; ``able``: whether this instance may claim already.
    ``elected``: the event that is set when this instance leads; ``done``: the event that is set when this instance
    gives no further signs."""

    def __init__(
        self,
        journal: Journal,
        place: str,
        name: str,
        takeover_s: float,
        clock: Callable[[], int],
        lost: Callable[[], object],
        now: Callable[[], float] = awake_s,
        able: bool = True,
    ) -> None:
        self._journal, self._place, self._clock, self._lost, self._now = journal, place, clock, lost, now
        self._name, self._read = name, -1
        self.run = uuid.uuid4().hex
        self._lock = threading.RLock()
        self._one = Contender(self.run, place, LeadershipTimes(takeover_s), now())
        self._one.able = able
        self.elected, self.done, self._gone = threading.Event(), threading.Event(), threading.Event()
        self.silent_ms = 0
        """Time of the last sign of the leader before this one, in ms since the epoch; 0: it ended in order."""

    @property
    def epoch(self) -> int:
        """The epoch of the present leader, 0 if there was none."""
        return self._one.leader.epoch

    @property
    def leads(self) -> bool:
        """Whether this instance leads."""
        return self._one.role is InstanceRole.LEADER

    @property
    def leader(self) -> str:
        """The place of the leader; empty if none is known."""
        leader, silent_s = self._one.leader, self._one.silent_s(self._now())
        return "" if leader.state == ENDED or silent_s > self._terms.takeover_s else leader.place

    @property
    def _terms(self) -> LeadershipTimes:
        return self._one.terms

    def enable(self) -> None:
        """This instance could lead from now on."""
        self._one.able = True

    def standbys(self) -> list[str]:
        """The places of the other standbys."""
        with self._lock:
            return self._one.present(self._now())

    def follow(self) -> None:
        """Read the signs of all instances until `done`. Blocks."""
        self._journal.follow(INSTANCES, self.done, self._seen)

    def beats(self) -> None:
        """Append signs until `done`. Blocks."""
        while not self.done.wait(TICK_S):
            self.beat()

    def beat(self) -> None:
        """Append a sign if it is due. A journal that does not respond gets the next one."""
        with self._lock:
            sign = self._one.due(self._now())
            if sign is not None:
                self._one.sent(sign, self._now())
        if sign is not None:
            with suppress(Retry):
                self._put(sign, self._terms.act_s)

    def watch(self) -> None:
        """End the process as soon as this instance led and can no longer prove it. Blocks until `done`."""
        while not self.done.wait(TICK_S):
            with suppress(Stop):
                self.prove()

    def fence(self) -> Fence:
        """The fence of changes in ZooKeeper that this leader makes."""
        return Fence(f"{FENCES}/{self._name}", self.epoch, self.run, self.fenced)

    def prove(self) -> None:
        """Return if this instance may act: it leads, or it never led and has nothing to act upon. Otherwise ends the
        process, and raises `Stop` in the meantime."""
        if not self.elected.is_set():
            return
        with self._lock:
            held = self._one.may_act(self._now())
        if not held:
            self._give_up("no proof that this instance leads")

    def fenced(self, by: str) -> None:
        """A store refused a write of this leader."""
        with self._lock:
            self._one.lose()
        with suppress(Stop):
            self._give_up(by)

    def refuse(self, what: str) -> None:
        """Raises `Refused` if this instance does not lead."""
        if not self.leads:
            todo = f"send it to {self.leader} (--api)" if self.leader else "try again when an instance leads"
            raise Refused(f"the leader, for {what}", self.unable(), todo)

    def unable(self) -> str:
        """Why this instance shows no state of clusters, as text."""
        if self.leads:
            return "this instance is taking over"
        where = f"the leader is at {self.leader}" if self.leader else "no leader is known at present"
        return f"this instance is a standby; {where}"

    def leave(self, within_s: float) -> None:
        """Append the end, so that a standby takes over at once. A standby removes its sign instead."""
        self.done.set()
        with self._lock:
            sign = self._one.end()
        with suppress(TrueupError):
            if sign.state == STANDBY:
                self._journal.put([(INSTANCES, self._key(sign), None)], within_s)
            else:
                self._put(sign, within_s)

    def _give_up(self, why: str) -> None:
        if not self._gone.is_set():
            self._gone.set()
            log.error("this instance no longer leads and ends at once", extra={"epoch": self.epoch, "reason": why})
            self._lost()
        raise Stop("this instance to lead", why, "none: it ends, and a standby leads")

    def _put(self, sign: Sign, within_s: float) -> None:
        record: dict[str, Any] = {
            "run": sign.run,
            "state": sign.state,
            "since": sign.since,
            "place": sign.place,
            "at_ms": self._clock(),
            "epoch": sign.epoch,
            "after": sign.after,
            "number": sign.number,
            "takeover_ms": sign.takeover_ms,
        }
        self._journal.put([(INSTANCES, self._key(sign), record)], within_s)

    def _key(self, sign: Sign) -> bytes:
        if sign.state == STANDBY:
            return f"standby {self._place}".encode()
        return CLAIM if sign.state == WAITING else LEADER

    def _seen(self, record: JournalRecord) -> None:
        if record.value is None or record.offset <= self._read:
            return
        self._read = record.offset
        value = {name: record.value[name] for name in Sign._fields if name != "offset"}
        with self._lock:
            before, silent_s = self._one.leader, self._one.silent_s(self._now())
            self._one.seen(Sign(record.offset, **value), self._now())
            role, after = self._one.role, self._one.leader
        if after.epoch != before.epoch:
            log.info("leader", extra={"epoch": after.epoch, "place": after.place})
        if role is InstanceRole.LEADER and not self.elected.is_set():
            self.silent_ms = self._clock() - int(1000 * silent_s) if before.state != ENDED else 0
            self.elected.set()
        with suppress(Stop):
            self.prove()
