"""Targets of deletions: ledgers on bookies, or objects of ledgers in tiered storage."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from trueup.state.bookkeeper.ledgers import Ledgers
from trueup.state.deletion.lifecycle import Deletion, DeletionEvent

OUTCOMES = {
    "deleted": DeletionEvent.DONE,
    "gone": DeletionEvent.DONE,
    "refused": DeletionEvent.REFUSE,
    "retry": DeletionEvent.FAIL,
}
"""Events of the results of orders; after an unknown result the next observation decides."""


class DeletionResult(NamedTuple):
    """The result of an order or of a check."""

    ledger: int
    result: str
    """One of `OUTCOMES`, or unknown; ready for a check whose preconditions hold."""
    detail: str
    """The reason, as text."""


Check = Callable[[Sequence[Deletion]], list[DeletionResult]]
"""Checks all preconditions of a deletion without deleting; "ready" if they hold."""


def ready(deletions: Sequence[Deletion]) -> list[DeletionResult]:
    """The check of a cluster in which a deletion has no further preconditions."""
    return [DeletionResult(deletion.ledger, "ready", "") for deletion in deletions]


class DeletionItem(NamedTuple):
    """The current state of a target."""

    version: int
    """A number that changes with the target; -1 if the target cannot change."""
    places: tuple[str, ...]
    """Everything that stores a part of the target and must confirm the deletion: bookies, or stores with a key."""


class DeletionTarget(Protocol):
    """The operations of connectors that the loop needs."""

    def find(self, ledgers: Sequence[int]) -> Mapping[int, DeletionItem]:
        """Current state of these ledgers, without those that do not exist."""

    def delete(self, deletions: Sequence[Deletion]) -> list[DeletionResult]:
        """Delete these, each if no precondition of its deletion has changed."""

    def held(self, asked: Mapping[int, Sequence[str]]) -> dict[int, dict[str, str]]:
        """Places that have not confirmed that they contain nothing of it, each with its response."""

    def seek(self, owners: Collection[str]) -> None:
        """Observe these owners soon: ledgers name them, and no node of theirs has been observed."""

    def absent(self, ledgers: Sequence[int]) -> set[int]:
        """Those of these that certainly do not exist."""

    def blocked_reason(self) -> str:
        """Why no deletion is possible now; empty if it is."""


def items_of(rows: Ledgers) -> dict[int, DeletionItem]:
    """Ledgers according to their metadata: every bookie of any ensemble, in order."""
    places = (
        tuple(sorted({bookie for ensemble in rows.ensembles(at) for bookie in ensemble})) for at in range(len(rows))
    )
    return dict(zip(rows.ledger.tolist(), map(DeletionItem, rows.version.tolist(), places), strict=True))
