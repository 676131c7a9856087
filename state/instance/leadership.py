"""Leadership among the instances of one application, decided by the order of a log with one partition.

Each instance appends signs of life and reads those of all instances in the same order:

- A leader appends ``running`` at short intervals. It acts for `LeadershipTerms.act_s` seconds after it sent a record,
  and only if it has read this record back with no valid claim before it.
- An instance that read no sign of the leader for the longer `LeadershipTerms.takeover_s` of both, or knows that the
  leader has ended, appends a claim of the next epoch (``waiting``), with the offset of the leader's last sign. The
  claim is valid if no later sign precedes it. The first valid claim of an epoch wins; its owner leads from the time at
  which it reads it, which must be less than `LeadershipTerms.proof_s` after it sent it.
- An application without section ha is one instance that may not take over: if it reads that a leader lives, its start
  is refused. As a leader, it acts for an unlimited time, until it reads a valid claim of another instance.

Two instances with section ha never act at the same time: every sign of the leader that precedes a valid claim was read
by its owner, hence sent, at least ``takeover_s`` before the claim, and ``act_s`` is less. Before an instance begins to
lead, no other one can have claimed after it, as ``proof_s`` is also less. All of this also holds when an application
without section ha begins. Only its end has no limit: it may still act when another instance begins, after a silence of
at least `ALONE_S`. Only durations are compared, each measured by one instance, so clocks need not agree.

Claims do not change the offset that the next claim names. An instance that reads a log whose old claims were compacted
may know a different owner of an epoch without any sign of life, but judges all later claims like the others.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import NamedTuple

WAITING, RUNNING, ENDED, STANDBY, STARTING = "waiting", "running", "ended", "standby", "starting"
"""Signs of life. ``waiting``: a claim; ``running``, ``ended``: a leader runs or has ended; ``standby``: a standby
makes no claim yet; ``starting``: an application without section ha makes no claim yet."""
SHARE = 0.7
"""The part of the takeover time for which a leader acts after its last proof."""
BEATS = 10
"""Number of signs of life per takeover time."""
LATE = 200
"""A sign of a leader counts if its author had read the log up to at most this number of records before it, which is
the number that twenty instances write in the takeover time. An old sign that is written again therefore does not
count."""
ALONE_S = 12.0
"""The takeover time of an application without section ha."""


class Sign(NamedTuple):
    """One record: a sign of life of an instance."""

    offset: int
    run: str
    state: str
    place: str = ""
    epoch: int = 0
    """The epoch of the leader or of the claim; 0 in other signs."""
    after: int = -1
    """For a claim, the offset of the last sign of the previous leader; otherwise the offset of the last record that the
    author had read. -1 if there is no such record."""
    number: int = 0
    """The number of the record within its run, from 1."""
    takeover_ms: int = 0
    """The silence in ms that a standby must wait for, by the settings of the author."""

    @property
    def possible(self) -> bool:
        """Whether a leader or the owner of a claim can have written it now. Each epoch begins with a record, so no
        epoch exceeds the number of records."""
        current = self.state == WAITING or self.offset - self.after <= LATE
        return self.epoch <= self.offset + 1 and current


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader according to the records so far."""

    epoch: int = 0
    run: str = ""
    place: str = ""
    offset: int = -1
    """The offset of the last sign of life of any leader."""
    state: str = ENDED
    """The state of the leader: waiting (no sign of life yet), running or ended."""
    takeover_ms: int = 0
    """The `Sign.takeover_ms` of the last record of the leader."""

    def follow(self, sign: Sign) -> "Leader":
        """The leader after one more record."""
        if sign.state in (STANDBY, STARTING) or not sign.possible:
            return self
        if sign.state == WAITING:
            counts, offset = sign.epoch == self.epoch + 1 and sign.after == self.offset, self.offset
        else:
            # Only the owner of a valid claim writes these, so they prove a claim that is not in the log any more.
            proves = sign.epoch > self.epoch or (sign.epoch == self.epoch and self.state == WAITING)
            counts, offset = proves or (sign.epoch, sign.run) == (self.epoch, self.run), sign.offset
        return Leader(sign.epoch, sign.run, sign.place, offset, sign.state, sign.takeover_ms) if counts else self


class InstanceRole(Enum):
    """The role of an instance."""

    STANDBY = "standby"
    LEADER = "leader"
    LOST = "lost"
    """The instance led and must not act any more; its process ends."""
    REFUSED = "refused"
    """The instance may not take over, and another one leads; its process ends."""


