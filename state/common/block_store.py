"""Where a bucket of a view is kept: one log of blocks and a few named cells."""

from collections.abc import Sequence
from typing import Protocol


class Store(Protocol):
    """One log of blocks and a few named cells: Spark state in the application, a dictionary in tests."""

    def blocks(self) -> list[bytes]:
        """All blocks of the log, in order."""

    def append(self, block: bytes) -> None:
        """Add one block to the log."""

    def rewrite(self, blocks: Sequence[bytes]) -> None:
        """Put these blocks in place of the log."""

    def get(self, cell: str) -> bytes:
        """The content of a cell, empty if it was never put."""

    def put(self, cell: str, content: bytes) -> None:
        """Set a cell."""
