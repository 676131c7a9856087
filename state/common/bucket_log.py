"""The log of a bucket: a compacted base of blocks, followed by a tail of later blocks."""

from collections.abc import Callable
from typing import NamedTuple

from trueup.state.common.block_store import Store

TAIL_ROWS = 4096
TAIL_BLOCKS = 64
BLOCK_ROWS = 16_384  # rows of a base block; keeps blocks well below the value size that a state store handles well


class LogShape(NamedTuple):
    """The numbers of blocks and rows in base and tail. The view stores it in a cell."""

    base_blocks: int = 0
    base_rows: int = 0
    tail_blocks: int = 0
    tail_rows: int = 0


class BucketLog:
    """Appends blocks and reports when to compact; the threshold keeps write amplification low."""

    def __init__(self, store: Store, shape: LogShape) -> None:
        self._store, self.shape = store, shape

    def append(self, block: bytes, rows: int) -> bool:
        """Append one block of ``rows`` rows. Returns True if the log should be compacted now."""
        self._store.append(block)
        base_blocks, base_rows, tail_blocks, tail_rows = self.shape
        self.shape = LogShape(base_blocks, base_rows, tail_blocks + 1, tail_rows + rows)
        return self.shape.tail_rows > max(TAIL_ROWS, base_rows // 2) or self.shape.tail_blocks > TAIL_BLOCKS

    def compact(self, rows: int, block: Callable[[int, int], bytes]) -> None:
        """Replace the log with a base of ``rows`` rows. ``block``: serializes the rows of a range."""
        blocks = [block(at, min(at + BLOCK_ROWS, rows)) for at in range(0, rows, BLOCK_ROWS)]
        self._store.rewrite(blocks)
        self.shape = LogShape(len(blocks), rows)
