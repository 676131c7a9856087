"""Invariants of copies, beside those of `checkers`: what is written to bookies, and what metadata name afterwards."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from tests.simulation.bookkeeper import Racks, adheres, can_refill, windows
from tests.simulation.checkers import Checkers, Oracle, Rank, Violation
from tests.simulation.copy_world import CopyWorld, SessionLock, held, key_of, stored
from tests.simulation.copy_zookeeper import CopySession
from tests.simulation.model import Fragment, Ledger
from trueup.state.bookkeeper.observations import LedgerRecord
from trueup.state.common.rules import Verdict
from trueup.state.placement.copies.targets import FULL, LedgerMoves
from trueup.streams.placement.repairs.copying import AT_ONCE


@dataclass(frozen=True)
class DrainOracle(Oracle):
    """Judges ledgers that workers repair. They leave those of a drained bookie where they are."""

    drain: frozenset[str]

    @property
    def about(self) -> tuple[object, ...]:
        return type(self), *super().about, self.drain

    def _fragment(self, ledger: Ledger, at: int, refusing: frozenset[str]) -> Rank:
        rank = super()._fragment(ledger, at, refusing)
        if rank is Rank.TRUE and self.drain & set(ledger.fragments[at].bookies):
            return Rank.RACKS_BLOCKED if ledger.closed else Rank.OPEN
        return rank


@dataclass(frozen=True)
class CopyOracle(DrainOracle):
    """Judges ledgers that Trueup copies itself: neither a walk nor the choice of a worker limits it."""

    def _fragment(self, ledger: Ledger, at: int, refusing: frozenset[str]) -> Rank:
        rank = super()._fragment(ledger, at, refusing)
        if rank is Rank.LOSS_BLOCKED and self._refused(ledger, at, refusing):
            return Rank.RACKS_DRIFTED
        if rank is Rank.RACKS_BLOCKED and self.drain & set(ledger.fragments[at].bookies):
            return Rank.RACKS_DRIFTED
        return rank

    def _refused(self, ledger: Ledger, at: int, refusing: frozenset[str]) -> bool:
        """Whether only a refusal of its choice keeps a worker from replacing the lost members."""
        ensemble = ledger.fragments[at].bookies
        lost = {b for b in ensemble if b in self.seen.given_up}
        if not ledger.hollow(at) and any(set(w) <= lost for w in windows(ensemble, ledger.quorum)):
            return False
        away = [i for i, b in enumerate(ensemble) if b in lost | self.seen.missing]
        return bool(refusing) and can_refill(ensemble, away, self.racks, frozenset())

    def moved(self, ledger: Ledger, ensemble: Sequence[str], _refusing: frozenset[str]) -> Rank:
        placeable = can_adhere(ensemble, ledger.quorum, self.racks.choosable(), self.racks, anew=True)
        return Rank.RACKS_DRIFTED if placeable else Rank.RACKS_BLOCKED


def can_adhere(ensemble: Sequence[str], quorum: int, joining: Sequence[str], racks: Racks, anew: bool = False) -> bool:
    """Whether an ensemble of members and these bookies adheres. ``anew``: no member stays. One ensemble is tried of
    those with the same distribution over racks."""
    by_rack: dict[str, list[str]] = {}
    for bookie in joining:
        by_rack.setdefault(racks.rack[bookie], []).append(bookie)
    for places in product([*([] if anew else [None]), *by_rack], repeat=len(ensemble)):
        if all(places.count(rack) <= len(some) for rack, some in by_rack.items()):
            left = {rack: iter(some) for rack, some in by_rack.items()}
            found = [b if rack is None else next(left[rack]) for b, rack in zip(ensemble, places, strict=True)]
            if adheres(found, quorum, racks):
                return True
    return False


class CopyCheckers(Checkers):
    """All checks of copies. `CopyConnection` and `CopySession` report every request."""

    world: CopyWorld

    def __init__(self, world: CopyWorld) -> None:
        super().__init__(world)
        self.tasks: dict[int, CopySession] = {}
        self.moves: dict[int, LedgerMoves] = {}
        self.copies = 0
        """The number of ledgers whose metadata a copy changed."""

    @property
    def copying(self) -> bool:
        """Whether Trueup copies ledgers itself."""
        return self.policy.executor == "copy"

    def oracle(self) -> Oracle:
        base, judge = super().oracle(), CopyOracle if self.copying else DrainOracle
        return judge(base.racks, base.before, base.seen, frozenset(self.policy.drain))

    # Decisions

    def beginning(self, number: int, version: int, moves: LedgerMoves, running: int) -> None:
        """A copy of a ledger is about to begin."""
        ledger, about = self.world.ledgers.get(number), f"ledger {number}"
        self.expect(number, moves)
        if self.policy.mode == "observe" or self.policy.paused or not self.copying:
            policy = self.policy
            raise Violation(f"{about} was copied with {policy.mode}, {policy.executor}, paused {policy.paused}")
        if self.policy.mode == "approve" and self.approved.get(number) != version:
            raise Violation(f"{about} was copied in version {version}, approved {self.approved.get(number)}")
        if running >= AT_ONCE:
            raise Violation(f"{about} was copied beside {running} others")
        if ledger is None or ledger.version != version:
            return
        if not ledger.closed:
            raise Violation(f"{about} was to be copied while it was {ledger.state.name}")
        if waiting := ledger.members & self.attendance.waiting:
            raise Violation(f"{about} was copied while the loss of {sorted(waiting)} was held")
        if Verdict.DRIFTED not in self.bounds(ledger):
            raise Violation(f"{about} was copied while it was {self.ranks(ledger)}")
        targets = {move.after for move in moves.moves}
        if wrong := targets & (self._refusing(ledger) | ledger.members):
            raise Violation(f"{about} was to be copied to members or former members {sorted(wrong)}")
        if wrong := targets & {*self.policy.drain} | (targets - self.writable):
            raise Violation(f"{about} was to be copied to {sorted(wrong)}, which drain or are not writable")
        for fragment in ledger.fragments:
            mine = [move for move in moves.moves if move.first_entry == fragment.first_entry]
            if mine:
                self._suits(ledger, fragment, {move.place: move.after for move in mine})

    def expect(self, number: int, moves: LedgerMoves) -> None:
        """These moves of a ledger were ordered, and no others."""
        self.moves[number] = moves

    def _suits(self, ledger: Ledger, fragment: Fragment, targets: Mapping[int, str]) -> None:
        """The ensemble after the moves names no lost bookie, and adheres or is not worse than it is now."""
        after = [targets.get(at, bookie) for at, bookie in enumerate(fragment.bookies)]
        if left := set(after) & self.attendance.given_up:
            raise Violation(f"ledger {ledger.id} would still name the lost {sorted(left)}: {after}")
        racks = self.oracle().racks
        live = [b for b in self.attendance.last if b not in self.attendance.given_up]
        before, now = (self._spread(some, ledger.quorum, racks, live) for some in (fragment.bookies, after))
        if now < before and not adheres(after, ledger.quorum, self.oracle().before):
            raise Violation(f"ledger {ledger.id} would span {now} racks instead of {before}: {after}")

    @staticmethod
    def _spread(ensemble: Sequence[str], quorum: int, racks: Racks, live: Sequence[str]) -> int:
        return min(len({racks.rack[b] for b in window if b in live}) for window in windows(ensemble, quorum))

    # Requests

    def task(self, ledger: int, client: CopySession) -> None:
        """A task begins to copy a ledger with this session."""
        self.tasks[ledger] = client

    def adding(self, bookie: str, number: int, key: bytes, entry: int, body: bytes) -> None:
        """A bookie is about to store an entry that a task sent."""
        ledger, about = self.world.ledgers.get(number), f"entry {entry} of ledger {number} was written to {bookie}"
        if number not in self.tasks[number].read:
            raise Violation(f"{about} before its metadata were read")
        if ledger is not None and not ledger.closed:
            raise Violation(f"{about} while it was {ledger.state.name}")
        if key != key_of(number):
            raise Violation(f"{about} with another key than that of its metadata")
        if body != stored(number, entry):
            raise Violation(f"{about} damaged")

    def changing(self, ledger: Ledger, after: LedgerRecord, session: int) -> None:
        """The metadata of a ledger are about to change."""
        self.copies += 1
        before, about = self.world.record(ledger), f"the metadata of ledger {ledger.id} were changed"
        if not ledger.closed:
            raise Violation(f"{about} while it was {ledger.state.name}")
        self.locked(ledger.id, session)
        if _without_members(before) != _without_members(after):
            raise Violation(f"{about} from {before} to {after}")
        for fragment, members in zip(ledger.fragments, after["fragments"], strict=True):
            self._member_by_member(ledger, fragment, members["bookies"])

    def locked(self, ledger: int, session: int) -> None:
        """The session holds the lock of the ledger."""
        lock = self.world.locks.get(ledger)
        if not isinstance(lock, SessionLock) or lock.session != session:
            raise Violation(f"the metadata of ledger {ledger} were changed without its lock, {lock}")

    def _member_by_member(self, ledger: Ledger, fragment: Fragment, after: Sequence[str]) -> None:
        if len(after) != len(set(after)):
            raise Violation(f"ledger {ledger.id} names a bookie twice: {after}")
        named = Fragment(fragment.first_entry, list(after), fragment.entries)
        ordered = {move[:4] for move in self.moves[ledger.id].moves}
        for place, (before, bookie) in enumerate(zip(fragment.bookies, after, strict=True)):
            if before == bookie:
                continue
            if (fragment.first_entry, place, before, bookie) not in ordered:
                raise Violation(f"ledger {ledger.id} names {bookie} instead of {before}, which nobody ordered")
            if bookie in ledger.members:
                raise Violation(f"ledger {ledger.id}: {bookie} was in another fragment, and replaced {before}")
            entries = held(named, bookie, ledger.quorum)
            missing = [entry for entry in entries if not self.world.intact(bookie, ledger.id, entry)]
            if missing:
                raise Violation(f"ledger {ledger.id} names {bookie} instead of {before} without its entries {missing}")

    # Results

    def todo(self) -> list[int]:
        return [number for number in super().todo() if self._improvable(self.world.ledgers[number])]

    def _improvable(self, ledger: Ledger) -> bool:
        """Whether there are bookies for a copy, and replicas to be read."""
        if not self.copying:
            # A bookie also refuses what a copy that was not finished left there. Metadata do not show it.
            refuses = any(bookie.refuses(ledger.id, self.world.now_ms) for bookie in self.world.bookies.values())
            return not refuses and all(self.world.readable(ledger, fragment) for fragment in ledger.fragments)
        ever = set(ledger.members_ever)
        joining = [
            bookie
            for bookie in sorted(self.writable)
            if bookie not in ever and bookie not in self.policy.drain and self.world.used.get(bookie, 0.0) < FULL
        ]
        return any(self._gains(ledger, fragment, joining) for fragment in ledger.fragments)

    def _gains(self, ledger: Ledger, fragment: Fragment, joining: Sequence[str]) -> bool:
        if not self.world.readable(ledger, fragment):
            return False
        lost = [b for b in fragment.bookies if b in self.attendance.given_up]
        if lost:
            return len(joining) >= len(lost)
        racks = self.oracle().racks
        if adheres(fragment.bookies, ledger.quorum, racks):
            return False
        return can_adhere(fragment.bookies, ledger.quorum, joining, racks)

    def stored_everywhere(self) -> None:
        """Every live member has its entries, unless the bookie itself lost them."""
        world = self.world
        for ledger in world.ledgers.values():
            for fragment in ledger.fragments:
                for bookie in fragment.bookies:
                    for entry in held(fragment, bookie, ledger.quorum):
                        if (
                            not world.intact(bookie, ledger.id, entry)
                            and (bookie, ledger.id, entry) not in world.lacking
                        ):
                            raise Violation(f"{bookie} has no entry {entry} of ledger {ledger.id}, which names it")


def _without_members(record: LedgerRecord) -> object:
    firsts = [fragment["first_entry"] for fragment in record["fragments"]]
    left = {name: value for name, value in record.items() if name not in ("fragments", "seen_ms", "mzxid", "version")}
    return left, firsts
