"""Approvals of operators: which actions of the current plan they concern, and their rows of the history."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from trueup.state.common.errors import Refused
from trueup.streams.journal.history import History
from trueup.streams.journal.history_row import HistoryRow
from trueup.streams.runtime.stream import AWAITING, PlanRow, Stream

APPROVAL = "approval"
"""The kind of these rows of the history."""


class Approvals:
    """Approves actions of streams."""

    def __init__(self, history: History, clock: Callable[[], int]) -> None:
        self._history, self._clock = history, clock

    def approve(self, streams: Mapping[str, Stream], ids: Collection[str] | None) -> list[PlanRow]:
        """Approve the actions with these ids (None: all that wait); returns the approved ones. Raises `Refused` before
        anything is approved if an id is not that of an action that waits, and afterwards if an action of an id changed
        meanwhile: it is not approved."""
        plans = {name: waiting(stream.plan(), ids) for name, stream in streams.items()}
        _ensure_all(ids, (row for rows in plans.values() for row in rows))
        approved = list[PlanRow]()
        for name, rows in plans.items():
            if rows:
                of_stream = streams[name].approve(rows)
                self._history.add(*(_entry(row, self._clock()) for row in of_stream))
                approved += of_stream
        _ensure_all(ids, approved)
        return approved


def _ensure_all(ids: Collection[str] | None, rows: Iterable[PlanRow]) -> None:
    if missing := {*(ids or ())}.difference(row.id for row in rows):
        raise Refused("ids of the current plan", ", ".join(sorted(missing)), "run `trueup plan` again")


def waiting(rows: Sequence[PlanRow], ids: Collection[str] | None = None) -> list[PlanRow]:
    """The actions that wait for approval; with ``ids`` those of them."""
    return [row for row in rows if row.stage == AWAITING and (ids is None or row.id in ids)]


def _entry(row: PlanRow, now_ms: int) -> HistoryRow:
    ledger, link, broker = (row.about.get(noun) for noun in ("ledger", "link", "broker"))
    return HistoryRow(now_ms, row.id, APPROVAL, "approved", ledger, link, broker, row.rule, row.reason)
