"""What a copy of one partition remembers: how many records it wrote under each of its producer ids, and from where on
in the target its own later batches would be."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from trueup.connectors.contract import Carry, Position

_FLOOR, _ID = "target", "id:"


@dataclass(slots=True)
class Place:
    """Source offset reached, and next sequence per producer id.

    ``floor``: every batch of ours at the target that is not counted here stands at this target offset or after it
    (-1: not known). ``chosen``: by a person, so that whatever the target has of ours counts as done.
    """

    offset: int
    counts: dict[int, int] = field(default_factory=dict)
    floor: int = -1
    chosen: bool = False

    @classmethod
    def of(cls, position: Position, start: int) -> Self:
        """From what was journaled; at ``start`` if nothing was ever copied. An offset that another path reached is
        as good as chosen."""
        carry: Carry = position.carry
        counts = {int(key.removeprefix(_ID), 16): n for key, n in carry.items() if key.startswith(_ID)}
        offset = position.offset if position.offset >= 0 else start
        chosen = position.chosen or (position.offset >= 0 and _FLOOR not in carry)
        return cls(offset, counts, carry.get(_FLOOR, -1), chosen)

    def position(self) -> Position:
        """For the journal. What a person chose stays chosen until the target was asked."""
        ids = {f"{_ID}{producer:x}": count for producer, count in sorted(self.counts.items())}
        return Position(self.offset, {_FLOOR: self.floor, **ids}, self.chosen)

    def ahead(self, last: Mapping[int, int]) -> dict[int, int]:
        """Those last sequences of ours, by producer id, before which there are batches that are not counted here."""
        return {producer: n for producer, n in last.items() if ahead(following(n), self.counts.get(producer, 0)) > 0}

    def agrees(self, last: Mapping[int, int]) -> bool:
        """Whether no last sequence of ours, by producer id, is another than is counted here. A leader that forgot a
        producer does not tell it."""
        return all(self.counts.get(producer, 0) == following(sequence) for producer, sequence in last.items())


def following(sequence: int) -> int:
    """The sequence after this one; after 2^31 - 1 comes 0."""
    return (sequence + 1) & 0x7FFFFFFF


def ahead(sequence: int, of: int) -> int:
    """How far a sequence is ahead of another (negative: behind), the shorter way round."""
    distance = (sequence - of) & 0x7FFFFFFF
    return distance if distance < 1 << 30 else distance - (1 << 31)
