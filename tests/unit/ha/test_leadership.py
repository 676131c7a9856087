"""At most one instance acts at any time, whatever pauses, delays and clocks; the order of the log decides."""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueup.state.instance.leadership import (
    ALONE_S,
    ENDED,
    LATE,
    RUNNING,
    STANDBY,
    STARTING,
    TRANSITIONS,
    WAITING,
    Contender,
    InstanceRole,
    Leader,
    LeadershipTerms,
    Sign,
)

TAKEOVER_S = 10.0
TERMS = LeadershipTerms(TAKEOVER_S)
WRONG = 0.05
"""The part by which clocks run wrong at most."""
ALONE = LeadershipTerms(ALONE_S, alone=True)
LED = Leader(4, "a", "at a", offset=17, state=RUNNING)


class Log:
    """The log, and instances that read every record at once."""

    def __init__(self) -> None:
        self.signs: list[Sign] = []
        self.readers: list[Contender] = []

    def append(self, sign: Sign, now_s: float = 0.0) -> None:
        placed = sign._replace(offset=len(self.signs))
        self.signs.append(placed)
        for reader in self.readers:
            reader.seen(placed, now_s)

    def instance(self, run: str, now_s: float = 0.0, terms: LeadershipTerms = TERMS) -> Contender:
        made = Contender(run, f"at {run}", terms, now_s)
        for sign in self.signs:
            made.seen(sign, now_s)
        self.readers.append(made)
        return made

    def step(self, one: Contender, now_s: float) -> Sign | None:
        """Append what is due."""
        sign = one.due(now_s)
        if sign is not None:
            one.sent(sign, now_s)
            self.append(sign, now_s)
        return sign


@pytest.fixture
def log() -> Log:
    return Log()


def elected(log: Log, run: str, now_s: float = 0.0, terms: LeadershipTerms = TERMS) -> Contender:
    made = log.instance(run, now_s, terms)
    log.step(made, now_s)
    log.step(made, now_s)
    assert made.may_act(now_s)
    return made


def test_the_first_instance_leads_at_once(log: Log) -> None:
    one = elected(log, "a")
    assert ([sign.state for sign in log.signs], one.leader.epoch) == ([STANDBY, WAITING], 1)


def test_an_instance_does_not_claim_before_it_has_read_the_log(log: Log) -> None:
    one = Contender("a", "at a", TERMS, 0.0)
    sign = one.due(100.0)
    assert sign is not None
    assert sign.state == STANDBY


def test_a_standby_claims_after_the_silence_and_not_before(log: Log) -> None:
    elected(log, "a")
    standby = log.instance("b")
    states = {now_s: sign.state for now_s in (1.0, 9.9, 10.0) if (sign := log.step(standby, now_s))}
    assert (states, standby.role) == ({1.0: STANDBY, 9.9: STANDBY, 10.0: WAITING}, InstanceRole.LEADER)


def test_an_instance_that_could_not_lead_does_not_claim(log: Log) -> None:
    one = log.instance("a")
    one.able = False
    states = [sign.state for now_s in (0.0, 20.0) if (sign := log.step(one, now_s))]
    one.able = True
    log.step(one, 20.1)
    assert (states, one.role) == ([STANDBY, STANDBY], InstanceRole.LEADER)


def states_of_hasty(log: Log, *times: float) -> list[str]:
    """The signs of a standby with a short takeover time, which reads the log at 0 s."""
    hasty = log.instance("b", terms=LeadershipTerms(4.0))
    return [sign.state for now_s in times if (sign := log.step(hasty, now_s))]


def test_a_standby_waits_as_long_as_the_settings_of_the_leader_ask(log: Log) -> None:
    elected(log, "a")
    assert states_of_hasty(log, 0.0, 5.0, 9.9, 10.0) == [STANDBY, STANDBY, STANDBY, WAITING]


def test_a_standby_waits_longer_than_an_application_without_ha_is_silent(log: Log) -> None:
    elected(log, "x", terms=ALONE)
    assert states_of_hasty(log, 0.0, 4.1, 11.9, 12.0) == [STANDBY, STANDBY, STANDBY, WAITING]


def test_a_standby_claims_at_once_after_an_end(log: Log) -> None:
    leader = elected(log, "a")
    standby = log.instance("b")
    log.step(standby, 1.0)
    log.append(leader.end(), 1.1)
    log.step(standby, 1.2)
    assert (standby.role, standby.leader.epoch) == (InstanceRole.LEADER, 2)


def test_of_two_claims_the_first_in_the_log_wins(log: Log) -> None:
    elected(log, "a")
    standbys = [log.instance(run) for run in "bc"]
    for one in standbys:
        log.step(one, 1.0)
    claims = [one.due(11.0) for one in standbys]
    for one, claim in zip(standbys, claims, strict=True):
        assert claim is not None
        one.sent(claim, 11.0)
    for claim in reversed(claims):
        assert claim is not None
        log.append(claim, 11.0)
    assert [one.role for one in standbys] == [InstanceRole.STANDBY, InstanceRole.LEADER]


