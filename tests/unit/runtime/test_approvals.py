"""Which actions an approval concerns, and what the history shows of it."""

from collections.abc import Sequence

import pytest

from trueup.state.common.errors import Refused
from trueup.streams.journal.history import History
from trueup.streams.runtime.approvals import Approvals
from trueup.streams.runtime.stream import AWAITING, PlanRow, Stream, StreamStatus

NOW = 5_000


class Planning(Stream):
    """A stream whose plan has an action of each of these ids. Those of ``changing`` change before they are approved."""

    name = "planning"

    def __init__(self, *ids: str, stage: str = AWAITING, changing: str = "") -> None:
        self.rows_of_plan = [PlanRow(name, "grow", "piles.small", "too small", stage, {"pile": "b"}) for name in ids]
        self.changing, self.approved = changing, list[str]()

    def status(self, now_ms: int) -> StreamStatus:
        raise NotImplementedError

    def plan(self) -> list[PlanRow]:
        return self.rows_of_plan

    def approve(self, rows: Sequence[PlanRow]) -> list[PlanRow]:
        unchanged = [row for row in rows if row.id != self.changing]
        self.approved += [row.id for row in unchanged]
        return unchanged


def approve(ids: list[str] | None, *streams: Planning, history: History | None = None) -> list[str]:
    """The ids of the approved actions."""
    by_name = {str(number): stream for number, stream in enumerate(streams)}
    return [row.id for row in Approvals(history or History(), lambda: NOW).approve(by_name, ids)]


def test_an_id_approves_its_action_alone() -> None:
    assert approve(["b"], Planning("a", "b"), Planning("c")) == ["b"]


def test_without_ids_all_that_waits_is_approved() -> None:
    assert approve(None, Planning("a"), Planning("b", stage="approved"), Planning("c")) == ["a", "c"]


@pytest.mark.parametrize("stage", ["approved", "planned", "held"])
def test_an_action_that_does_not_wait_is_refused(stage: str) -> None:
    with pytest.raises(Refused, match="found a; run `trueup plan` again"):
        approve(["a"], Planning("a", stage=stage))


def test_an_unknown_id_approves_nothing_of_any_stream() -> None:
    stream = Planning("a")
    with pytest.raises(Refused, match="found x, y; run `trueup plan` again"):
        approve(["a", "y", "x"], stream)
    assert stream.approved == []


def test_an_action_that_changes_meanwhile_is_refused_by_its_id() -> None:
    with pytest.raises(Refused, match="found b; run `trueup plan` again"):
        approve(["a", "b"], Planning("a", "b", changing="b"))


def test_an_action_that_changes_meanwhile_does_not_keep_all_others_from_approval() -> None:
    assert approve(None, Planning("a", "b", changing="b")) == ["a"]


def test_the_history_has_a_row_for_each_approved_action() -> None:
    history = History()
    with pytest.raises(Refused):
        approve(["a", "b"], Planning("a", "b", changing="b"), history=history)
    assert [(row.at_ms, row.id, row.kind, row.outcome) for row in history.rows()] == [
        (NOW, "a", "approval", "approved")
    ]
