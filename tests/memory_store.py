"""A store for the bucket of a view in tests."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class MemoryStore:
    """A `trueup.state.common.block_store.Store` in memory."""

    log: list[bytes] = field(default_factory=list)
    cells: dict[str, bytes] = field(default_factory=dict)

    def blocks(self) -> list[bytes]:
        return self.log

    def append(self, block: bytes) -> None:
        self.log = [*self.log, block]

    def rewrite(self, blocks: Sequence[bytes]) -> None:
        self.log = list(blocks)

    def get(self, cell: str) -> bytes:
        return self.cells.get(cell, b"")

    def put(self, cell: str, content: bytes) -> None:
        self.cells[cell] = content