def test_a_last_sign_that_is_written_again_and_again_keeps_no_standby_from_leading(log: Log) -> None:
    leader = elected(log, "a")
    log.step(leader, 1.0)
    last, standby, now_s, again = log.signs[-1], log.instance("b", 1.0), 1.0, 0
    while standby.role is not InstanceRole.LEADER:
        now_s += 1.0
        log.append(last, now_s)
        log.step(standby, now_s)
        again += 1
        assert again <= LATE + TAKEOVER_S + 2
    assert standby.leader.epoch == 2


@pytest.mark.parametrize("epoch", [2**63 - 1, 2**31, 100])
def test_an_epoch_that_no_log_can_have_reached_ends_no_election(log: Log, epoch: int) -> None:
    standby = log.instance("b")
    log.step(standby, 0.0)
    log.append(Sign(-1, "x", RUNNING, "nowhere", epoch, after=len(log.signs) - 1), 0.5)
    for now_s in (1.0, 2.0, 12.0):
        log.step(standby, now_s)
    assert (standby.role, standby.leader.epoch) == (InstanceRole.LEADER, 1)


def test_after_the_highest_epoch_that_a_forger_can_write_the_next_one_is_valid(log: Log) -> None:
    standby = log.instance("b")
    log.step(standby, 0.0)
    log.append(Sign(-1, "x", RUNNING, "nowhere", len(log.signs) + 1, after=len(log.signs) - 1), 0.5)
    for now_s in (1.0, 5.0, 10.0, 11.0):
        log.step(standby, now_s)
    assert (standby.role, standby.leader.epoch) == (InstanceRole.LEADER, 3)


def test_a_claim_is_void_if_the_leader_gave_a_sign_before_it(log: Log) -> None:
    leader = elected(log, "a")
    standby = log.instance("b")
    log.step(standby, 1.0)
    claim = standby.due(12.0)
    assert claim is not None
    assert claim.state == WAITING
    standby.sent(claim, 12.0)
    log.step(leader, 6.0)
    log.append(claim, 12.0)
    assert (standby.role, standby.leader.run) == (InstanceRole.STANDBY, "a")


def test_a_leader_that_reads_nothing_back_stops_before_a_standby_begins(log: Log) -> None:
    leader = elected(log, "a")
    assert [leader.may_act(now_s) for now_s in (6.9, 7.0, 6.9)] == [True, False, False]


def test_a_leader_that_was_replaced_is_lost_for_good(log: Log) -> None:
    leader = elected(log, "a")
    log.append(Sign(-1, "b", WAITING, "at b", 2, leader.leader.offset), 1.0)
    assert (leader.role, leader.due(2.0)) == (InstanceRole.LOST, None)


def test_an_owner_that_reads_its_claim_too_late_does_not_lead(log: Log) -> None:
    elected(log, "a")
    late = log.instance("b")
    log.step(late, 1.0)
    claim = late.due(11.0)
    assert claim is not None
    late.sent(claim, 11.0)
    log.append(claim, 11.0 + TERMS.act_s)
    assert (late.leader.run, late.role) == ("b", InstanceRole.STANDBY)


def test_a_sign_of_an_earlier_epoch_changes_nothing() -> None:
    assert LED.follow(Sign(20, "old", RUNNING, "", 3)) == LED


def test_a_reader_of_a_compacted_log_learns_the_leader_from_its_sign() -> None:
    found = Leader().follow(Sign(50, "b", RUNNING, "at b", 7))
    assert (found.epoch, found.run, found.offset) == (7, "b", 50)


def test_owners_of_an_epoch_that_gave_no_sign_do_not_matter_for_the_next_claim() -> None:
    """One reader knows the first claim of epoch 5, the other, of a compacted log, only the second."""
    first, second = (Sign(at, run, WAITING, "", 5, LED.offset) for at, run in ((20, "b"), (21, "c")))
    known, compacted = LED.follow(first).follow(second), LED.follow(second)
    claim = Sign(30, "d", WAITING, "", 6, LED.offset)
    assert (known.run, compacted.run) == ("b", "c")
    assert known.follow(claim) == compacted.follow(claim)


def test_a_sign_of_another_application_that_starts_changes_nothing() -> None:
    assert LED.follow(Sign(20, "x", STARTING)) == LED


def test_an_application_without_ha_leads_until_it_reads_a_claim(log: Log) -> None:
    alone, standby = elected(log, "x", terms=ALONE), log.instance("b")
    log.readers.remove(alone)  # stopped
    for now_s in (1.0, 12.0):
        log.step(standby, now_s)
    acts = alone.may_act(1e6)
    alone.seen(log.signs[-1], 1e6)
    assert (acts, standby.role, alone.role) == (True, InstanceRole.LEADER, InstanceRole.LOST)


