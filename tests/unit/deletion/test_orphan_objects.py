"""Orphan objects: their names, report, plan and approval."""

from random import Random
from typing import Any

import pytest

from tests.simulation.deletion.shelf import CLUSTER, Asked, Shelf
from tests.simulation.deletion.world import OWNERS, Node, Stored, World
from tests.unit.deletion.fake_deletion import FakeJournal, Loop
from trueup.state.deletion.offloads import ObjectPair, OffloadedCopy
from trueup.state.deletion.orphan_objects import ObjectMetadata, Referenced, StoredPart, judged
from trueup.state.deletion.owners import OwnerStatus
from trueup.state.deletion.stores import StoreSettings
from trueup.streams.config.live import LiveSection
from trueup.streams.deletion.orphan_objects import OrphanObjects
from trueup.streams.deletion.report import DeletionReport
from trueup.streams.runtime.approvals import waiting
from trueup.streams.runtime.stream import PlanRow

OWNER, OTHER = "t/n/persistent/a", "t/n/persistent/b"
PARTS = (StoredPart("archive/x", 5, 7),)
OURS = ObjectMetadata(OWNER, "lab")
PAIR = ObjectPair("01234567-89ab-cdef-0123-456789abcdef", 7)


def rule(
    *metadata: ObjectMetadata,
    lister: str = "",
    status: OwnerStatus = OwnerStatus.READABLE,
    clusters: frozenset[str] = frozenset({"lab"}),
) -> str:
    listed = {7: lister} if lister else {}
    return judged(7, PARTS, set(metadata), clusters, Referenced({}, listed, {OWNER: status})).rule.removeprefix(
        "deletion."
    )


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (rule(OURS), "copy-forgotten"),
        (rule(OURS, lister=OWNER), "copy-replaced"),
        (rule(OURS, lister=OTHER), "copy-unowned"),
        (rule(lister=OWNER), "copy-replaced"),
        (rule(), "copy-unowned"),
        (rule(ObjectMetadata()), "copy-unowned"),
        (rule(OURS, ObjectMetadata(OTHER, "lab")), "copy-unowned"),
        (rule(ObjectMetadata(OTHER, "lab")), "copy-unowned"),
        (rule(ObjectMetadata(OWNER, "else")), "copy-unowned"),
        (rule(OURS, ObjectMetadata(OWNER, "else")), "copy-unowned"),
        (rule(OURS, status=OwnerStatus.UNREADABLE), "owner-unreadable"),
        (rule(OURS, status=OwnerStatus.SHADOW), "owner-unreadable"),
        (rule(OURS, clusters=frozenset()), "copy-unowned"),
        (rule(lister=OWNER, clusters=frozenset()), "copy-unowned"),
    ],
    ids=["not listed", "listed", "another lists it", "an upload", "an upload of none", "says nothing", "two owners",
         "owner gone", "another cluster", "two clusters", "unreadable", "shadow", "no cluster set",
         "an upload, no cluster set"],
)  # fmt: skip
def test_what_objects_are_called(found: str, expected: str) -> None:
    assert found == expected


class Setting:
    """Two objects of a ledger that its owner does not list, and an unreferenced ledger."""

    def __init__(self, mode: str) -> None:
        self.world = World(Random(1), now_ms=10_000_000)
        self.world.nodes[OWNERS[0]] = Node(1, [9], 1)
        for key in (PAIR.data_key, PAIR.index_key):
            self.world.objects[key] = Stored(OWNERS[0], True, 1)
        self.loop, self.journal = Loop(mode).marked(7), FakeJournal()
        self.shelf = Shelf(self.world, self.journal.records, Random(1))
        self.shelf.calm = True
        shelves: Any = {"archive": self.shelf}
        self.orphans = OrphanObjects(
            shelves, {"archive": StoreSettings("archive", cluster=CLUSTER, list_s=1)}, Asked(self.world, self.shelf),
            self.journal, LiveSection(lambda: self.loop.policy), lambda *_: None, lambda: self.world.now_ms,  # type: ignore[arg-type]
        )  # fmt: skip
        self.report = DeletionReport(
            LiveSection(lambda: self.loop.policy),
            self.loop.deletions,
            self.loop.cluster,
            lambda: self.world.now_ms,
            orphans=self.orphans,
        )
        self.reconcile(3)

    def reconcile(self, count: int = 1) -> "Setting":
        for _ in range(count):
            self.world.now_ms += 2_000
            self.orphans.reconcile()
        return self

    def plan(self) -> list[tuple[str, str]]:
        return [(row.id, row.stage) for row in self.report.plan()]

    def approve(self, *ids: str) -> list[PlanRow]:
        """Approve these actions, or all that wait."""
        return self.report.approve(waiting(self.report.plan(), ids or None))


def test_in_enforce_objects_wait_and_ledgers_do_not() -> None:
    assert Setting("enforce").plan() == [("delete-7-v3", "marked"), ("delete-objects-7", "awaiting approval")]


def test_what_is_approved_by_name_goes_and_nothing_else() -> None:
    setting = Setting("approve")
    approved = setting.approve("delete-objects-7")
    setting.reconcile(3)
    assert ([row.id for row in approved], setting.world.objects) == (["delete-objects-7"], {})
    assert setting.plan() == [("delete-7-v3", "awaiting approval")]


def test_all_that_waits_is_approved_at_once() -> None:
    setting = Setting("approve")
    assert {row.id for row in setting.approve()} == {"delete-7-v3", "delete-objects-7"}


def test_both_are_in_the_list_the_totals_and_the_deletions() -> None:
    report = Setting("approve").report
    assert {row["rule"] for row in report.rows(10)} == {"deletion.forgotten", "deletion.copy-forgotten"}
    assert (report.status()["bytes"], report.status()["deletions"]) == (110, {"marked": 2})
    assert [row["bookies"] for row in report.deletions() if row["id"] == "delete-objects-7"] == [
        [f"archive/{PAIR.data_key}", f"archive/{PAIR.index_key}"]
    ]


def test_what_is_done_to_objects_is_in_the_history() -> None:
    setting = Setting("approve")
    setting.approve("delete-objects-7")
    setting.reconcile(3)
    rows = setting.orphans.reconciler.history.rows()
    assert (rows[-1].id, rows[-1].outcome) == ("delete-objects-7", "confirmed")


def test_a_ledger_is_described_with_its_unreferenced_objects() -> None:
    found = Setting("approve").orphans.shown(7)
    assert found[0] == f"archive/{PAIR.data_key}: 5 bytes, deletion.copy-forgotten"


def test_a_lost_offload_is_reported_before_orphan_objects() -> None:
    setting = Setting("observe")
    setting.loop.change(missing_s=0)
    node = setting.world.nodes[OWNERS[0]]
    node.listed = [7, 9]
    lost = OffloadedCopy(ObjectPair("00000000-89ab-cdef-0123-456789abcdef", 7), True, "S3", "shelf")
    node.copies[7] = lost  # type: ignore[assignment]
    setting.reconcile()
    assert [row["rule"] for row in setting.report.rows(10) if row["rule"].startswith("deletion.copy")] == [
        "deletion.copy-lost"
    ]


def test_in_observe_what_would_be_begun_is_planned() -> None:
    setting = Setting("observe")
    assert ("delete-objects-7", "suspected") in setting.plan()
