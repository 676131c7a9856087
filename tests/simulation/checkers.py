"""Invariants, checked against the true state of the cluster and the input of Trueup, never its internal state.

One race is allowed, as a version check cannot detect it: the liveness of a bookie that changed after the last list of
bookies that Trueup received. The ledger itself is checked at the time of the write.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from tests.simulation.bookkeeper import DEFAULT, Racks, adheres, can_refill, can_relocate, windows
from tests.simulation.model import REFUSE_MS, TRUEUP, Ledger, Mark, World
from trueup.state.bookkeeper.observations import Sighting
from trueup.state.common.rules import Verdict
from trueup.state.placement.rules import RULES
from trueup.state.placement.settings import PlacementSettings
from trueup.state.placement.view import Rows
from trueup.streams.placement.report import PlacementReport


class Violation(AssertionError):  # noqa: N818
    """A failed check."""


LEAST_REFUSAL_MS = REFUSE_MS - 86_400_000
"""Allows for clock skew of some hours."""


class Rank(IntEnum):
    """Verdicts of fragments. The worst is the verdict of the ledger."""

    TRUE = 0
    SOFT = 1
    OUTSIDE = 2
    OPEN = 3
    RACKS_BLOCKED = 4
    RACKS_DRIFTED = 5
    NOT_PLACED = 6
    PENDING = 7
    LOSS_BLOCKED = 8
    LOSS_DRIFTED = 9
    LEAVES = 10
    UNKNOWN = 11

    @property
    def verdict(self) -> Verdict:
        return VERDICT.get(self, Verdict.BLOCKED)


VERDICT = {
    Rank.TRUE: Verdict.TRUE,
    Rank.SOFT: Verdict.TRUE,
    Rank.RACKS_DRIFTED: Verdict.DRIFTED,
    Rank.LOSS_DRIFTED: Verdict.DRIFTED,
    Rank.UNKNOWN: Verdict.UNKNOWN,
}


@dataclass
class Attendance:
    """Present, missing and lost bookies, derived from the received lists and the settings in force. ``waiting``: those
    that went away in the mass loss that is held, missing or lost. ``was_writable``: those that were writable when they
    were last seen."""

    last: dict[str, Sighting] = field(default_factory=dict)
    since: dict[str, int] = field(default_factory=dict)
    given_up: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)
    held_at: int | None = None
    was_writable: set[str] = field(default_factory=set)
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    namespaces: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] | None = None

    @property
    def missing(self) -> set[str]:
        return set(self.since) - self.given_up

    def see(self, sightings: Sequence[Sighting], now_ms: int) -> None:
        listed = {s.bookie: s for s in sightings}
        for name in {*self.last, *listed}:
            if listed.get(name) is not None and listed[name].registered:
                self.since.pop(name, None)
                self.given_up.discard(name)
                self.waiting.discard(name)
            else:
                self.since.setdefault(name, now_ms)
        self.last |= listed

    def judge(self, policy: PlacementSettings, now_ms: int) -> None:
        away = self.missing | self.waiting
        counted = len(self.last) - len(self.given_up - self.waiting)
        many = len(away) >= 2 and len(away) > policy.hold_share * counted
        if many and self.held_at is not None and policy.release_hold > self.held_at:
            self.given_up |= self.missing
            many = False
        self.given_up |= {b for b in self.missing if now_ms - self.since[b] >= policy.grace_s * 1000}
        self.waiting = away if many else set()
        if not many:
            self.held_at = None
        elif self.held_at is None:
            self.held_at = policy.release_hold


@dataclass(frozen=True)
class Oracle:
    """Judges ledgers one by one, by brute force. ``before``: `racks` with missing bookies counted as writable."""

    racks: Racks
    before: Racks
    seen: Attendance

    @property
    def about(self) -> tuple[object, ...]:
        """All inputs of the verdicts."""
        seen = self.seen
        racks = (self.racks.writable, self.before.writable, tuple(sorted(self.racks.rack.items())), self.racks.enforce)
        return *racks, self.racks.least, frozenset(seen.since), frozenset(seen.given_up)

    def rank(self, ledger: Ledger, refusing: Iterable[str] = ()) -> Rank:
        if ledger.unreadable:
            return Rank.UNKNOWN
        return max(self._fragment(ledger, at, frozenset(refusing)) for at in range(len(ledger.fragments)))

    def verdict(self, ledger: Ledger, refusing: Iterable[str] = ()) -> Verdict:
        return self.rank(ledger, refusing).verdict

    def _fragment(self, ledger: Ledger, at: int, refusing: frozenset[str]) -> Rank:
        ensemble, hollow = ledger.fragments[at].bookies, ledger.hollow(at)
        tail = not ledger.closed and at == len(ledger.fragments) - 1
        lost = {b for b in ensemble if b in self.seen.given_up}
        absent = {b for b in ensemble if b in self.seen.missing}
        refusing = frozenset() if hollow else refusing - set(ensemble)
        if lost:
            whole = not hollow and not tail
            if whole and any(set(w) <= lost for w in windows(ensemble, ledger.quorum)):
                return Rank.LOSS_BLOCKED
            if not ledger.closed:
                return Rank.OPEN
            if not hollow and any(set(w) <= lost | absent for w in windows(ensemble, ledger.quorum)):
                return Rank.PENDING
            away = [i for i, b in enumerate(ensemble) if b in lost | absent]
            return Rank.LOSS_DRIFTED if can_refill(ensemble, away, self.racks, refusing) else Rank.LOSS_BLOCKED
        if (placed := self.placed(ledger, ensemble)) is not Rank.NOT_PLACED:
            return placed
        if not ledger.closed:
            return Rank.OPEN
        if absent:
            return Rank.PENDING
        return self.moved(ledger, ensemble, refusing)

    def placed(self, ledger: Ledger, ensemble: Sequence[str]) -> Rank:
        """Whether the ensemble adheres: TRUE, SOFT or NOT_PLACED."""
        return Rank.TRUE if adheres(ensemble, ledger.quorum, self.before) else Rank.NOT_PLACED

    def moved(self, ledger: Ledger, ensemble: Sequence[str], refusing: frozenset[str]) -> Rank:
        """What workers do about an ensemble that does not adhere."""
        walks = can_relocate(ensemble, ledger.quorum, self.racks, refusing)
        return Rank.RACKS_DRIFTED if walks else Rank.RACKS_BLOCKED


class Checkers:
    """All checks of one run. The driver of the run reports every event; each method raises `Violation`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.policy = PlacementSettings()
        self.attendance = Attendance()
        self.published = Attendance()
        self.writable: frozenset[str] = frozenset()
        self.named: set[str] = set()
        """Bookies that a ledger named before a list had them. Their grace begins then, until a list has them."""
        self.clock_ms = 0
        self.blind = True
        self.approved: dict[int, int] = {}
        self.drops: dict[tuple[int, str], tuple[int, int]] = {}
        self.newest: dict[int, tuple[int, frozenset[str]]] = {}
        self.mark_zxids: dict[int, int] = {}
        self.marks_written = 0
        self._ranks: dict[Any, set[Rank]] = {}

    # Input of Trueup

    def begin(self, now_ms: int) -> None:
        """A step of Trueup begins at this time of its clock."""
        self.clock_ms = now_ms

    def tick(self, now_ms: int) -> None:
        """Trueup evaluates its list of bookies, if it received one since its start."""
        self.clock_ms = now_ms
        if not self.blind:
            self.attendance.judge(self.policy, now_ms)

    def settings(self, policy: PlacementSettings) -> None:
        self.policy = policy

    def remembered(self) -> None:
        """A topology was written to the journal: the bookie state survives a crash."""
        self.published = deepcopy(self.attendance)

    def restarted(self) -> None:
        self.attendance, self.blind = deepcopy(self.published), True

    def sighted(self, sightings: Sequence[Sighting]) -> None:
        self.blind = False
        new = {s.bookie for s in sightings if not s.registered} - self.attendance.last.keys()
        self.attendance.see(sightings, self.clock_ms)
        listed = {s.bookie: s.registered for s in sightings if s.registered}
        self.named -= listed.keys()
        self.writable = frozenset(b for b, how in listed.items() if how == "writable")
        self.attendance.was_writable = ((self.attendance.was_writable | new) - set(listed)) | self.writable
        self.attendance.judge(self.policy, self.clock_ms)

    def mark_arrived(self, ledger: int, zxid: int) -> None:
        """Trueup read the mark and lock of a ledger, whose last change has this zxid."""
        self.mark_zxids[ledger] = max(zxid, self.mark_zxids.get(ledger, -1))

    def folded(self, arrived: Iterable[tuple[int, int, frozenset[str]]]) -> None:
        """Newest rows (ledger, mzxid, members) of one batch: the members that were observably dropped."""
        for ledger, mzxid, members in arrived:
            self.named |= members - self.attendance.last.keys()
            before, were = self.newest.get(ledger, (-1, frozenset()))
            if mzxid > before:
                self.newest[ledger] = mzxid, members
                self.drops.update({(ledger, bookie): (mzxid, self.world.now_ms) for bookie in were - members})
                for bookie in members:
                    self.drops.pop((ledger, bookie), None)

    def forgotten(self) -> None:
        self.drops.clear()
        self.newest.clear()

    # Actions of Trueup

    def marking(self, ledger: Ledger, version: int) -> None:
        """Called before a mark is written. The version check passed: the ledger was read in its current version."""
        policy, about = self.policy, f"ledger {ledger.id}"
        if policy.mode == "observe":
            raise Violation(f"{about} was marked in observe mode")
        if policy.mode == "approve" and self.approved.get(ledger.id) != version:
            raise Violation(f"{about} was marked in version {version}, approved {self.approved.get(ledger.id)}")
        if policy.paused:
            raise Violation(f"{about} was marked while paused")
        if self.world.disabled:
            raise Violation(f"{about} was marked while BookKeeper's recovery was disabled")
        if not ledger.closed:
            raise Violation(f"{about} was marked while it was {ledger.state.name}")
        if held := ledger.members & self.attendance.waiting:
            raise Violation(f"{about} was marked while the loss of {sorted(held)} was held")
        self._others_mark(ledger)
        known = self._refusing(ledger)
        ranks = {oracle.rank(ledger, known) for oracle in self.oracles()}
        if Verdict.DRIFTED not in {rank.verdict for rank in ranks}:
            names = " or ".join(rank.name for rank in sorted(ranks))
            raise Violation(f"{about} was marked while it was {names}: {[f.bookies for f in ledger.fragments]}")

    def _others_mark(self, ledger: Ledger) -> None:
        mark = self.world.marks.get(ledger.id)
        if mark and set(mark.authors) != {TRUEUP} and self.mark_zxids.get(ledger.id, -1) >= mark.zxid:
            raise Violation(f"ledger {ledger.id}: a mark of {mark.authors} that had been seen was written")

    def _refusing(self, ledger: Ledger) -> frozenset[str]:
        """Bookies that refuse the ledger, as far as its metadata show: they were dropped after their
        registration and less than a week ago, so their process may still remember the ledger."""
        now_ms, found = self.world.now_ms, []
        for bookie in self.world.bookies.values():
            zxid, dropped_ms = self.drops.get((ledger.id, bookie.id), (-1, 0))
            if (
                bookie.begun_zxid <= zxid
                and now_ms - dropped_ms < LEAST_REFUSAL_MS
                and bookie.refuses(ledger.id, now_ms)
            ):
                found.append(bookie.id)
        return frozenset(found)

    def marked(self, ledger: Ledger) -> None:
        """Called after a mark was written.

        Marks of ledgers that are true again may exceed the cap: any worker removes such a mark when it reads it.
        """
        self.marks_written += 1
        ours = [i for i, mark in self.world.marks.items() if set(mark.authors) == {TRUEUP} and self._counts(i)]
        if len(ours) > self.policy.max_marks:
            raise Violation(f"{len(ours)} marks are outstanding, the cap is {self.policy.max_marks}: {ours}")

    def _counts(self, ledger: int) -> bool:
        if ledger not in self.world.ledgers:
            return False
        return self.oracle().verdict(self.world.ledgers[ledger]) is not Verdict.TRUE

    def withdrawing(self, ledger: int, mark: Mark) -> None:
        if self.policy.mode == "observe":
            raise Violation(f"the mark of ledger {ledger} was withdrawn in observe mode")
        if set(mark.authors) != {TRUEUP}:
            raise Violation(f"ledger {ledger}: a mark written by {mark.authors} was withdrawn")

    # Results

    def oracle(self) -> Oracle:
        """Judges by the list of bookies that Trueup received."""
        racks = {b: s.rack or DEFAULT for b, s in self.attendance.last.items()}
        before = self.writable | (self.attendance.was_writable & self.attendance.missing)
        least, enforce = self.world.least, self.world.enforce
        return Oracle(
            Racks(racks, self.writable, least, enforce),
            Racks(racks, frozenset(before), least, enforce),
            self.attendance,
        )

    def oracles(self) -> Sequence[Oracle]:
        """One for each state of the bookies that Trueup may know."""
        return [self.oracle()]

    def step(self) -> None:
        """Called after every step of the cluster."""
        for ledger, authors in self.world.fenced:
            if TRUEUP in authors:
                raise Violation(f"ledger {ledger} was fenced through a mark of ours")
        self.world.fenced.clear()

    def bounds(self, ledger: Ledger) -> set[Verdict]:
        """The verdicts of `ranks`."""
        return {rank.verdict for rank in self.ranks(ledger)}

    def ranks(self, ledger: Ledger) -> set[Rank]:
        """The ranks for two cases: no bookie refuses the ledger, and every former member does."""
        ever = frozenset(b for b, zxid in ledger.members_ever.items() if zxid)
        oracles = self.oracles()
        fragments = tuple((*f.bookies, ledger.hollow(at)) for at, f in enumerate(ledger.fragments))
        settings = ledger.quorum, ledger.acks, ledger.isolation
        about = (fragments, *settings, ledger.closed, ledger.unreadable, ever, *(oracle.about for oracle in oracles))
        if about not in self._ranks:
            self._ranks[about] = {oracle.rank(ledger, no) for oracle in oracles for no in (frozenset(), ever)}
        return self._ranks[about]

    def shown(self, placed: PlacementReport, held: Mapping[int, int], now_ms: int) -> None:
        """Checks the API, for ledgers in the versions that the capture holds: no verdict has a higher count than
        possible, and a list that is not marked as incomplete lacks only pending ledgers."""
        status = placed.status(now_ms, runs=True, damages={})
        # Without a list of bookies Trueup can have no verdict.
        may = {number: frozenset() if self.blind else self._may(number, mzxid) for number, mzxid in held.items()}
        counts, late = status.counts, status.not_judged
        for verdict in Verdict:
            most = sum(verdict in verdicts for verdicts in may.values())
            if verdict is not Verdict.UNKNOWN and counts[verdict.name.lower()] > most:
                raise Violation(f"the API says {counts}, {late} not judged, of {may}")
        if sum(counts.values()) != len(held):
            raise Violation(f"the API says {counts} of {len(held)} ledgers")
        if not placed.incomplete(judged=True):
            result = {
                row.about["ledger"]: Verdict[row.verdict.upper()] for row in placed.findings(None, None, 1_000)[0]
            }
            wrong = [i for i, verdicts in may.items() if result.get(i, Verdict.TRUE) not in verdicts]
            if len(wrong) > late:
                raise Violation(f"the API lists {result}, {late} not judged, and {wrong} are otherwise: {may}")

    def _may(self, number: int, mzxid: int) -> frozenset[Verdict]:
        """Possible verdicts of a ledger; all of them if the captured version or the list of bookies is outdated."""
        ledger = self.world.ledgers.get(number)
        known = self.attendance.last.keys() - self.named
        if ledger is None or ledger.mzxid != mzxid or not ledger.members <= known:
            return frozenset(Verdict)
        return frozenset(self.bounds(ledger))

    def todo(self) -> list[int]:
        """Ledgers that BookKeeper can certainly still improve."""
        return [
            i
            for i, ledger in self.world.ledgers.items()
            if self.bounds(ledger) == {Verdict.DRIFTED} and not ledger.members & self.attendance.waiting
        ]

    def ours(self) -> list[int]:
        """Our marks that must be removed: no other client wrote them, the ledger is readable, and a refusal by all
        targets is observable."""
        ledgers = self.world.ledgers
        marked = [i for i, mark in self.world.marks.items() if set(mark.authors) == {TRUEUP}]
        return [i for i in marked if i in ledgers and not ledgers[i].unreadable and len(self.bounds(ledgers[i])) == 1]

    def board(self, findings: Rows, marks: Rows) -> None:
        """The board equals the true state after all changes were published."""
        found = {int(row["ledger"]): row for row in findings}
        for ledger in self.world.ledgers.values():
            row, bounds = found.pop(ledger.id, None), self.bounds(ledger)
            verdict = Verdict.TRUE if row is None else Verdict(int(row["verdict"]))
            if verdict not in bounds:
                rule = "none" if row is None else RULES[int(row["rule"])].id
                ensembles = [f.bookies for f in ledger.fragments]
                raise Violation(
                    f"ledger {ledger.id} is {' or '.join(v.name for v in bounds)} and the board says {verdict.name} "
                    f"({rule}): {ledger.state.name} {ensembles} Qw={ledger.quorum}, drops "
                    f"{[b for i, b in self.drops if i == ledger.id]}, missing {self.attendance.missing}, "
                    f"given up {self.attendance.given_up}, racks {self.oracle().racks}"
                )
        if found:
            raise Violation(f"the board has findings of ledgers that are gone: {sorted(found)}")
        true = {i: m.version for i, m in self.world.marks.items()} | {
            i: self.world.marks[i].version if i in self.world.marks else -1 for i in self.world.locks
        }
        result = dict(zip(marks["ledger"].tolist(), marks["version"].tolist(), strict=True))
        if result != true:
            raise Violation(f"marks and locks are {true}, the board says {result}")
