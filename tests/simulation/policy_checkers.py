"""Invariants of placement under isolation groups, zones and regions, beside those of `checkers`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.simulation.bookkeeper import Racks, adheres, can_refill, every, refill
from tests.simulation.checkers import Checkers, Oracle, Rank, Violation
from tests.simulation.model import TRUEUP, Ledger
from tests.simulation.policies import Groups, Pair, Regions, zone_answer
from tests.simulation.policy_worlds import IsolationWorld, circumstances
from trueup.state.bookkeeper.observations import Sighting
from trueup.state.common.rules import Verdict
from trueup.state.placement.rules import RULES
from trueup.state.placement.settings import PlacementSettings
from trueup.state.placement.view import Rows

RULE = {
    Rank.OUTSIDE: {"placement.outside-isolation-group"},
    Rank.LEAVES: {"placement.leaves-isolation-group"},
    Rank.NOT_PLACED: {"placement.too-few-zones", "placement.too-few-regions"},
}


class PolicyCheckers(Checkers):
    """Checks of all policies."""

    def board(self, findings: Rows, marks: Rows) -> None:
        super().board(findings, marks)
        shown = {int(row["ledger"]): RULES[int(row["rule"])].id for row in findings}
        for ledger in self.world.ledgers.values():
            ranks, rule = self.ranks(ledger), shown.get(ledger.id, "")
            if not any(_fits(rank, rule) for rank in ranks):
                names = " or ".join(rank.name for rank in ranks)
                raise Violation(
                    f"ledger {ledger.id} is {names}, and the board says {rule or 'nothing'}: {ledger.isolation} "
                    f"{[f.bookies for f in ledger.fragments]} Qw={ledger.quorum} Qa={ledger.acks}, {self.oracle()}"
                )


def _fits(rank: Rank, rule: str) -> bool:
    """Whether the board may show a ledger of this rank with this rule; "" if it shows none."""
    if not rule:
        return rank.verdict is Verdict.TRUE
    others = {name for names in RULE.values() for name in names}
    return (
        rule in RULE[rank] if rank in RULE else rank.verdict is RULES[RULES.code(rule)].verdict and rule not in others
    )


# Isolation


@dataclass(frozen=True)
class IsolationOracle(Oracle):
    """Judges ledgers by their groups. ``unlisted``: whether a bookie has groups that were not read yet."""

    groups: Groups
    unlisted: bool
    isolates: bool
    leave: bool

    @property
    def about(self) -> tuple[object, ...]:
        groups = self.groups
        named = tuple(sorted(groups.of_bookie.items())), groups.default, repr(groups.namespaces)
        return *super().about, named, self.unlisted, self.isolates, self.leave

    def rank(self, ledger: Ledger, refusing: Iterable[str] = ()) -> Rank:
        rank = super().rank(ledger, refusing)
        if rank.verdict not in (Verdict.TRUE, Verdict.DRIFTED):
            return rank
        unread = self.groups.unread(ledger.isolation)
        pair = None if unread else self.groups.of(ledger.isolation)
        if unread or (pair is not None and self.unlisted):
            return Rank.UNKNOWN
        allowed = self.groups.allowed(pair, len(ledger.fragments[0].bookies))
        if rank.verdict is Verdict.TRUE:
            return rank if ledger.members <= allowed else Rank.OUTSIDE
        if not self.leave and self._may_leave(ledger, pair, allowed):
            return Rank.LEAVES
        return rank if self._may_repair(ledger, pair, allowed, frozenset(refusing)) else Rank.LOSS_BLOCKED

    def _bounded(self, ledger: Ledger, pair: Pair | None) -> bool:
        """Whether workers replace a lost bookie within these groups: those of the metadata, or of their settings."""
        return self.isolates and (
            ledger.isolation.startswith("[") or replace(self.groups, namespaces=None).of("") == pair
        )

    def _away(self, ensemble: Sequence[str]) -> list[int]:
        return [at for at, bookie in enumerate(ensemble) if bookie in self.seen.since]

    def _may_leave(self, ledger: Ledger, pair: Pair | None, allowed: frozenset[str]) -> bool:
        """Whether a worker that repairs the ledger may select a bookie outside the groups."""
        for fragment in ledger.fragments:
            ensemble, away = fragment.bookies, self._away(fragment.bookies)
            if not self.racks.writable - allowed - set(ensemble):
                continue
            moves = not adheres(ensemble, ledger.quorum, self.racks)
            if away and self._bounded(ledger, pair):
                moves = any(
                    not adheres(after, ledger.quorum, self.racks) for after in self._refills(ensemble, away, allowed)
                )
            if moves or (away and not self._bounded(ledger, pair)):
                return True
        return False

    def _inside(self, allowed: frozenset[str]) -> Racks:
        return replace(self.racks, writable=self.racks.writable & allowed)

    def _refills(self, ensemble: Sequence[str], away: Sequence[int], allowed: frozenset[str]) -> list[list[str]]:
        racks = self._inside(allowed)
        found = every(lambda pick: refill(ensemble, away, racks, pick), lambda bookie: bookie)
        return [[targets.get(at, b) for at, b in enumerate(ensemble)] for targets in found if targets is not None]

    def _may_repair(self, ledger: Ledger, pair: Pair | None, allowed: frozenset[str], refusing: frozenset[str]) -> bool:
        """Whether there are bookies inside the groups in place of lost ones, if workers respect the groups."""
        lost = [(at, f.bookies) for at, f in enumerate(ledger.fragments) if self.seen.given_up & set(f.bookies)]
        if not lost or not self._bounded(ledger, pair):
            return True
        inside = self._inside(allowed)
        return any(
            can_refill(
                ensemble, self._away(ensemble), inside, frozenset() if ledger.hollow(at) else refusing - set(ensemble)
            )
            for at, ensemble in lost
        )


class IsolationCheckers(PolicyCheckers):
    """No mark causes a worker to move a replica out of the groups of its ledger."""

    world: IsolationWorld
    told: dict[str, Pair] | None = None
    """The namespaces that this process has read, None if it has not."""

    def __init__(self, world: IsolationWorld) -> None:
        super().__init__(world)
        self.judged: dict[int, object] = {}
        self.watched = 0
        """The number of moves that only marks of Trueup caused, in the circumstances of the mark."""

    def restarted(self) -> None:
        super().restarted()
        self.told = None

    def grouped(self, namespaces: dict[str, Pair], now_ms: int) -> None:
        """Trueup receives the groups of all namespaces."""
        self.told = namespaces
        if not self.blind:
            self.attendance.namespaces = namespaces
        self.tick(now_ms)

    def sighted(self, sightings: Sequence[Sighting]) -> None:
        seen = self.attendance
        seen.groups |= {s.bookie: s.groups for s in sightings if s.groups is not None}
        seen.namespaces = self.told if self.told is not None else seen.namespaces
        super().sighted(sightings)

    def oracles(self) -> Sequence[Oracle]:
        """A decommissioned bookie is forgotten once no ledger names a lost one."""
        oracle = self.oracle()
        gone = {b for b, s in self.attendance.last.items() if not s.cookie and not s.registered}
        gone |= self.attendance.given_up & oracle.groups.of_bookie.keys()
        kept = {b: groups for b, groups in oracle.groups.of_bookie.items() if b not in gone}
        return [oracle, replace(oracle, groups=replace(oracle.groups, of_bookie=kept))] if gone else [oracle]

    def oracle(self) -> IsolationOracle:
        base, seen, policy = super().oracle(), self.attendance, self.policy
        groups = Groups(
            {bookie: seen.groups.get(bookie, ()) for bookie in seen.last},
            self.writable,
            (tuple(policy.groups), tuple(policy.secondary_groups)),
            seen.namespaces,
        )
        unlisted = any(s.registered and b not in seen.since and b not in seen.groups for b, s in seen.last.items())
        return IsolationOracle(
            base.racks, base.before, base.seen, groups, unlisted, policy.workers_isolate, policy.leave_isolation
        )

    def marked(self, ledger: Ledger) -> None:
        super().marked(ledger)
        seen = self.attendance
        groups = {b: seen.groups.get(b, ()) for b in seen.last if b not in seen.since}
        about = circumstances(groups, self.writable, seen.namespaces)
        self.judged[ledger.id] = None if self.policy.leave_isolation else about

    def step(self) -> None:
        super().step()
        for move in self.world.moves:
            if set(move.authors) != {TRUEUP} or self.judged.get(move.ledger) != move.circumstances:
                continue
            self.watched += 1
            ledger, groups = self.world.ledgers.get(move.ledger), self.world.groups()
            pair = groups.of(ledger.isolation) if ledger else None
            if ledger is None or not self.world.answers:
                continue
            outside = set(move.targets) - groups.allowed(pair, len(ledger.fragments[0].bookies))
            if outside:
                raise Violation(f"ledger {ledger.id} left {pair} for {sorted(outside)} through a mark of ours")
        self.world.moves.clear()


# Zones and regions


class PlacedOracle(Oracle):
    """Workers replace lost bookies, and move no other replica."""

    def moved(self, _ledger: Ledger, _ensemble: Sequence[str], _refusing: frozenset[str]) -> Rank:
        return Rank.NOT_PLACED


@dataclass(frozen=True)
class ZoneOracle(PlacedOracle):
    """Judges by zones. Lost and read-only members count with their location."""

    policy: PlacementSettings

    @property
    def about(self) -> tuple[object, ...]:
        return *super().about, self.policy.min_zones, self.policy.desired_zones

    def placed(self, ledger: Ledger, ensemble: Sequence[str]) -> Rank:
        policy, place = self.policy, self.racks.rack
        answer = zone_answer(ensemble, ledger.quorum, place, policy.min_zones, policy.desired_zones)
        return {"FAIL": Rank.NOT_PLACED, "SOFT": Rank.SOFT if ledger.closed else Rank.TRUE}.get(answer, Rank.TRUE)


@dataclass(frozen=True)
class RegionOracle(PlacedOracle):
    """Judges by regions, for ensembles of the size of the write quorum."""

    policy: PlacementSettings

    @property
    def about(self) -> tuple[object, ...]:
        return *super().about, tuple(self.policy.regions), self.policy.min_regions

    def placed(self, ledger: Ledger, ensemble: Sequence[str]) -> Rank:
        policy, racks = self.policy, self.racks
        regions = Regions(racks.rack, racks.writable, tuple(policy.regions), policy.min_regions, racks.least)
        formed = regions.formed(ensemble, ledger.acks, self.before.writable & set(ensemble))
        return Rank.TRUE if formed else Rank.NOT_PLACED


class PlacedCheckers(PolicyCheckers):
    """No mark is written for the sake of placement alone."""

    judge: type[Any]

    def oracle(self) -> Oracle:
        base = super().oracle()
        oracle: Oracle = self.judge(base.racks, base.before, base.seen, self.policy)
        return oracle

    def todo(self) -> list[int]:
        """Without ledgers that a bookie refuses: workers select one of the same zone or region first, and do not try
        another one after it."""
        return [number for number in super().todo() if not self._refused(number)]

    def ours(self) -> list[int]:
        return [number for number in super().ours() if not self._refused(number)]

    def _refused(self, ledger: int) -> bool:
        now_ms = self.world.now_ms
        return any(bookie.refuses(ledger, now_ms) for bookie in self.world.bookies.values())

    def marking(self, ledger: Ledger, version: int) -> None:
        if not ledger.members & self.attendance.given_up:
            raise Violation(f"ledger {ledger.id} was marked for its placement: {[f.bookies for f in ledger.fragments]}")
        super().marking(ledger, version)


class ZoneCheckers(PlacedCheckers):
    judge = ZoneOracle


class RegionCheckers(PlacedCheckers):
    judge = RegionOracle