def test_an_application_without_ha_is_refused_while_a_leader_gives_signs(log: Log) -> None:
    leader, alone = elected(log, "a"), log.instance("x", terms=ALONE)
    log.step(alone, 1.0)
    roles = [alone.role]
    log.step(leader, 1.5)
    assert ([*roles, alone.role], alone.due(100.0)) == ([InstanceRole.STANDBY, InstanceRole.REFUSED], None)


def test_an_application_without_ha_waits_as_long_as_the_settings_of_a_killed_leader_ask(log: Log) -> None:
    elected(log, "a", terms=LeadershipTerms(60.0))
    alone = log.instance("x", terms=ALONE)
    states = [sign.state for now_s in (1.0, 59.9, 60.0) if (sign := log.step(alone, now_s))]
    assert (states, alone.role) == ([STARTING, STARTING, WAITING], InstanceRole.LEADER)


def test_the_silence_of_a_log_that_took_no_records_does_not_count(log: Log) -> None:
    elected(log, "a")
    alone = log.instance("x", terms=ALONE)
    log.step(alone, 1.0)
    alone.listen(11.0)
    assert [sign.state for now_s in (22.9, 23.0) if (sign := log.step(alone, now_s))] == [STARTING, WAITING]


def test_a_late_sign_of_a_run_that_has_ended_refuses_nobody(log: Log) -> None:
    killed = elected(log, "x", terms=ALONE)
    late = killed.due(2.0)
    alone = log.instance("y", terms=replace(ALONE, before="x"))
    log.step(alone, 3.0)
    assert late is not None
    log.append(late, 3.1)
    log.step(alone, 3.2)
    assert alone.role is InstanceRole.LEADER


def test_standbys_are_known_to_each_other_while_they_give_signs(log: Log) -> None:
    leader = elected(log, "a")
    log.step(log.instance("b"), 1.0)
    assert [leader.present(now_s) for now_s in (2.0, 12.0)] == [["at b"], []]


@pytest.mark.parametrize("role", [InstanceRole.LOST, InstanceRole.REFUSED])
def test_no_transition_leads_from_an_end(role: InstanceRole) -> None:
    assert TRANSITIONS[role] == frozenset()


@dataclass(order=True)
class Event:
    at_s: float
    order: int
    act: Callable[[], None] = field(compare=False)


