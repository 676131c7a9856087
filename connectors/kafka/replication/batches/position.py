"""The stored state of a partition's copy: the number of records written under each of its producer ids, and a lower
bound for the target offsets of its later batches."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from trueup.connectors.contract import Position, ResumeState

_FLOOR, _EPOCH, _ID = "target", "epoch", "id:"


@dataclass(slots=True)
class BatchPosition:
    """The source offset that the copy reached, and the number of records that it wrote under each producer id."""

    offset: int
    counts: dict[int, int] = field(default_factory=dict)
    """The next sequence number of each producer id."""
    floor: int = -1
    """A target offset before which the target has no uncounted batch of this copy. -1: unknown."""
    chosen: bool = False
    """Whether an operator or another copy path set the offset. Everything of this copy at the target then counts as
    done."""
    epoch: int = -1
    """The leader epoch of the source records before the offset. -1: unknown."""

    @classmethod
    def of(cls, position: Position, start: int) -> Self:
        """Restore from the journal; at ``start`` if nothing was ever copied. An offset reached by another copy path
        counts as chosen."""
        resume_state: ResumeState = position.resume_state
        counts = {int(key.removeprefix(_ID), 16): n for key, n in resume_state.items() if key.startswith(_ID)}
        offset = position.offset if position.offset >= 0 else start
        chosen = position.chosen or (position.offset >= 0 and _FLOOR not in resume_state)
        epoch = -1 if chosen else resume_state.get(_EPOCH, -1)
        return cls(offset, counts, resume_state.get(_FLOOR, -1), chosen, epoch)

    def position(self) -> Position:
        """The form for the journal. A chosen position remains chosen until the target was read."""
        ids = {f"{_ID}{producer:x}": count for producer, count in sorted(self.counts.items())}
        epoch = {_EPOCH: self.epoch} if self.epoch >= 0 else {}
        return Position(self.offset, {_FLOOR: self.floor, **epoch, **ids}, self.chosen)

    def ahead(self, last: Mapping[int, int]) -> dict[int, int]:
        """The last sequence numbers at the target, by producer id, that are beyond the counted ones."""
        return {producer: n for producer, n in last.items() if ahead(following(n), self.counts.get(producer, 0)) > 0}

    def agrees(self, last: Mapping[int, int]) -> bool:
        """Whether no last sequence number at the target, by producer id, differs from the counted one. A leader
        does not report producers that it forgot."""
        return all(self.counts.get(producer, 0) == following(sequence) for producer, sequence in last.items())


def following(sequence: int) -> int:
    """The next sequence number; 0 after 2^31 - 1."""
    return (sequence + 1) & 0x7FFFFFFF


def ahead(sequence: int, of: int) -> int:
    """How far a sequence number is ahead of another (negative: behind), by the shorter distance."""
    distance = (sequence - of) & 0x7FFFFFFF
    return distance if distance < 1 << 30 else distance - (1 << 31)
