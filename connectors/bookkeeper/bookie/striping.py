"""Which bookies of an ensemble hold which entries (RoundRobinDistributionSchedule.java).

Entry e is at positions (e + k) mod E, k < Qw; e counts from the start of the ledger, not of the fragment.
"""

from collections.abc import Sequence
from typing import NamedTuple

from trueup.state.bookkeeper.observations import FragmentRecord


class EnsembleRange(NamedTuple):
    """Consecutive entries of a ledger, all on one ensemble. The last entry is included."""

    first: int
    last: int
    bookies: tuple[str, ...]


def write_set(entry: int, ensemble: int, quorum: int) -> list[int]:
    """Positions that hold an entry, in the order in which readers use them."""
    return [(entry + k) % ensemble for k in range(quorum)]


def held(piece: EnsembleRange, position: int, quorum: int) -> list[int]:
    """The entries of a piece that one position holds."""
    size = len(piece.bookies)
    return [entry for entry in range(piece.first, piece.last + 1) if (position - entry) % size < quorum]


def pieces(fragments: Sequence[FragmentRecord], first: int, last: int) -> list[EnsembleRange]:
    """The part of entries ``first`` to ``last`` in each fragment; fragments without any of them are omitted."""
    ends = [*(fragment["first_entry"] - 1 for fragment in fragments[1:]), last]
    cut = [
        EnsembleRange(max(fragment["first_entry"], first), min(end, last), tuple(fragment["bookies"]))
        for fragment, end in zip(fragments, ends, strict=True)
    ]
    return [piece for piece in cut if piece.first <= piece.last]
