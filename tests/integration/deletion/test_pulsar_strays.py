"""Objects in a real store that no owner references: they are reported by owner, and deleted only after an approval and
another check. Objects in use remain, even if a listing is wrong."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.objects import client_of
from tests.unit.deletion.fake_deletion import FakeCluster, FakeJournal, Loop
from trueup.connectors.s3.store import BucketLocation, Object, ObjectStore
from trueup.sandbox.servers.objects import REGION, Objects
from trueup.state.common.errors import Retry
from trueup.state.deletion.offloads import ObjectPair, OffloadedCopy
from trueup.state.deletion.orphan_objects import Referenced
from trueup.state.deletion.owners import OwnerStatus, Pointers
from trueup.state.deletion.settings import DeletionSettings
from trueup.state.deletion.stores import StoreSettings as Declared
from trueup.streams.config.live import LiveSection
from trueup.streams.deletion.orphan_objects import OrphanObjects
from trueup.streams.deletion.report import DeletionReport

pytestmark = pytest.mark.servers
OWNER, OTHER = "t/ns/persistent/a", "t/ns/persistent/b"
UIDS = [f"{n:08}-89ab-cdef-0123-456789abcdef" for n in range(4)]
ENVIRONMENT = {"KEY": "x", "SECRET": "y"}
HOUR = 3_600_000


@pytest.fixture(scope="module")
def objects(new_root: Callable[[], Path]) -> Iterator[Objects]:
    with Objects(new_root()) as server:
        server.up()
        yield server


class Owned:
    """Owners in memory with their ledgers and referenced copies. ``meanwhile`` runs at each fresh read."""

    def __init__(self) -> None:
        self.owners: dict[str, Pointers] = {}
        self.problem, self.meanwhile = "", lambda: None

    def lists(self, owner: str, *ledgers: int, copies: Mapping[int, str] | None = None, complete: bool = True) -> None:
        made = tuple(OffloadedCopy(ObjectPair(uid, i), complete, "S3", "b", "") for i, uid in (copies or {}).items())
        path = f"/managed-ledgers/{owner}"
        self.owners[owner] = Pointers(path, owner, "", OwnerStatus.READABLE, 1, 1, 1, ledgers, copies=made)

    def referenced(self) -> Referenced:
        known = self.owners.values()
        copies = {copy.pair: copy for node in known for copy in node.copies}
        listed = {ledger: node.owner for node in known for ledger in node.ledgers}
        return Referenced(copies, listed, {node.owner: node.status for node in known})

    def nodes(self, owner: str) -> list[Pointers]:
        self.meanwhile()
        gone = Pointers(f"/managed-ledgers/{owner}", owner, "", OwnerStatus.GONE, -1, 1, 1)
        return [self.owners.get(owner, gone)]

    def unread(self) -> str:
        return ""

    def undecoded(self) -> str:
        return ""

    def blocked_reason(self) -> str:
        return self.problem


class Setting:
    """A bucket, owners, and the reconciler with a clock that is years ahead."""

    def __init__(
        self, objects: Objects, name: str, kind: type[ObjectStore] = ObjectStore, mode: str = "enforce"
    ) -> None:
        objects.bucket(name)
        self.bucket, self.owned, self.journal = name, Owned(), FakeJournal()
        self.client = client_of(objects.endpoint)
        place = BucketLocation(name, REGION, objects.endpoint, "KEY", "SECRET")
        self.store = kind(place, ENVIRONMENT)
        self.declared = Declared(name, cluster="lab", list_s=1)
        self.policy = DeletionSettings(owners="pulsar", instance="x", exclusive=True, mode=mode, grace_s=60, retry_s=1)
        self.now_ms = 4_000_000_000_000
        self.orphans = self.begun()

    def begun(self) -> OrphanObjects:
        made = OrphanObjects(
            {"archive": self.store},
            {"archive": self.declared},
            self.owned,
            self.journal,  # type: ignore[arg-type]
            LiveSection(lambda: self.policy),
            lambda *_: None,
            lambda: self.now_ms,
        )
        made.load()
        return made

    def put(
        self, uid: str, ledger: int, owner: str = OWNER, cluster: str = "lab", content: bytes = b"12345"
    ) -> ObjectPair:
        pair = ObjectPair(uid, ledger)
        for key in (pair.data_key, pair.index_key):
            metadata = {"ManagedLedgerName": owner, "PulsarClusterName": cluster}
            self.client.put_object(Bucket=self.bucket, Key=key, Body=content, Metadata=metadata)
        return pair

    def upload(self, uid: str, ledger: int, parts: int = 1) -> None:
        where = {"Bucket": self.bucket, "Key": ObjectPair(uid, ledger).data_key}
        made = self.client.create_multipart_upload(**where)["UploadId"]
        for number in range(parts):
            self.client.upload_part(**where, UploadId=made, PartNumber=number + 1, Body=bytes(1_000))

    def keys(self) -> set[str]:
        return {found["Key"] for found in self.client.list_objects_v2(Bucket=self.bucket).get("Contents", [])}

    def uploads(self) -> int:
        return len(self.client.list_multipart_uploads(Bucket=self.bucket).get("Uploads", []))

    def reconcile(self, count: int = 1) -> None:
        for _ in range(count):
            self.now_ms += 2_000
            self.orphans.reconcile()

    def rules(self) -> dict[int, tuple[str, str, int]]:
        """Rule, owner and bytes by ledger."""
        rows = DeletionReport(
            LiveSection(lambda: self.policy), Loop().deletions, FakeCluster(), lambda: self.now_ms, orphans=self.orphans
        ).rows(100)
        return {row["ledger"]: (row["rule"].removeprefix("deletion."), row["owner"], row["bytes"]) for row in rows}

    def stages(self) -> dict[int, str]:
        return {ledger: deletion.stage.value for ledger, deletion in self.orphans.reconciler.deletions.items()}


@pytest.fixture
def make(objects: Objects, request: pytest.FixtureRequest) -> Callable[..., Setting]:
    name = "".join(c if c.isalnum() else "-" for c in request.node.name.removeprefix("test_"))[:60].strip("-").lower()
    return lambda **more: Setting(objects, name, **more)


def test_objects_are_reported_by_owner_with_bytes_and_rule(make: Any) -> None:
    setting = make()
    setting.owned.lists(OWNER, 5, 6, 7, copies={5: UIDS[0]})
    setting.put(UIDS[0], 5)
    setting.put(UIDS[1], 5)
    setting.put(UIDS[1], 4)
    setting.put(UIDS[1], 3, owner=OTHER)
    setting.put(UIDS[1], 2, cluster="else")
    setting.upload(UIDS[1], 6)
    setting.upload(UIDS[1], 1)
    setting.client.put_object(Bucket=setting.bucket, Key="a-file-of-somebody", Body=b"x")
    setting.reconcile()
    assert setting.rules() == {
        5: ("copy-replaced", OWNER, 10),
        4: ("copy-forgotten", OWNER, 10),
        3: ("copy-unowned", OTHER, 10),
        2: ("copy-unowned", OWNER, 10),
        6: ("copy-replaced", OWNER, 1_000),
        1: ("copy-unowned", "", 1_000),
    }


def test_a_referenced_object_that_is_missing_is_reported_after_a_delay(make: Any) -> None:
    setting = make()
    setting.owned.lists(OWNER, 5, 6, copies={5: UIDS[0]})
    setting.owned.owners[OWNER] = setting.owned.owners[OWNER]._replace(
        copies=(
            OffloadedCopy(ObjectPair(UIDS[0], 5), True, "S3", setting.bucket),
            OffloadedCopy(ObjectPair(UIDS[0], 6), True, "S3", setting.bucket),
        )
    )
    pair = setting.put(UIDS[0], 5)
    setting.put(UIDS[0], 6)
    setting.client.delete_object(Bucket=setting.bucket, Key=pair.index_key)
    setting.reconcile()
    before = setting.rules()
    setting.now_ms += int(setting.policy.missing_s * 1000)
    setting.reconcile()
    assert (before, setting.rules(), setting.stages()) == ({}, {5: ("copy-lost", OWNER, 0)}, {})


def test_only_approved_objects_are_deleted(make: Any) -> None:
    setting = make()
    setting.owned.lists(OWNER, 5, copies={5: UIDS[0]})
    used, chosen, other = setting.put(UIDS[0], 5), setting.put(UIDS[1], 4), setting.put(UIDS[1], 3)
    setting.reconcile(5)
    waiting = setting.stages(), len(setting.keys())
    setting.orphans.reconciler.approve([4])
    setting.reconcile(3)
    kept = {key for pair in (used, other) for key in (pair.data_key, pair.index_key)}
    assert (waiting, setting.keys(), chosen.data_key in kept) == (({4: "marked", 3: "marked"}, 6), kept, False)
    assert [row.outcome for row in setting.orphans.reconciler.history.rows() if row.ledger == 4][-1] == "confirmed"


@pytest.mark.parametrize("parts", [0, 1])
def test_a_stale_upload_is_aborted_after_approval(make: Any, parts: int) -> None:
    setting = make()
    setting.owned.lists(OWNER, 5, copies={5: UIDS[0]}, complete=False)
    setting.upload(UIDS[0], 5)
    setting.upload(UIDS[1], 5, parts)
    setting.reconcile(3)
    setting.orphans.reconciler.approve([5])
    setting.reconcile(3)
    assert (setting.uploads(), setting.stages()) == (1, {})


@pytest.mark.parametrize("mode", ["observe", "approve"])
def test_in_other_modes_likewise(make: Any, mode: str) -> None:
    setting = make(mode=mode)
    setting.owned.lists(OWNER, 5)
    setting.put(UIDS[1], 4)
    setting.reconcile(5)
    assert (setting.stages(), len(setting.keys())) == ({4: "marked"} if mode == "approve" else {}, 2)


def test_what_is_younger_than_the_grace_waits(make: Any) -> None:
    setting = make()
    setting.owned.lists(OWNER, 5)
    pair = setting.put(UIDS[1], 4)
    modified = setting.client.head_object(Bucket=setting.bucket, Key=pair.data_key)["LastModified"]
    setting.now_ms = int(modified.timestamp() * 1000) + 10_000
    setting.reconcile(5)
    early = setting.stages()
    setting.now_ms += 60_000
    setting.reconcile()
    assert (early, setting.stages()) == ({4: "suspected"}, {4: "marked"})


@pytest.mark.parametrize(
    ("meanwhile", "says"),
    [
        (lambda s: s.owned.lists(OWNER, 4, copies={4: UIDS[1]}, complete=False), "in use"),
        (lambda s: s.owned.owners.pop(OWNER), "GONE"),
        (lambda s: s.put(UIDS[1], 4, owner=OTHER), "an object of"),
        (lambda s: s.put(UIDS[1], 4, cluster="else"), "an object of"),
    ],
    ids=["pointed to", "owner gone", "another's", "another cluster's"],
)
def test_objects_that_changed_after_the_approval_are_kept(
    make: Any, meanwhile: Callable[[Setting], Any], says: str
) -> None:
    setting = make()
    setting.owned.lists(OWNER, 5)
    setting.put(UIDS[1], 4)
    setting.reconcile(3)
    setting.orphans.reconciler.approve([4])
    setting.owned.meanwhile = lambda: meanwhile(setting)
    setting.owned.owners[OWNER] = setting.owned.owners[OWNER]
    setting.now_ms += 10
    setting.orphans.reconciler.reconcile()
    deletion = setting.orphans.reconciler.deletions[4]
    assert (deletion.stage.value, says in deletion.detail, len(setting.keys())) == ("blocked", True, 2), deletion


class Lying(ObjectStore):
    """Lists objects that do not exist, and omits objects that exist."""

    def objects(self) -> Iterator[list[Object]]:
        ghost = ObjectPair(UIDS[3], 9)
        yield [Object(ghost.data_key, 5, 1), Object(ghost.index_key, 5, 1)]


def test_a_listing_that_lies_makes_nothing_of_it(make: Any) -> None:
    setting = make(kind=Lying)
    setting.owned.lists(OWNER, 5, copies={5: UIDS[0]})
    node = setting.owned.owners[OWNER]
    setting.owned.owners[OWNER] = node._replace(
        copies=(OffloadedCopy(ObjectPair(UIDS[0], 5), True, "S3", setting.bucket),)
    )
    setting.put(UIDS[0], 5)
    setting.reconcile(3)
    assert (setting.rules(), setting.stages(), len(setting.keys())) == ({}, {}, 2)


def test_what_is_pointed_to_while_the_listing_runs_is_in_use(make: Any) -> None:
    setting = make()
    setting.put(UIDS[0], 5)
    reads = iter([lambda: None, lambda: setting.owned.lists(OWNER, 5, copies={5: UIDS[0]})])
    plain = setting.owned.referenced

    def referenced() -> Referenced:
        next(reads)()
        return plain()

    setting.owned.referenced = referenced
    setting.reconcile()
    assert setting.rules() == {}


def test_without_the_name_of_the_cluster_none_may_go(make: Any) -> None:
    setting = make()
    setting.declared = Declared(setting.bucket, list_s=1)
    setting.orphans = setting.begun()
    setting.owned.lists(OWNER, 5)
    setting.put(UIDS[1], 4)
    setting.upload(UIDS[1], 5)
    setting.reconcile(3)
    assert ({rule for rule, _, _ in setting.rules().values()}, setting.stages()) == ({"copy-unowned"}, {})


def test_an_unreachable_store_is_reported_and_retried_with_back_off(make: Any) -> None:
    setting, asked = make(), list[int]()

    def failing() -> Referenced:
        asked.append(setting.now_ms)
        raise Retry("an answer", "none", "again")

    setting.owned.referenced = failing
    begun_ms = setting.now_ms
    setting.reconcile(16)
    assert [(at - begun_ms) // 1000 for at in asked] == [2, 4, 6, 10, 18]
    assert setting.orphans.problems == {"archive": "expected an answer; found none; again"}


def test_a_killed_application_goes_on_with_what_was_approved(make: Any) -> None:
    setting = make()
    setting.owned.lists(OWNER, 5)
    setting.put(UIDS[1], 4)
    setting.reconcile(3)
    setting.orphans.reconciler.approve([4])
    setting.orphans = setting.begun()
    setting.reconcile(3)
    kept = {key: value for (_, key), value in setting.journal.taken.items()}
    assert (setting.keys(), setting.stages(), kept) == (set(), {}, {(4).to_bytes(8, "big"): None})


def test_objects_that_somebody_else_deleted_are_confirmed_or_withdrawn(make: Any) -> None:
    setting = make()
    setting.owned.lists(OWNER, 5)
    pair = setting.put(UIDS[1], 4)
    setting.reconcile(3)
    for key in (pair.data_key, pair.index_key):
        setting.client.delete_object(Bucket=setting.bucket, Key=key)
    setting.reconcile(3)
    assert (setting.stages(), setting.rules()) == ({}, {})
