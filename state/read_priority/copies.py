"""The copies of a ledger in both tiers, and whether each can be read in full."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from trueup.state.read_priority.tiers import LedgerInfo, ReadPriority, Tier, opened_by_broker


class CopyState(StrEnum):
    """The state of one copy. Only ``gone``, ``damaged`` and ``down`` show that reads fail."""

    WHOLE = "whole"
    GONE = "gone"
    DAMAGED = "damaged"
    DOWN = "down"
    ABSENT = "absent"
    """The topic records no copy."""
    UNKNOWN = "unknown"
    """The copy is not verified yet, or a server that must be asked does not respond."""


BAD = frozenset({CopyState.GONE, CopyState.DAMAGED, CopyState.DOWN, CopyState.ABSENT})


class CopyCheck(NamedTuple):
    """The result of a check."""

    state: CopyState = CopyState.UNKNOWN
    detail: str = "not checked yet"
    at_ms: int = 0
    """The time of the check in ms since the epoch, 0 if the copy was never checked."""


UNCHECKED = CopyCheck()


class LedgerCopies(NamedTuple):
    """A closed ledger of a topic with the checks of its copies."""

    part: str
    """The name of the topic or partition that lists the ledger."""
    info: LedgerInfo
    bookkeeper: CopyCheck = UNCHECKED
    tiered: CopyCheck = UNCHECKED

    def of(self, tier: Tier) -> CopyCheck:
        """The copy in a tier."""
        return self.bookkeeper if tier is Tier.BOOKKEEPER else self.tiered

    def opened(self, priority: ReadPriority) -> CopyCheck:
        """The copy that a broker opens with this priority."""
        return self.of(opened_by_broker(priority, self.info))

    @property
    def checked_ms(self) -> int:
        """The time of the older of the checks that matter."""
        return min(self.bookkeeper.at_ms, self.tiered.at_ms) if self.info.complete else self.bookkeeper.at_ms


def other(priority: ReadPriority) -> ReadPriority:
    """The other priority."""
    return next(candidate for candidate in ReadPriority if candidate is not priority)


def stored(
    ensembles: Sequence[Sequence[str]], write_quorum: int, answers: Mapping[str, CopyState], entries: int | None = None
) -> CopyState:
    """The state of a BookKeeper ledger from its bookies: each is WHOLE (it has the ledger), GONE (it has not), DOWN
    (not registered) or UNKNOWN. Every write set that has an entry, ``write_quorum`` consecutive bookies of an ensemble,
    must have one bookie with the ledger; a ledger is as good as its worst write set.

    ``entries``: the number of entries in the last ensemble, which are in its first write sets; None if that is not
    known."""
    worst = CopyState.WHOLE
    for at, ensemble in enumerate(ensembles, 1):
        sets = len(ensemble) if entries is None or at < len(ensembles) else min(len(ensemble), entries)
        for first in range(sets):
            bookies = {ensemble[(first + step) % len(ensemble)] for step in range(min(write_quorum, len(ensemble)))}
            worst = max(
                worst, _set({answers.get(bookie, CopyState.UNKNOWN) for bookie in bookies}), key=_SEVERITY.index
            )
    return worst


_SEVERITY = (CopyState.WHOLE, CopyState.UNKNOWN, CopyState.DOWN, CopyState.GONE)


def _set(answers: set[CopyState]) -> CopyState:
    """One write set: a bookie that may return is better than none that has the ledger."""
    for state in (CopyState.WHOLE, CopyState.UNKNOWN, CopyState.DOWN):
        if state in answers:
            return state
    return CopyState.GONE
