"""The log of a bucket: a base of blocks that was compacted, and a tail of what came since."""

from collections.abc import Callable
from typing import NamedTuple

from trueup.state.common.block_store import Store

TAIL_ROWS = 4096
TAIL_BLOCKS = 64
BLOCK_ROWS = 16_384  # rows of a block of the base: blocks stay well below the size a state store likes


class Shape(NamedTuple):
    """How many blocks and rows base and tail have. The view keeps it in a cell."""

    base_blocks: int = 0
    base_rows: int = 0
    tail_blocks: int = 0
    tail_rows: int = 0


class BucketLog:
    """Appends blocks, and tells when to compact them: rarely enough that a row is written a few times in all."""

    def __init__(self, store: Store, shape: Shape) -> None:
        self._store, self.shape = store, shape

    def append(self, block: bytes, rows: int) -> bool:
        """Add a block of so many rows. True: compact the log now."""
        self._store.append(block)
        base_blocks, base_rows, tail_blocks, tail_rows = self.shape
        self.shape = Shape(base_blocks, base_rows, tail_blocks + 1, tail_rows + rows)
        return self.shape.tail_rows > max(TAIL_ROWS, base_rows // 2) or self.shape.tail_blocks > TAIL_BLOCKS

    def compact(self, rows: int, block: Callable[[int, int], bytes]) -> None:
        """Put a base of so many rows in place of the log. ``block``: rows from one place up to another, as bytes."""
        blocks = [block(at, min(at + BLOCK_ROWS, rows)) for at in range(0, rows, BLOCK_ROWS)]
        self._store.rewrite(blocks)
        self.shape = Shape(len(blocks), rows)
