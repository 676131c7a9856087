"""How long records have waited to be copied, measured with one clock: their timestamps are the producer's."""

from dataclasses import dataclass, field

MOST_ENDS = 64


@dataclass(slots=True)
class Wait:
    """How long the records of one partition have waited to be copied, by the clock of the observing process."""

    offset: int
    """The first source offset that is not copied."""
    moved_ms: int
    """The last time, in ms since the epoch, when the offset changed, no record waited, or the copy began or resumed."""
    mark: int = -1
    """The end of the source when the copy began or resumed, -1 if unknown."""
    moving: bool = False
    ends: list[tuple[int, int]] = field(default_factory=list)
    """The ends of the source beyond ``offset``, each with the time of its first observation."""

    def observe(self, offset: int, end: int, moving: bool, begun: bool, now_ms: int) -> None:
        """Record the current offsets; -1: unknown. ``moving``: the partition should be copied. Records beyond a lower
        end than before do not exist: the log was recreated or lost them."""
        if end >= 0:
            self.mark = min(self.mark, end)
        if moving and not self.moving:
            self.mark, self.moved_ms = end, now_ms
        self.moving = moving
        if begun and (offset != self.offset or 0 <= end <= offset):
            self.moved_ms = now_ms
        self.offset = offset
        ends = [pair for pair in self.ends if pair[0] > offset and (end < 0 or pair[0] <= end)]
        if end > max((pair[0] for pair in ends), default=offset):
            ends.append((end, now_ms))
        if len(ends) > MOST_ENDS:
            del ends[1:-1:2]
        self.ends = ends

    def waited_ms(self, now_ms: int) -> int:
        """The time since which the record at ``offset`` exists; 0: there is none."""
        return now_ms - self.ends[0][1] if self.ends else 0

    @property
    def backlog(self) -> bool:
        """Whether records are left that existed when the copy began or resumed."""
        return self.offset < self.mark