TRANSITIONS: Mapping[InstanceRole, frozenset[InstanceRole]] = {
    InstanceRole.STANDBY: frozenset({InstanceRole.LEADER, InstanceRole.REFUSED}),
    InstanceRole.LEADER: frozenset({InstanceRole.LOST}),
    InstanceRole.LOST: frozenset(),
    InstanceRole.REFUSED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class LeadershipTerms:
    """How an instance takes part. Durations are in seconds."""

    takeover_s: float
    """The silence of the leader after which a standby claims."""
    alone: bool = False
    """Whether the application has no section ha."""
    before: str | None = None
    """A run that has ended, whatever the log says; None if none is known."""

    @property
    def proof_s(self) -> float:
        """The age of a record up to which it proves, when it is read back, that its author leads."""
        return SHARE * self.takeover_s

    @property
    def act_s(self) -> float:
        """For how long a leader acts after it sent a record that it has read back."""
        return inf if self.alone else self.proof_s

    @property
    def beat_s(self) -> float:
        """The interval between two signs of life."""
        return self.takeover_s / BEATS


class Contender:
    """One instance. All times are in seconds of its own clock, which must also count suspensions of the machine.

    ``place``: the place where operators find the instance; ``able``: whether the instance could lead now, so that it
    may claim; ``standbys``: the places of other standbys, each with the time of its last sign; ``current``: whether it
    has read a record that it sent, so that it knows the log up to its start.
    """

    def __init__(self, run: str, place: str, terms: LeadershipTerms, now_s: float) -> None:
        self._run, self._place, self.terms = run, place, terms
        self.role, self.leader, self.able = InstanceRole.STANDBY, Leader(), True
        self.standbys: dict[str, float] = {}
        self._heard_s = now_s
        self.current = False
        self._number, self._sent = 0, dict[int, float]()
        self._read = -1
        self._last_s, self._claimed_s, self._proven_s = -terms.takeover_s, now_s - terms.takeover_s, -terms.takeover_s

    def due(self, now_s: float) -> Sign | None:
        """The record to append now. Call `sent` with it before it is sent."""
        if self.role in (InstanceRole.LOST, InstanceRole.REFUSED):
            return None
        if self._may_claim(now_s):
            return self._sign(WAITING)._replace(state=WAITING, epoch=self.leader.epoch + 1, after=self.leader.offset)
        return self._sign(RUNNING) if now_s - self._last_s >= self.terms.beat_s else None

    def end(self) -> Sign:
        """The last record of this instance."""
        return self._sign(ENDED)

    def listen(self, now_s: float) -> None:
        """Measure the silence of the leader from now on: the log did not take records, so signs may be missing."""
        self._heard_s = now_s

    def sent(self, sign: Sign, now_s: float) -> None:
        """A record is about to be sent."""
        self._number, self._last_s, self._sent[sign.number] = sign.number, now_s, now_s
        if sign.state == WAITING:
            self._claimed_s = now_s
        for number in [number for number in self._sent if number < sign.number - BEATS]:
            del self._sent[number]

    def seen(self, sign: Sign, now_s: float) -> None:
        """One more record of the log was read."""
        own, before, self._read = sign.run == self._run, self.leader, sign.offset
        self.leader = before.follow(sign)
        changed, leads = self.leader != before, self.leader.run == self._run
        if changed:
            self._heard_s = now_s
        if sign.state == STANDBY and not own:
            self.standbys[sign.place] = now_s
        elif sign.state == RUNNING:
            self.standbys.pop(sign.place, None)
        sent_s = self._sent.pop(sign.number, None) if own else None
        self.current = self.current or sent_s is not None
        if leads and changed and sent_s is not None:
            self._prove(sent_s, now_s)
        elif self.role is InstanceRole.LEADER and not leads:
            self._become(InstanceRole.LOST)
        elif changed and not leads and self._must_not_wait:
            self._become(InstanceRole.REFUSED)

    @property
    def _must_not_wait(self) -> bool:
        """Whether a sign of the leader keeps this instance from leading for good."""
        waits = self.role is InstanceRole.STANDBY and self.current
        return self.terms.alone and waits and self.leader.state == RUNNING and not self._ended

    @property
    def _ended(self) -> bool:
        """Whether the leader is known to have ended."""
        return self.leader.state == ENDED or self.leader.run == self.terms.before

    def _prove(self, sent_s: float, now_s: float) -> None:
        """This instance leads according to the log, as of the time at which it sent the record."""
        self._proven_s = max(self._proven_s, sent_s)
        if self.role is InstanceRole.STANDBY and now_s < self._proven_s + self.terms.proof_s:
            self._become(InstanceRole.LEADER)

    def may_act_until(self) -> float:
        """The end of the time for which this instance may act if it leads."""
        return self._proven_s + self.terms.act_s

    def may_act(self, now_s: float) -> bool:
        """Whether this instance may act. A leader that may not has lost its place for good."""
        if self.role is InstanceRole.LEADER and now_s >= self.may_act_until():
            self._become(InstanceRole.LOST)
        return self.role is InstanceRole.LEADER

    def lose(self) -> None:
        """A store refused a write of this leader."""
        if self.role is InstanceRole.LEADER:
            self._become(InstanceRole.LOST)

    def present(self, now_s: float) -> list[str]:
        """The places of the other standbys that gave a sign lately."""
        return sorted(place for place, at_s in self.standbys.items() if now_s - at_s < self.terms.takeover_s)

    def silent_s(self, now_s: float) -> float:
        """For how long no sign of the leader was read."""
        return now_s - self._heard_s

    def _become(self, role: InstanceRole) -> None:
        assert role in TRANSITIONS[self.role], f"from {self.role} to {role}"
        self.role = role

    def _may_claim(self, now_s: float) -> bool:
        """Whether the place is vacant. The log must be known up to a record of this instance."""
        waits = self.role is InstanceRole.STANDBY and self.able and self.current
        if not waits or now_s - self._claimed_s < self.terms.takeover_s:
            return False
        # The leader acts as long as its own settings permit, which may be those of another release.
        silence_s = max(self.terms.takeover_s, self.leader.takeover_ms / 1000)
        return self._ended or self.silent_s(now_s) >= silence_s

    def _sign(self, state: str) -> Sign:
        """A record of a leader with this state; of another instance, one that says that it is present."""
        terms, leads = self.terms, self.role is InstanceRole.LEADER
        epoch, shown = (self.leader.epoch, state) if leads else (0, STARTING if terms.alone else STANDBY)
        takeover_ms = int(1000 * terms.takeover_s)
        return Sign(-1, self._run, shown, self._place, epoch, self._read, self._number + 1, takeover_ms)
