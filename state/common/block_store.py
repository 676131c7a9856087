"""The storage of one bucket of a view: a log of blocks and a few named cells."""

from collections.abc import Sequence
from typing import Protocol


class Store(Protocol):
    """One log of blocks and a few named cells: Spark state in the application, a dictionary in tests."""

    def blocks(self) -> list[bytes]:
        """All blocks of the log, in order."""

    def append(self, block: bytes) -> None:
        """Add one block to the log."""

    def rewrite(self, blocks: Sequence[bytes]) -> None:
        """Replace the log with these blocks."""

    def get(self, cell: str) -> bytes:
        """The content of a cell; empty if the cell was never written."""

    def put(self, cell: str, content: bytes) -> None:
        """Set a cell."""
