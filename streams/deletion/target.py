"""What deletions are about: ledgers on bookies, or objects of ledgers in tiered storage."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from trueup.state.bookkeeper.ledgers import Ledgers
from trueup.state.deletion.lifecycle import Deletion, DeletionEvent

OUTCOMES = {
    "deleted": DeletionEvent.DONE,
    "gone": DeletionEvent.DONE,
    "refused": DeletionEvent.REFUSE,
    "retry": DeletionEvent.FAIL,
}
"""What the answer to an order means; an unknown one is left to what is observed."""


class DeletionResult(NamedTuple):
    """What became of an order: one of `OUTCOMES`, or unknown; why, in words."""

    ledger: int
    result: str
    detail: str


Check = Callable[[Sequence[Deletion]], list[DeletionResult]]
"""Looks at all that a deletion would look at, and deletes nothing; "ready" where it would."""


def ready(markers: Sequence[Deletion]) -> list[DeletionResult]:
    """What a cluster says in which nothing has to be looked at before the deletion itself."""
    return [DeletionResult(marker.ledger, "ready", "") for marker in markers]


class Item(NamedTuple):
    """What is to be deleted, as it is now. ``version``: changes with it, -1 where it cannot change; ``places``: all
    that hold a part of it, and that have to say that it is gone: bookies, or stores with a key."""

    version: int
    places: tuple[str, ...]


class Target(Protocol):
    """What the loop needs of connectors."""

    def find(self, ledgers: Sequence[int]) -> Mapping[int, Item]:
        """What there is of these ledgers now; those of which nothing is there are left out."""

    def delete(self, markers: Sequence[Deletion]) -> list[DeletionResult]:
        """Delete these, each if nothing that its marker rests on has changed."""

    def held(self, asked: Mapping[int, Sequence[str]]) -> dict[int, dict[str, str]]:
        """Which of these places do not say that they hold nothing of it, and what they say."""

    def blocked_reason(self) -> str:
        """Why nothing may be deleted now; empty if it may."""


def items_of(rows: Ledgers) -> dict[int, Item]:
    """Ledgers as their metadata have them: every bookie that an ensemble names, in order."""
    places = (tuple(sorted({bookie for ensemble in rows.ensembles(at) for bookie in ensemble}))
              for at in range(len(rows)))  # fmt: skip
    return dict(zip(rows.ledger.tolist(), map(Item, rows.version.tolist(), places), strict=True))
