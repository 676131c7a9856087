"""Orphan objects: their names, report, plan and approval."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.journals import FakeJournal
from tests.unit.deletion.fake_deletion import Loop
from tests.unit.deletion.fake_store import CLUSTER, FakeOwners, FakeStore, OwnerNode, StoredObject
from trueup.connectors.pulsar.orphan_objects import OrphanSearch
from trueup.connectors.s3.store import BucketLocation, Head, NoAccess, Object, Upload
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
    ids=[
        "not listed",
        "listed",
        "another lists it",
        "an upload",
        "an upload of none",
        "says nothing",
        "two owners",
        "owner gone",
        "another cluster",
        "two clusters",
        "unreadable",
        "shadow",
        "no cluster set",
        "an upload, no cluster set",
    ],
)
def test_what_objects_are_called(found: str, expected: str) -> None:
    assert found == expected


class Down:
    """A store that cannot be listed until ``listed``; it is empty."""

    place = BucketLocation("old")
    listed = False

    def objects(self) -> Iterator[list[Object]]:
        if not self.listed:
            raise NoAccess("old to list objects", "InvalidAccessKeyId", "correct the credentials")
        return iter(())

    def uploads(self) -> Iterator[list[Upload]]:
        return iter(())

    def delete(self, keys: Sequence[str]) -> list[str]:
        return list(keys)


class Blocked(FakeOwners):
    """Owners with a reason that blocks deletions."""

    problem = damaged = ""

    def blocked_reason(self) -> str:
        return self.problem

    def undecoded(self) -> str:
        return self.damaged


class Setting:
    """Two objects of a ledger that its owner does not list, and an unreferenced ledger."""

    def __init__(self, mode: str) -> None:
        self.now_ms, self.nodes, self.shelf = 10_000_000, {OWNER: OwnerNode([9])}, FakeStore()
        for key in (PAIR.data_key, PAIR.index_key):
            self.shelf.stored[key] = StoredObject(OWNER, 1)
        self.loop, self.journal = Loop(mode).marked(7), FakeJournal()
        self.asked = Blocked(self.nodes)
        self.start()
        self.reconcile(3)

    def start(self, **others: Any) -> "Setting":
        """Start, or start again, with these stores besides."""
        shelves: Any = {"archive": self.shelf, **others}
        declared = {name: StoreSettings(name, cluster=CLUSTER, list_s=1) for name in shelves}
        self.orphans = OrphanObjects(
            shelves,
            declared,
            self.asked,
            self.journal,
            LiveSection(lambda: self.loop.policy),
            lambda *_: None,
            lambda: self.now_ms,  # type: ignore[arg-type]
        )
        self.orphans.load()
        self.report = DeletionReport(
            LiveSection(lambda: self.loop.policy),
            self.loop.deletions,
            self.loop.cluster,
            lambda: self.now_ms,
            orphans=self.orphans,
        )
        return self

    def reconcile(self, count: int = 1) -> "Setting":
        for _ in range(count):
            self.now_ms += 2_000
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
    assert ([row.id for row in approved], setting.shelf.stored) == (["delete-objects-7"], {})
    assert setting.plan() == [("delete-7-v3", "awaiting approval")]


def test_no_object_is_deleted_while_a_node_cannot_be_decoded() -> None:
    setting = Setting("approve")
    setting.asked.damaged = "expected znodes that can be decoded; found 1 other"
    setting.approve("delete-objects-7")
    setting.reconcile(3)
    assert set(setting.shelf.stored) == {PAIR.data_key, PAIR.index_key}


def test_all_that_waits_is_approved_at_once() -> None:
    setting = Setting("approve")
    assert {row.id for row in setting.approve()} == {"delete-7-v3", "delete-objects-7"}


def test_both_are_in_the_list_the_totals_and_the_deletions() -> None:
    report = Setting("approve").report
    assert {row["rule"] for row in report.rows(10)} == {"deletion.forgotten", "deletion.copy-forgotten"}
    assert (report.status().bytes, report.status().deletions) == (110, {"marked": 2})
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


def lost_offload() -> Setting:
    """The node of the owner names an offloaded copy of ledger 7 whose objects no store has."""
    setting = Setting("observe")
    setting.loop.change(missing_s=0)
    node = setting.nodes[OWNER]
    node.listed = [7, 9]
    lost = OffloadedCopy(ObjectPair("00000000-89ab-cdef-0123-456789abcdef", 7), True, "S3", "shelf")
    node.copies.append(lost)
    return setting


def test_a_lost_offload_is_reported_before_orphan_objects() -> None:
    setting = lost_offload()
    setting.reconcile()
    assert [row["rule"] for row in setting.report.rows(10) if row["rule"].startswith("deletion.copy")] == [
        "deletion.copy-lost"
    ]


def test_what_a_store_lost_is_reported_while_another_store_cannot_be_listed() -> None:
    setting = lost_offload()
    setting.start(old=Down()).reconcile()
    assert "deletion.copy-lost" in [row["rule"] for row in setting.report.rows(10)]


def test_while_a_store_is_not_listed_deletions_remain_and_nothing_is_deleted() -> None:
    setting = Setting("approve")
    setting.approve("delete-objects-7")
    setting.start(old=Down()).reconcile(3)
    assert (setting.plan()[1], len(setting.shelf.stored)) == (("delete-objects-7", "marked"), 2)


def test_once_every_store_is_listed_what_was_approved_before_the_start_is_deleted() -> None:
    setting, old = Setting("approve"), Down()
    setting.approve("delete-objects-7")
    setting.start(old=old).reconcile()
    old.listed = True
    setting.reconcile(10)
    assert setting.shelf.stored == {}


def test_stores_that_are_not_listed_yet_are_named_where_the_list_is_incomplete() -> None:
    setting = Setting("approve").start(old=Down()).reconcile()
    assert setting.report.incomplete()[-1:] == ["stores not listed yet: old"]


def test_the_reason_that_blocks_deletions_of_objects_is_a_problem() -> None:
    setting = Setting("approve").start(old=Down()).reconcile()
    assert "deletions of objects are blocked: stores not listed yet: old" in setting.report.stopped()


def test_a_reason_that_blocks_all_deletions_is_reported_once() -> None:
    setting = Setting("approve")
    setting.loop.cluster.problem = setting.asked.problem = "not synchronized yet"
    setting.loop.reconcile()
    setting.reconcile()
    assert setting.report.stopped() == ["deletions are blocked: not synchronized yet"]


def test_in_observe_what_would_be_begun_is_planned() -> None:
    setting = Setting("observe")
    assert ("delete-objects-7", "suspected") in setting.plan()


class Empty:
    """A store without objects, at this location."""

    def __init__(self, place: BucketLocation) -> None:
        self.place = place

    def objects(self) -> Iterator[list[Object]]:
        yield []

    def uploads(self) -> Iterator[list[Upload]]:
        yield []

    def head(self, _key: str) -> Head | None:
        return None


def lost(place: BucketLocation, endpoint: str, count: int = 1) -> int:
    """The number of ledgers with a lost copy, of ``count`` copies that name this endpoint."""
    pairs = [ObjectPair(PAIR.uid, ledger) for ledger in range(count)]
    copies = {pair: OffloadedCopy(pair, True, "aws-s3", place.bucket, endpoint) for pair in pairs}
    now = Referenced(copies, {pair.ledger: OWNER for pair in pairs}, {OWNER: OwnerStatus.READABLE})
    store: Any = Empty(place)
    return len({orphan.ledger for orphan in OrphanSearch("archive", store, "lab").orphans(lambda: now)})


def test_every_lost_copy_is_found() -> None:
    assert lost(BucketLocation("shelf"), "", 1_500) == 1_500


@pytest.mark.parametrize(
    ("declared", "recorded", "expected"),
    [
        ("", "", 1),
        ("", "https://s3.eu-central-1.amazonaws.com", 1),
        ("http://minio:9000", "", 1),
        ("http://minio:9000/", "http://minio:9000", 1),
        ("http://minio:9000", "http://other:9000", 0),
    ],
)
def test_a_copy_is_lost_in_the_store_whose_location_its_record_permits(
    declared: str, recorded: str, expected: int
) -> None:
    assert lost(BucketLocation("shelf", endpoint=declared), recorded) == expected
