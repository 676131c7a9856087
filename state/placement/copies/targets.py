"""The bookies that take places in the fragments of one ledger."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from trueup.state.bookkeeper.observations import LedgerRecord
from trueup.state.bookkeeper.topology import Status, Topology
from trueup.state.common.counts import many
from trueup.state.placement.copies.search import Ring, RingSearch, cheapest
from trueup.state.placement.policy.fragments import DEAD, FragmentJudge, fewest_racks
from trueup.state.placement.policy.groups import groups_of

FULL = 0.9
"""The share of its disks from which on a bookie gets no replica. Bookies turn read-only at diskUsageThreshold, 0.95."""


class ReplicaMove(NamedTuple):
    """A bookie takes the place of another one in a fragment of a ledger."""

    first_entry: int
    """The first entry of the fragment."""
    place: int
    """The position in the ensemble, from 0."""
    before: str
    after: str
    entries: int
    """The number of entries that are copied."""


@dataclass(frozen=True, slots=True)
class LedgerMoves:
    """The moves for one ledger, and what they leave."""

    moves: tuple[ReplicaMove, ...] = ()
    stuck: tuple[int, ...] = ()
    """The first entries of the fragments that need a change and get none: there are not enough bookies."""
    unadhering: tuple[int, ...] = ()
    """The first entries of the fragments that do not adhere after the moves."""
    complete: bool = True
    """Whether no cheaper change was left out."""

    @property
    def text(self) -> str:
        """The moves in one line."""
        return "; ".join(
            f"from entry {move.first_entry} on {move.before} to {move.after}, {many(move.entries, 'entry', 'entries')}"
            for move in self.moves
        )


class MovePlanner:
    """Selects bookies under one topology. ``used``: the share of its disks that each bookie uses; a bookie that is
    absent gets replicas last."""

    def __init__(self, topology: Topology, used: Mapping[str, float]) -> None:
        self._used = used
        self._bench, self._groups = FragmentJudge(topology), groups_of(topology)
        self._candidates = sorted(
            bookie.id
            for bookie in topology.bookies
            if bookie.status is Status.WRITABLE
            and used.get(bookie.id, 0.0) < FULL
            and bookie.id not in topology.policy.drain
        )

    def moves(self, record: LedgerRecord, isolation: str = "", refusing: frozenset[str] = frozenset()) -> LedgerMoves:
        """The moves for a closed ledger. ``isolation``: its groups as text (`state.bookkeeper.isolation`);
        ``refusing``: bookies that may refuse it.

        A bookie that is a member of any fragment of the ledger takes no place in another fragment.
        """
        members = {bookie for fragment in record["fragments"] for bookie in fragment["bookies"]}
        allowed = self._groups.allowed(isolation, record["ensemble"])
        joining = [
            bookie
            for bookie in self._candidates
            if bookie not in members | refusing and (allowed is None or bookie in allowed)
        ]
        classes = self._bench.bookie_classes.of
        stock = Counter(classes[bookie] for bookie in joining)
        prices = {code: min(self._price(b) for b in joining if classes[b] == code) for code in stock}
        moves, stuck, unadhering, complete = list[ReplicaMove](), list[int](), list[int](), True
        ends = [*(fragment["first_entry"] - 1 for fragment in record["fragments"][1:]), record["last_entry"]]
        for fragment, end in zip(record["fragments"], ends, strict=True):
            first, bookies = fragment["first_entry"], list(fragment["bookies"])
            weights = _weights(first, end, len(bookies), record["quorum"])
            ring = self._ring(bookies, weights, record)
            wished = self._wished(ring, bookies, allowed)
            found = self._found(ring, wished, stock, prices)
            complete = complete and found.complete
            if not found.places and (wished or not found.adheres):
                stuck.append(first)
            elif not found.adheres:
                unadhering.append(first)
            moves += [
                ReplicaMove(first, place, bookies[place], after, weights[place])
                for place, after in zip(found.places, self._chosen(found.classes, joining), strict=True)
            ]
        return LedgerMoves(tuple(moves), tuple(stuck), tuple(unadhering), complete)

    def _ring(self, bookies: list[str], weights: list[int], record: LedgerRecord) -> Ring:
        members = self._bench.classes(tuple(bookies))
        lost = np.flatnonzero(DEAD[self._bench.bookie_classes.kind[members]]).tolist()
        return Ring(members, record["quorum"], record["ack_quorum"], tuple(lost), weights)

    def _wished(self, ring: Ring, bookies: list[str], allowed: frozenset[str] | None) -> list[int]:
        """The places of live bookies that are to leave the fragment: outside of its groups, or draining."""
        outside = np.array([allowed is not None and name not in allowed for name in bookies])
        leaving = outside | self._bench.bookie_classes.draining[ring.members]
        return [at for at in np.flatnonzero(leaving).tolist() if at not in ring.lost]

    def _found(
        self, ring: Ring, wished: list[int], stock: Mapping[int, int], prices: Mapping[int, float]
    ) -> RingSearch:
        """The change after which all wished places have other bookies; or one of them; or none, so that the fragment is
        not placed worse than now."""
        for some in dict.fromkeys([tuple(wished), *((at,) for at in wished)] if wished else ()):
            wider = replace(ring, lost=tuple(sorted({*ring.lost, *some})))
            found = cheapest(self._bench, wider, stock, prices)
            if found.adheres or (found.places and not self._worse(ring, found)):
                return found
        return cheapest(self._bench, ring, stock, prices)

    def _worse(self, ring: Ring, found: RingSearch) -> bool:
        """Whether the fragment is placed worse after the change than now. The replica of a read-only bookie counts with
        its rack, which BookKeeper's policy does not do."""
        after = ring.members.copy()
        after[list(found.places)] = found.classes
        facts = self._bench.facts(np.array([ring.members, after]), ring.quorum, acks=ring.acks)
        racks = fewest_racks(facts.names, ~DEAD[facts.kinds], ring.quorum)
        return bool(racks[1] < racks[0] or (facts.fails[1] and not facts.fails[0]))

    def _chosen(self, classes: tuple[int, ...], joining: list[str]) -> list[str]:
        """The emptiest bookie of each of these classes, each bookie once."""
        of, taken = self._bench.bookie_classes.of, list[str]()
        for code in classes:
            free = [bookie for bookie in joining if of[bookie] == code and bookie not in taken]
            taken.append(min(free, key=lambda bookie: (self._price(bookie), bookie)))
        return taken

    def _price(self, bookie: str) -> float:
        return self._used.get(bookie, FULL)


def _weights(first: int, last: int, size: int, quorum: int) -> list[int]:
    """The number of entries of each place of a fragment (RoundRobinDistributionSchedule.java)."""
    total = max(0, last - first + 1)
    rounds, rest = divmod(total, size)
    begins = [rounds + ((at - first) % size < rest) for at in range(size)]  # entries whose write set begins there
    return [sum(begins[(place - k) % size] for k in range(quorum)) for place in range(size)]
