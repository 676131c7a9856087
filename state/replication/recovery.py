"""The states of a stopped partition, and the commands that lead out of each of them, as a table.

A copy stops if the log at either end is not the one that was copied. Which command continues it depends on both ends,
and on the copy of an opposite link between the same logs: what one link would restore, the other must not copy first.
`WAYS` lists the commands that an operator is shown, the recommended one first. A command is refused by the functions
here, so none is shown that is refused, and `tests/property/rules/test_recovery_ways.py` shows that each state has one.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple


class LogIdentity(StrEnum):
    """The log at one end, compared with the one that was copied."""

    SAME = "same"
    OTHER = "recreated"
    GONE = "missing"
    SHORT = "shorter"


LATEST = "latest"
REFILL = "refill"
"""The reason of a position that a refill set."""


@dataclass(frozen=True, slots=True)
class PartitionStanding:
    """One partition of a link, as far as commands depend on it."""

    source: LogIdentity = LogIdentity.SAME
    target: LogIdentity = LogIdentity.SAME
    records: bool = True
    """Whether the source log has records."""
    empty: bool = False
    """Whether the target log has no records: its end offset is 0."""
    ready: bool = True
    """Whether the target log exists and no change must precede its records."""
    stopped: bool = False
    """Whether the partition is not copied until an operator executes a command."""
    leased: bool = False
    """Whether a lease of the partition is in progress."""
    refilling: bool = False
    """Whether a refill is in progress."""
    begun: bool = True
    """Whether the copy has passed the beginning of the present source log."""
    placed: bool = True
    """Whether the position of the copy is known. Without it, neither end can be compared with it."""

    restored: bool = False
    """Whether another link refilled the target topic."""
    returned: bool = False
    """Whether records of the present target log may have been copied to the source over other clusters."""

    @property
    def lost(self) -> bool:
        """Whether the target does not have what the link wrote, and a refill can restore it."""
        return self.target is LogIdentity.OTHER or self.empty or (self.target is LogIdentity.GONE and self.stopped)


class Refillable(StrEnum):
    """Whether a refill of a partition can start."""

    NOTHING = "nothing"  # the target lost nothing, or the source has nothing
    COPYING = "copying"
    NO_TARGET = "the target topic does not exist yet"
    RESET_FIRST = "the source topic was recreated too, and the target topic is created after a reset only"
    LEASED = "a lease has not ended"
    BACK_LEASED = "a lease of the opposite link has not ended"
    BACK_COPIED = "the opposite link has copied from the new target log"
    RESTORED = "another link refilled the target topic, and a second refill would repeat its records"
    RETURNED = "records of the new target topic, which were copied to the source over other clusters, would be repeated"
    PLANNED = "planned"


WILL_BE = frozenset({Refillable.NO_TARGET, Refillable.LEASED, Refillable.BACK_LEASED})
"""A refill that can start later, without another command."""


def refillable(mine: PartitionStanding, back: PartitionStanding | None) -> Refillable:
    """Whether the target log of ``mine`` can be refilled. ``back``: the copy of the opposite link, None without one."""
    copying = mine.refilling and not mine.stopped
    if not mine.records or not (mine.lost or copying):
        return Refillable.NOTHING
    if copying:
        return Refillable.COPYING
    if mine.restored:
        return Refillable.RESTORED
    if not mine.ready:
        # A recreated source topic does not have the intended settings: it is aligned after its reset.
        return Refillable.RESET_FIRST if mine.source is LogIdentity.OTHER else Refillable.NO_TARGET
    if mine.leased:
        return Refillable.LEASED
    if mine.returned:
        return Refillable.RETURNED
    if back is None:
        return Refillable.PLANNED
    if back.source is not LogIdentity.SAME:
        # The opposite link lists a topic that exists as missing if its settings exclude it: it gets no lease of it.
        ended = (back.stopped or back.source is LogIdentity.GONE) and not back.leased
        return Refillable.PLANNED if ended else Refillable.BACK_LEASED
    return Refillable.BACK_COPIED if back.begun else Refillable.PLANNED


def restores(back: PartitionStanding | None, mine: PartitionStanding) -> bool:
    """Whether a refill of the opposite link restores records that the source of ``mine`` lost: its own source still is
    the log from which it copied them."""
    if (
        back is None
        or not back.stopped
        or back.target is LogIdentity.SAME
        or back.source not in (LogIdentity.SAME, LogIdentity.SHORT)
    ):
        return False
    return refillable(back, mine) in {Refillable.PLANNED, *WILL_BE}


def may_reset(mine: PartitionStanding, back: PartitionStanding | None, to: str) -> bool:
    """Whether a partition may be reset. What a refill of the opposite link would restore cannot be distinguished from
    records that this link copies first. If its own target lost records, to continue at the end is the decision to do
    without them."""
    return not mine.stopped or not restores(back, mine) or (to == LATEST and mine.target is not LogIdentity.SAME)


Pair = tuple[PartitionStanding, PartitionStanding | None]


def _continued(mine: PartitionStanding) -> PartitionStanding:
    same = LogIdentity.SAME
    return replace(mine, source=same, target=same, stopped=False, refilling=False, placed=True)


def _reset(mine: PartitionStanding, back: PartitionStanding | None) -> Pair:
    return _continued(mine), back


def _refilled(mine: PartitionStanding, back: PartitionStanding | None) -> Pair:
    both = replace(_continued(mine), refilling=True)
    return both, replace(_continued(back), begun=False) if back is not None else None


def _back_refilled(mine: PartitionStanding, back: PartitionStanding | None) -> Pair:
    assert back is not None, "an opposite link restores"
    back, restarted = _refilled(back, mine)
    assert restarted is not None, "it restarts this link"
    return restarted, back


class RecoveryCommand(NamedTuple):
    """A command that leads out of a state."""

    command: str
    """The command with placeholders: {link}, {back} (the opposite link), {part} (the option that selects partitions),
    {exclude} (the excluded topics, with the topic of the partition added) and {offset} (the first lost source
    offset)."""
    when: str
    """The states in which the command is shown, in words."""
    does: str
    applies: Callable[[PartitionStanding, PartitionStanding | None], bool]
    """Returns whether the command is shown in a state."""
    leads: Callable[[PartitionStanding, PartitionStanding | None], Pair]
    """Returns the state that follows the command."""


def _excluded(mine: PartitionStanding, back: PartitionStanding | None) -> Pair:
    return replace(mine, source=LogIdentity.SAME, target=LogIdentity.SAME, stopped=False), back


def _there(mine: PartitionStanding) -> bool:
    return mine.stopped and mine.source is not LogIdentity.GONE


WAYS = (
    RecoveryCommand(
        "trueup config set links.{link}.exclude {exclude}",
        "the source topic does not exist",
        "the link no longer lists the topic; if it was deleted by mistake, create it again instead",
        lambda mine, _back: mine.source is LogIdentity.GONE,
        _excluded,
    ),
    RecoveryCommand(
        "trueup link refill {link} --yes",
        "the target lost its records, and the source has records",
        "all records of the source are copied to the target again; an opposite link restarts",
        lambda mine, back: _there(mine) and refillable(mine, back) in {Refillable.PLANNED, *WILL_BE},
        _refilled,
    ),
    RecoveryCommand(
        "trueup link refill {back} --yes",
        "the source lost records, and the opposite link, which is stopped, can restore them",
        "the source gets the records that the target has, and this link restarts",
        lambda mine, back: _there(mine) and restores(back, mine),
        _back_refilled,
    ),
    RecoveryCommand(
        "trueup link reset {link} {part} --to {offset} --yes",
        "the target has fewer records than were acknowledged",
        "the records from the first lost one on are copied again",
        lambda mine, back: (
            _there(mine)
            and mine.target is LogIdentity.SHORT
            and mine.source is LogIdentity.SAME
            and may_reset(mine, back, "")
        ),
        _reset,
    ),
    RecoveryCommand(
        "trueup link reset {link} {part} --to earliest --yes",
        "the source topic was recreated, the target lost all records, or the position of the copy is not readable",
        "all records of the source are copied, after those that the target has",
        lambda mine, back: (
            _there(mine)
            and (
                not mine.placed
                or mine.source is LogIdentity.OTHER
                or mine.target in (LogIdentity.OTHER, LogIdentity.GONE)
            )
            and may_reset(mine, back, "")
        ),
        _reset,
    ),
    RecoveryCommand(
        "trueup link reset {link} {part} --to latest --yes",
        "the partition is stopped by a rule",
        "only records that are written from now on are copied",
        lambda mine, back: _there(mine) and may_reset(mine, back, LATEST),
        _reset,
    ),
)


def ways(mine: PartitionStanding, back: PartitionStanding | None) -> list[RecoveryCommand]:
    """The commands that lead out of a state, the recommended one first; none if the partition is not stopped."""
    return [way for way in WAYS if way.applies(mine, back)]
