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

from trueup.connectors.zookeeper.fence import Fence
from trueup.state.common.errors import Refused, Retry, Stop, TrueupError
from trueup.state.instance.leadership import (
    ENDED,
    STANDBY,
    STARTING,
    WAITING,
    Contender,
    InstanceRole,
    LeadershipTerms,
    Sign,
)
from trueup.streams.journal.journal import Journal, JournalRecord
from trueup.streams.journal.topic import INSTANCES

log = logging.getLogger(__name__)
TICK_S = 0.05
READ_S = 30.0
"""The time in seconds within which an instance that starts reads the record that it wrote."""
FENCES = "/trueup"
"""The parent of the fences in ZooKeeper."""
LEADER, CLAIM, NEW = b"leader", b"claim", b"starting"
"""Keys of a leader's signs, of claims, and of starts without section ha. Compaction keeps the newest of each, so the
epoch never decreases."""


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
        terms: LeadershipTerms,
        clock: Callable[[], int],
        lost: Callable[[], object],
        now: Callable[[], float] = awake_s,
        able: bool = True,
    ) -> None:
        self._journal, self._place, self._clock, self._lost, self._now = journal, place, clock, lost, now
        self._name, self._read = name, -1
        self.run = uuid.uuid4().hex
        self._lock = threading.RLock()
        self._one = Contender(self.run, place, terms, now())
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
        return "" if leader.state == ENDED or silent_s > self._one.terms.takeover_s else leader.place

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

    def enter(self, stop: threading.Event) -> bool:
        """Lead, as an application without section ha. Returns whether this instance does; it does not after ``stop``.
        Blocks. Raises `Stop` if another application uses the journal, and `Retry` if the journal does not respond; the
        next call then measures the silence of the others anew."""
        begun_s = self._now()
        with self._lock:
            self._one.listen(begun_s)
        while not (self.elected.is_set() or stop.wait(TICK_S)):
            self.beat()
            if self._one.role is InstanceRole.REFUSED:
                raise Stop(
                    f"one application for the journal {self._journal.topic('*')}",
                    f"another one at {self._one.leader.place}",
                    "stop it first, or set a different journal.prefix",
                )
            if not self._one.current and self._now() - begun_s > READ_S:
                raise Retry(f"to read what was written to {self._journal.topic(INSTANCES)}", "nothing", "try again")
        return self.elected.is_set()

    def beats(self) -> None:
        """Append signs until `done`. A journal that does not respond gets the next one. Blocks."""
        while not self.done.wait(TICK_S):
            with suppress(Retry):
                self.beat()

    def beat(self) -> None:
        """Append a sign if it is due. Raises `Retry`."""
        with self._lock:
            sign = self._one.due(self._now())
            if sign is not None:
                self._one.sent(sign, self._now())
        if sign is not None:
            self._journal.put([(INSTANCES, self._key(sign), sign)], self._one.terms.proof_s)

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
            leader = self._one.leader
            self._give_up("no proof that it leads" if leader.run == self.run else f"another one leads: {leader.place}")

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
        """Append the end, so that another instance leads at once. One that does not lead removes its sign instead."""
        self.done.set()
        with self._lock:
            sign = self._one.end()
        with suppress(TrueupError):
            self._journal.put([(INSTANCES, self._key(sign), sign if sign.state == ENDED else None)], within_s)

    def _give_up(self, why: str) -> None:
        if not self._gone.is_set():
            self._gone.set()
            log.error("leadership lost", extra={"epoch": self.epoch, "reason": why})
            self._lost()
        raise Stop("this instance to lead", why, "none: it ends, and another one leads")

    def _key(self, sign: Sign) -> bytes:
        keys = {STANDBY: f"standby {self._place}".encode(), STARTING: NEW, WAITING: CLAIM}
        return keys.get(sign.state, LEADER)

    def _seen(self, record: JournalRecord) -> None:
        if record.value is None or record.offset <= self._read:
            return
        self._read = record.offset
        with self._lock:
            before, silent_s = self._one.leader, self._one.silent_s(self._now())
            self._one.seen(Sign(record.offset, **record.value), self._now())
            role, after = self._one.role, self._one.leader
        if after.epoch != before.epoch:
            log.info("leader changed", extra={"epoch": after.epoch, "place": after.place})
        if role is InstanceRole.LEADER and not self.elected.is_set():
            self.silent_ms = self._clock() - int(1000 * silent_s) if before.state != ENDED else 0
            self.elected.set()
        with suppress(Stop):
            self.prove()