class World:
    """Instances, of which the first ``alone`` have no section ha, with clocks that run up to 5% wrong, pauses of
    processes, lost, late and repeated records, and slow readers. Checked at each step: at most one instance with
    section ha may act, and none begins to lead while another one gives signs."""

    def __init__(self, seed: int, instances: int, alone: int = 0) -> None:
        self.random = random.Random(seed)
        self.now_s, self._count, self._events = 0.0, 0, list[Event]()
        self.log: list[Sign] = []
        self.appended_s: list[float] = []
        self.ones: dict[int, Contender] = {}
        self.rates = [self.random.uniform(1 - WRONG, 1 + WRONG) for _ in range(instances)]
        self.paused = [0.0] * instances
        self.read = [0] * instances
        self.born = [0] * instances
        chosen = [LeadershipTerms(self.random.choice((5.0, 10.0, 20.0))) for _ in range(instances)]
        self.terms = [ALONE if number < alone else terms for number, terms in enumerate(chosen)]
        self.acted: list[tuple[int, str]] = []
        for number in range(instances):
            self.start(number)

    def clock(self, number: int) -> float:
        return self.now_s * self.rates[number] + 1000 * number

    def start(self, number: int) -> None:
        self.born[number] += 1
        self.read[number] = 0
        run = f"{number}-{self.born[number]}"
        self.ones[number] = Contender(run, run, self.terms[number], self.clock(number))
        self.at(self.random.random(), lambda: self.work(number, run))

    def at(self, after_s: float, act: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, Event(self.now_s + after_s, self._count, act))

    def work(self, number: int, run: str) -> None:
        """One pass of a process: act, read a part of the log, append what is due."""
        one = self.ones[number]
        if f"{number}-{self.born[number]}" != run:
            return
        if self.now_s < self.paused[number]:
            self.at(self.paused[number] - self.now_s, lambda: self.work(number, run))
            return
        if one.may_act(self.clock(number)):
            self.acted.append((one.leader.epoch, run))
        behind = len(self.log) - self.read[number]
        for sign in self.log[self.read[number] :][: behind if self.random.random() < 0.95 else 0]:
            before = one.role
            one.seen(sign, self.clock(number))
            self.read[number] += 1
            if one.role is InstanceRole.LEADER is not before:
                self.begun(number, sign)
        sign = one.due(self.clock(number))
        if sign is not None:
            one.sent(sign, self.clock(number))
            self.send(number, sign)
        if one.role in (InstanceRole.LOST, InstanceRole.REFUSED):
            self.at(self.random.uniform(0, 10), lambda: self.start(number))
        else:
            self.at(0.2, lambda: self.work(number, run))

    def send(self, number: int, sign: Sign) -> None:
        """The record is appended, or it is lost, which an application without section ha notices when it starts."""
        late_s = 0.01 if self.random.random() < 0.9 else self.random.uniform(0, 20)
        if self.random.random() < 0.97:
            self.at(late_s, lambda: self.append(sign))
        elif self.terms[number].alone and self.ones[number].role is InstanceRole.STANDBY:
            self.ones[number].listen(self.clock(number))

    def append(self, sign: Sign) -> None:
        again = [sign, self.random.choice([sign, *self.log])] if self.random.random() < 0.03 else [sign]
        for each in again:
            self.log.append(each._replace(offset=len(self.log)))
            self.appended_s.append(self.now_s)

    def begun(self, number: int, claim: Sign) -> None:
        """An instance begins to lead: no other one may act, and the leader before gave no sign for long enough."""
        one, terms = self.ones[number], self.terms[number]
        others = [run for run in self.acting() if run != claim.run]
        later = [sign for sign in self.log[claim.offset :] if sign.state == RUNNING and sign.epoch >= claim.epoch]
        assert (others, later) == ([], []), (self.now_s, one.leader)
        before = [sign for sign in self.log[: claim.offset] if sign.epoch == claim.epoch - 1]
        signs = [sign for sign in before if sign.state == RUNNING and sign.offset - sign.after <= LATE]
        if signs and signs[-1].run != terms.before and all(sign.state != ENDED for sign in before):
            owner = self.terms[int(signs[-1].run.partition("-")[0])]
            silence_s = self.appended_s[claim.offset] - self.appended_s[signs[-1].offset]
            least_s = max(owner.takeover_s, terms.takeover_s) / (1 + WRONG)
            assert silence_s >= least_s, (self.now_s, silence_s, one.leader)
        if terms.alone:  # its directory names it from now on
            self.terms[number] = replace(terms, before=claim.run)

    def disturb(self) -> None:
        number, kind = self.random.randrange(len(self.rates)), self.random.random()
        if kind < 0.4:
            self.paused[number] = self.now_s + self.random.uniform(0, 40)
        elif kind < 0.6 and self.now_s >= self.paused[number]:
            self.send(number, self.ones[number].end())
            self.start(number)
        else:
            self.start(number)  # killed, and started again
        self.at(self.random.expovariate(1 / 15), self.disturb)

    def acting(self) -> list[str]:
        """The runs with section ha that may act now, also those whose process is paused: they may be in the middle of a
        pass."""
        return [
            one._run
            for number, one in self.ones.items()
            if not one.terms.alone and one.role is InstanceRole.LEADER and self.clock(number) < one.may_act_until()
        ]

    def leaders(self) -> list[str]:
        """The runs that lead, among those that have read the whole log."""
        current = [one for number, one in self.ones.items() if self.read[number] == len(self.log)]
        return [one._run for one in current if one.role is InstanceRole.LEADER]

    def go_on(self, until_s: float) -> None:
        while self._events and self._events[0].at_s < until_s:
            event = heapq.heappop(self._events)
            self.now_s = event.at_s
            event.act()
            assert len(self.acting()) <= 1, (self.now_s, self.acting())
            assert len(self.leaders()) <= 1, (self.now_s, self.leaders())


@given(st.integers(0, 2**32), st.integers(2, 4), st.integers(0, 3))
def test_two_leaders_never_act_at_the_same_time(seed: int, instances: int, alone: int) -> None:
    world = World(seed, instances, alone)
    world.at(5.0, world.disturb)
    world.go_on(300.0)
    with_ha = [(epoch, run) for epoch, run in world.acted if int(run.partition("-")[0]) >= alone]
    owners: dict[int, set[str]] = {}
    for epoch, run in world.acted:
        owners.setdefault(epoch, set()).add(run)
    epochs = [epoch for epoch, _ in with_ha]
    assert all(len(runs) == 1 for runs in owners.values())
    assert epochs == sorted(epochs)


@given(st.integers(0, 2**32), st.integers(0, 3))
def test_an_instance_leads_soon_after_the_disturbances_end(seed: int, alone: int) -> None:
    world = World(seed, 3, alone)
    world.at(1.0, world.disturb)
    world.go_on(100.0)
    world.disturb = lambda: None  # type: ignore[method-assign]
    world.paused = [0.0] * 3
    before = len(world.acted)
    world.go_on(100.0 + 120.0)
    assert len(world.acted) > before
