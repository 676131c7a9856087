"""What a copy of one ledger does with the results of its tasks, without a cluster."""

from collections.abc import Collection, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from trueup.connectors.bookkeeper.bookie.striping import EnsembleRange
from trueup.connectors.bookkeeper.copy.adds import RefusingTarget
from trueup.connectors.bookkeeper.copy.stripes import StripeCopy
from trueup.state.common.errors import Retry
from trueup.state.placement.copies.targets import LedgerMoves, ReplicaMove
from trueup.streams.placement.repairs import copying
from trueup.streams.placement.repairs.copy_task import CopyResult, CopyTask
from trueup.streams.placement.repairs.copying import CopiesUnderWay, CopyOutcome

LEDGER = 7
MOVES = LedgerMoves((ReplicaMove(0, 0, "a", "x", 5), ReplicaMove(5, 1, "b", "y", 3)))
DONE, AWAY = CopyResult(5, 50), CopyResult(error=Retry("entry 5", "b: no registration", "retry"))
REFUSED = CopyResult(error=RefusingTarget("entry 5 to be written to bookie y", "FENCED", "choose another bookie"))


class Held:
    """A locked ledger with one stripe for each move."""

    def __init__(self, *_: Any) -> None:
        self.stripes = [
            StripeCopy(EnsembleRange(move.first_entry, move.first_entry, ("a", "b")), move.place, move.after)
            for move in MOVES.moves
        ]
        self.left: Collection[int] | None = None
        held.append(self)

    def __enter__(self) -> "Held":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def commit(self, without: Collection[int]) -> None:
        self.left = without


held: list[Held] = []


class Copies(CopiesUnderWay):
    """Copies whose tasks have these results."""

    def __init__(self, *results: CopyResult) -> None:
        client = SimpleNamespace(session=1)
        cluster: Any = SimpleNamespace(session=lambda: client, paths=None)
        super().__init__(cluster, lambda: SimpleNamespace(), lambda: None, None)  # type: ignore[arg-type, return-value]
        self._results = list(results)

    def _tasks(self, tasks: Sequence[CopyTask], ledger: int) -> list[CopyResult]:
        return self._results


def ended(monkeypatch: pytest.MonkeyPatch, *results: CopyResult) -> tuple[Copies, CopyOutcome]:
    """A copy whose tasks have these results, and how it ended."""
    held.clear()
    monkeypatch.setattr(copying, "LockedLedger", Held)
    copies = Copies(*results)
    copies._run(LEDGER, 1, MOVES)
    return copies, copies.taken()[0]


def test_a_fragment_that_cannot_be_read_does_not_hold_back_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    _, outcome = ended(monkeypatch, DONE, AWAY)
    assert (outcome.result, [*(held[0].left or ())]) == ("copied", [5])


def test_the_outcome_names_the_fragment_that_was_left(monkeypatch: pytest.MonkeyPatch) -> None:
    _, outcome = ended(monkeypatch, DONE, AWAY)
    assert outcome.detail.startswith("5 entries copied; the fragment from entry 5 on was left: expected entry 5")


def test_nothing_changes_if_no_fragment_could_be_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    _, outcome = ended(monkeypatch, AWAY, AWAY)
    assert (outcome.result, held[0].left) == ("retry", None)


def test_a_bookie_that_refused_the_ledger_is_not_chosen_again(monkeypatch: pytest.MonkeyPatch) -> None:
    copies, _ = ended(monkeypatch, DONE, REFUSED)
    assert copies.refusing(LEDGER) == {"y"}


def test_a_bookie_that_did_not_respond_may_be_chosen_again(monkeypatch: pytest.MonkeyPatch) -> None:
    copies, _ = ended(monkeypatch, DONE, AWAY)
    assert copies.refusing(LEDGER) == set()
