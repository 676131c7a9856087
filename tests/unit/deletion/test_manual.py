"""Deletions that an operator orders where no metadata contains the ledgers in use."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.journals import FakeJournal
from tests.unit.deletion.fake_deletion import NOW, FakeCluster, stages
from trueup.connectors.bookkeeper.deletion.remove import RemovalOrder, Removed
from trueup.state.bookkeeper.ledgers import Ledgers, concat, row
from trueup.state.bookkeeper.observations import LedgerRecord, LedgerState
from trueup.state.common.errors import Refused, Retry
from trueup.state.deletion.lifecycle import DeletionStage
from trueup.state.deletion.settings import DeletionSettings
from trueup.streams.config.live import LiveSection
from trueup.streams.deletion.manual import OrderedDeletions
from trueup.streams.deletion.report import DeletionReport


class FakeBookKeeper(FakeCluster):
    """Ledgers by id and version. ``custom`` and ``state``: custom metadata and state of all ledgers."""

    custom: dict[str, bytes]
    state = LedgerState.CLOSED

    def __init__(self) -> None:
        super().__init__()
        self.custom, self.ordered = {}, list[RemovalOrder]()

    def describe(self, ledger: int) -> tuple[LedgerRecord, Ledgers]:
        if ledger not in self.versions:
            raise Refused(f"ledger {ledger}", "no such ledger", "look again")
        fields = {"ledger": ledger, "version": self.versions[ledger], "ctime_ms": 1, "length": 100, "error": ""}
        return {**fields, "state": self.state, "custom": self.custom}, self.read([ledger])  # type: ignore[typeddict-item]

    def read(self, ledgers: Sequence[int]) -> Ledgers:
        return concat(
            [row(i, ["a:1", "b:1"], quorum=2, version=self.versions[i]) for i in ledgers if i in self.versions]
        )

    def remove(self, orders: list[RemovalOrder]) -> list[Removed]:
        self.ordered += orders
        self.versions = {i: v for i, v in self.versions.items() if i not in {order.ledger for order in orders}}
        return [Removed(order.ledger, "deleted") for order in orders]

    def unseen(self) -> str:
        return ""

    def unlike(self, instance: str) -> str:
        return "" if instance == "x" else "another cluster"


class Loop:
    """Manual deletions over these fakes, in mode approve."""

    def __init__(self) -> None:
        self.cluster, self.journal, self.now_ms = FakeBookKeeper(), FakeJournal(), NOW
        self.cluster.versions = {7: 3, 8: 3}
        self.policy = DeletionSettings(owners="operator", instance="x", mode="approve", grace_s=3_600)
        self.orders = self.begun()

    def begun(self) -> OrderedDeletions:
        made = OrderedDeletions(
            self.cluster,
            self.journal,
            LiveSection(lambda: self.policy),
            lambda *_: None,
            lambda: self.now_ms,  # type: ignore[arg-type]
        )
        made.load()
        return made

    def passes(self, count: int = 4) -> dict[int, DeletionStage]:
        for _ in range(count):
            self.now_ms += 1_000
            self.orders.reconcile()
        return {ledger: deletion.stage for ledger, deletion in self.orders.reconciler.deletions.items()}

    def outcomes(self) -> list[str]:
        return [step.outcome for step in self.orders.reconciler.history.rows()]


def test_what_is_ordered_goes_and_is_confirmed() -> None:
    loop = Loop()
    loop.orders.order(7)
    loop.passes()
    assert (loop.cluster.ordered, loop.outcomes()[-2:]) == (
        [RemovalOrder(7, 3, 1)],
        ["gone-from-metadata", "confirmed"],
    )


def test_the_deletion_is_on_the_journal_before_anything_is_done() -> None:
    loop = Loop()
    deletion = loop.orders.order(7)
    assert (deletion.stage, stages(loop.journal), loop.cluster.ordered) == (
        DeletionStage.SUSPECTED,
        [["suspected"]],
        [],
    )


def test_an_order_outlives_the_application() -> None:
    loop = Loop()
    loop.orders.order(7)
    loop.orders = loop.begun()
    loop.passes()
    assert loop.outcomes()[-1] == "confirmed"


def test_what_was_written_since_is_left_alone() -> None:
    loop = Loop()
    loop.orders.order(7)
    loop.cluster.versions[7] = 4
    loop.passes()
    assert (loop.outcomes()[-1], loop.cluster.ordered) == ("withdrawn", [])


@pytest.mark.parametrize("state", [LedgerState.OPEN, LedgerState.IN_RECOVERY, LedgerState.UNREADABLE])
def test_only_closed_ledgers_go(state: LedgerState) -> None:
    loop = Loop()
    loop.cluster.state = state
    with pytest.raises(Refused, match="a closed ledger"):
        loop.orders.order(7)


DATA = {"application": b"pulsar", "component": b"managed-ledger", "pulsar/managed-ledger": b"t/n/p/x"}


@pytest.mark.parametrize(
    "custom",
    [
        DATA,
        {**DATA, "component": b"managed-ledger-2"},
        {**DATA, "pulsar/managed-ledger": b"\xff"},
        {**DATA, "other": b"\xff"},
        {"application": b"pulsar"},
        {"application": b"Pulsar-Functions"},
        {"application": b"\xff"},
        {"pulsar/new": b""},
        {"a\ufffd": b""},
    ],
)
def test_ledgers_with_any_sign_of_pulsar_are_refused(custom: dict[str, bytes]) -> None:
    loop = Loop()
    loop.cluster.custom = custom
    with pytest.raises(Refused, match="not Pulsar's"):
        loop.orders.order(7)


def test_what_another_application_wrote_may_go() -> None:
    loop = Loop()
    loop.cluster.custom = {"application": b"ours", "id": b"\xff\x00"}
    loop.orders.order(7)
    loop.passes()
    assert loop.outcomes()[-1] == "confirmed"


def test_in_mode_observe_nothing_is_ordered() -> None:
    loop = Loop()
    loop.policy = replace(loop.policy, mode="observe")
    with pytest.raises(Refused, match=r"deletion\.mode"):
        loop.orders.order(7)


def test_on_another_cluster_nothing_begins() -> None:
    loop = Loop()
    loop.policy = replace(loop.policy, instance="y")
    with pytest.raises(Retry, match="another cluster"):
        loop.orders.order(7)


def test_a_bookie_that_is_silent_keeps_it_pending() -> None:
    loop = Loop()
    loop.cluster.holding = {"a:1": "no answer"}
    loop.orders.order(7)
    assert (loop.passes(), loop.orders.reconciler.deletions[7].pending) == ({7: DeletionStage.GONE}, ("a:1",))


def test_what_ended_is_listed_no_more() -> None:
    loop = Loop()
    loop.orders.order(7)
    policy = LiveSection(lambda: loop.policy)
    report = DeletionReport(policy, loop.orders.reconciler, loop.orders.owners, lambda: loop.now_ms)
    rows: list[Any] = [row["ledger"] for row in report.rows(10)]
    loop.passes()
    assert (rows, report.rows(10)) == ([7], [])


def test_without_orders_a_deletion_by_an_operator_is_refused() -> None:
    loop = Loop()
    policy = replace(loop.policy, owners="pulsar")
    report = DeletionReport(
        LiveSection(lambda: policy), loop.orders.reconciler, loop.orders.owners, lambda: loop.now_ms
    )
    with pytest.raises(Refused, match=r"deletion\.owners operator"):
        report.order(7)
