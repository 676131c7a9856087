"""Routing of records to owner buckets: ledgers and nodes of an owner reach the same bucket, and no record is lost."""

import zlib
from collections.abc import Iterable
from dataclasses import asdict

import pandas as pd
import pyarrow as pa
import pytest

from tests.memory_store import MemoryStore
from tests.unit.deletion.fake_deletion import OTHER
from tests.unit.deletion.fake_deletion import OWNER as ORDERS
from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.bookkeeper.topology import PlacementPolicy
from trueup.state.common.errors import BadBytes
from trueup.state.deletion.owned_ledgers import NO_LEDGERS, NO_NODES, OwnedLedgerTable, nodes_of
from trueup.state.deletion.owners import OwnerStatus, Pointers
from trueup.state.deletion.rules import LEAK_RULES
from trueup.state.deletion.view import OwnerBucket, agreed
from trueup.streams.bookkeeper.topics import TOPOLOGY_KEY
from trueup.streams.deletion.owners import record_of
from trueup.streams.deletion.query import LEDGER, OWNER, TOPOLOGY, leaks_of, route, split
from trueup.streams.journal.codec import encode, ledger_key
from trueup.streams.journal.signing import signer_of

BUCKETS = 5
READ = (LedgerState.OPEN, LedgerState.IN_RECOVERY, LedgerState.CLOSED)
Record = tuple[int, bytes, bytes]
"""Kind, key and body."""


def ledger(
    number: int, owner: str = ORDERS, state: LedgerState = LedgerState.CLOSED, mzxid: int = 0, **custom: bytes
) -> Record:
    custom_metadata = {
        "application": b"pulsar",
        "component": b"managed-ledger",
        "pulsar/managed-ledger": owner.encode(),
    }
    record = {
        "ledger": number,
        "mzxid": mzxid or 50 + number,
        "version": 2,
        "ctime_ms": 1,
        "seen_ms": 9,
        "state": int(state),
        "ensemble": 1,
        "quorum": 1,
        "ack_quorum": 1,
        "last_entry": 4,
        "length": 100,
        "error": "",
        "fragments": [{"first_entry": 0, "bookies": ["a:1"]}] if state in READ else [],
        "custom": custom or custom_metadata if state in READ else {},
    }
    return LEDGER, ledger_key(number), encode("ledgers", record)


def node(*ledgers: int, owner: str = ORDERS, name: str = "", dropped: int = 0, mzxid: int = 60) -> Pointers:
    """A node that references these ledgers, the first ``dropped`` of them counted as deleted."""
    path = f"/managed-ledgers/{owner}/{name}".rstrip("/")
    return Pointers(path, owner, name, OwnerStatus.READABLE, 3, mzxid, 9, ledgers, ledgers[:dropped])


def pointing(pointers: Pointers) -> Record:
    return OWNER, pointers.path.encode(), encode("owners", record_of(pointers))


def question(epoch: int) -> Record:
    body = encode(
        "topology",
        {
            "epoch": epoch,
            "at_ms": 0,
            "min_racks": 2,
            "enforce_min_racks": False,
            "policy": asdict(PlacementPolicy()),
            "namespaces": None,
            "held": "",
            "released": -1,
            "collect_ms": 0,
            "restarted": 0,
            "bookies": [],
        },
    )
    return TOPOLOGY, TOPOLOGY_KEY, body


def routed(*records: Record) -> dict[int, list[tuple[int, bytes]]]:
    """Records of one batch by bucket."""
    batch = pa.RecordBatch.from_pylist([{"kind": kind, "key": key, "value": value} for kind, key, value in records])
    found: dict[int, list[tuple[int, bytes]]] = {}
    for part in route(BUCKETS)(iter([batch])):
        for bucket, kind, value in zip(*part.to_pydict().values(), strict=True):
            found.setdefault(bucket, []).append((kind, value))
    return found


def tables(given: Iterable[tuple[int, bytes]]) -> tuple[OwnedLedgerTable, OwnedLedgerTable, int]:
    return split(iter([pd.DataFrame(given, columns=["kind", "value"])]))


def bucket_of(name: str) -> int:
    return zlib.crc32(name.encode()) % BUCKETS


def test_an_owner_and_its_ledgers_meet() -> None:
    found = routed(ledger(4), ledger(5), pointing(node(5)), pointing(node(name="sub")))
    assert list(found) == [bucket_of(ORDERS)]


class Buckets:
    """All buckets over one stream of records."""

    def __init__(self) -> None:
        self.buckets = [OwnerBucket(MemoryStore()) for _ in range(BUCKETS)]

    def step(self, *records: Record) -> dict[int, str]:
        """The agreed rule of each ledger after a batch of these records."""
        found = routed(*records)
        parts = [one.step(*tables(found.get(at, ()))[:2], asked=True) for at, one in enumerate(self.buckets)]
        rows = [row for part in agreed([part for part in parts if part]) for row in part.rows]
        assert len(rows) == len({int(row["ledger"]) for row in rows})
        return {int(row["ledger"]): LEAK_RULES[int(row["rule"])].id for row in rows if row["version"] >= 0}


def damaged(number: int, mzxid: int) -> Record:
    """The record of a ledger whose metadata cannot be read: it has no custom metadata."""
    return ledger(number, state=LedgerState.UNREADABLE, mzxid=mzxid)


ELSEWHERE = next(name for name in map("t/n/persistent/{}".format, "bcdefghij") if bucket_of(name) != bucket_of(ORDERS))
BESIDE = next(number for number in range(1, 9) if number % BUCKETS == bucket_of(ELSEWHERE))
"""A ledger with the number of the bucket of another owner than its own."""


@pytest.mark.parametrize("rebuilt", [False, True])
def test_references_of_other_owners_protect_a_ledger_that_could_not_be_read_for_a_while(rebuilt: bool) -> None:
    view, later = Buckets(), [ledger(40), pointing(node(40)), pointing(node(BESIDE, owner=ELSEWHERE))]
    if not rebuilt:
        assert view.step(ledger(BESIDE, mzxid=1), *later) == {}
    assert view.step(damaged(BESIDE, 100), *later) == {}
    assert view.step(ledger(BESIDE, mzxid=101)) == {}


def test_a_ledger_that_cannot_be_read_keeps_its_owner_and_is_not_deleted() -> None:
    view = Buckets()
    assert view.step(ledger(BESIDE, mzxid=1), ledger(40), pointing(node(40))) == {BESIDE: "deletion.forgotten"}
    assert view.step(damaged(BESIDE, 100)) == {BESIDE: "deletion.not-superseded"}
    assert view.step(ledger(BESIDE, mzxid=101)) == {BESIDE: "deletion.forgotten"}
    assert view.step(ledger(BESIDE, state=LedgerState.GONE, mzxid=102)) == {}


def test_a_ledger_whose_owner_is_not_known_is_reported_once_and_no_longer_than_that() -> None:
    view = Buckets()
    assert view.step(damaged(BESIDE, 100), pointing(node(40)), ledger(40)) == {BESIDE: "deletion.unknown-owner"}
    assert view.step(ledger(BESIDE, mzxid=101)) == {BESIDE: "deletion.forgotten"}
    assert view.step(pointing(node(BESIDE, 40, mzxid=103))) == {}


def test_owners_are_kept_apart() -> None:
    found = routed(ledger(4), ledger(5, OTHER), pointing(node(4)), pointing(node(5, owner=OTHER)))
    seen = {bucket: tables(rows) for bucket, rows in found.items()}
    ids = {
        bucket: (ledgers.rows["ledger"].tolist(), nodes.listed["ledger"].tolist())
        for bucket, (ledgers, nodes, _) in seen.items()
    }
    assert ids == {bucket_of(ORDERS): ([4], [4]), bucket_of(OTHER): ([5], [5])}


def test_a_node_that_reads_as_another_owners_later_is_replaced() -> None:
    """The path alone does not determine whether ``a`` is a cursor of the topic ``persistent``."""
    topic, path = "t/ns/persistent/persistent", "/managed-ledgers/t/ns/persistent/persistent/a"
    cursor = Pointers(path, topic, "a", OwnerStatus.READABLE, 3, 60, 9)
    made = [pointing(cursor), pointing(cursor._replace(owner=f"{topic}/a", name="", mzxid=70, ledgers=(7,)))]
    ((bucket, rows),) = routed(*made, ledger(7, f"{topic}/a")).items()
    held = OwnerBucket(MemoryStore())
    held.step(*tables(rows)[:2])
    assert (bucket, held.nodes.text("owner", 0), len(held.nodes)) == (bucket_of(topic), f"{topic}/a", 1)


def test_a_deleted_ledger_is_routed_to_every_bucket() -> None:
    found = routed(ledger(4, state=LedgerState.GONE))
    assert {bucket: tables(rows)[0].rows["ledger"].tolist() for bucket, rows in found.items()} == {
        bucket: [4] for bucket in range(BUCKETS)
    }


def test_ledgers_without_an_owner_are_spread() -> None:
    found = routed(*(ledger(number, application=b"other") for number in range(BUCKETS)))
    assert sorted(found) == list(range(BUCKETS))


def test_a_question_reaches_every_bucket_once_and_is_the_newest() -> None:
    found = routed(question(3), question(5), question(4))
    assert {bucket: (len(rows), tables(rows)[2]) for bucket, rows in found.items()} == dict.fromkeys(
        range(BUCKETS), (1, 5)
    )


def test_a_question_that_is_not_signed_reaches_no_bucket() -> None:
    signer = signer_of([b"k" * 32], "trueup", "c", "topology")
    sound, forged = question(3)[2], question((1 << 63) - 1)[2]
    bodies = [forged, sound + signer.signature(TOPOLOGY_KEY, 1, sound)]
    columns = {"kind": pa.array([TOPOLOGY] * 2, pa.int32()), "key": [TOPOLOGY_KEY] * 2, "value": bodies}
    batch = pa.RecordBatch.from_pydict(columns)
    rows = [row for found in route(BUCKETS, signer)(iter([batch])) for row in found.to_pylist()]
    assert {tables([(row["kind"], row["value"])])[2] for row in rows} == {3}


def test_without_a_question_no_bucket_answers() -> None:
    assert tables(routed(ledger(4))[bucket_of(ORDERS)])[2] == -1


def test_an_empty_batch_goes_nowhere() -> None:
    kinds = {"kind": pa.int32(), "key": pa.binary(), "value": pa.binary()}
    batch = pa.RecordBatch.from_pydict({name: pa.array([], kind) for name, kind in kinds.items()})
    assert list(route(BUCKETS)(iter([batch]))) == []


def test_one_row_of_each_kind_goes_to_a_bucket_however_many_records_there_are() -> None:
    found = routed(*(ledger(number) for number in range(50)), pointing(node(*range(40, 50))))
    assert [kind for kind, _ in found[bucket_of(ORDERS)]] == [LEDGER, OWNER]


def test_lists_stay_with_their_nodes() -> None:
    nodes = [node(4, 5, dropped=1), node(7, owner=OTHER), node(8, 9, name="sub", dropped=1)]
    _, mine, _ = tables(routed(*map(pointing, nodes))[bucket_of(ORDERS)])
    assert (mine.rows["count"].tolist(), mine.listed["ledger"].tolist(), mine.listed["dropped"].tolist()) == (
        [2, 2],
        [4, 5, 8, 9],
        [1, 0, 1, 0],
    )


def test_names_come_through() -> None:
    ledgers, nodes, _ = tables(routed(ledger(4), pointing(node(name="a%2Fb")))[bucket_of(ORDERS)])
    assert (ledgers.text("owner", 0), nodes.text("owner", 0), nodes.text("name", 0)) == (ORDERS, ORDERS, "a%2Fb")


def test_a_bucket_reports_the_forgotten_ledgers_that_reached_it() -> None:
    ledgers, nodes, _ = tables(routed(ledger(4), ledger(9), pointing(node(9)))[bucket_of(ORDERS)])
    found = OwnerBucket(MemoryStore()).step(ledgers, nodes)
    assert found is not None
    row = {
        "bucket": 1,
        "epoch": 5,
        "ledgers": found.ledgers,
        "leaks": found.rows.tobytes(),
        "names": "\n".join(found.names),
        "elsewhere": found.elsewhere.tobytes(),
    }
    bucket, epoch, leaks = leaks_of(row)
    reported = [(int(r["ledger"]), LEAK_RULES[int(r["rule"])].id, leaks.names[r["owner"]]) for r in leaks.rows]
    assert (bucket, epoch, leaks.ledgers, reported) == (1, 5, 2, [(4, "deletion.forgotten", ORDERS)])


@pytest.mark.parametrize("table", [NO_LEDGERS, NO_NODES, nodes_of([node(4, 5), node()])])
def test_a_table_comes_back_from_its_bytes(table: OwnedLedgerTable) -> None:
    again = OwnedLedgerTable.from_bytes(table.to_bytes())
    assert (again.rows.tolist(), again.rows.dtype, again.listed.tolist()) == (
        table.rows.tolist(),
        table.rows.dtype,
        table.listed.tolist(),
    )


@pytest.mark.parametrize("blob", [b"", b"XX", b"TO\x09" + bytes(40)])
def test_bytes_of_another_form_are_reported(blob: bytes) -> None:
    with pytest.raises(BadBytes, match="rebuild the view"):
        OwnedLedgerTable.from_bytes(blob)


@pytest.mark.parametrize(
    "directory", ["t", "t/ns", "t/ns/persistent", "t/c/ns/persistent", "t/ns/segment/topic", "schema:t", "schema:t/ns"]
)
def test_a_directory_of_owners_is_routed_to_every_bucket(directory: str) -> None:
    found = routed(pointing(node(owner=directory)._replace(status=OwnerStatus.UNREADABLE, version=-1)))
    assert sorted(found) == list(range(BUCKETS))


@pytest.mark.parametrize(
    "owner",
    [ORDERS, "t/c/ns/persistent/a", "t/ns/segment/topic/0000-ffff-0", "t/ns/persistent/persistent", "schema:t/ns/a"],
)
def test_an_owner_is_routed_to_one_bucket(owner: str) -> None:
    assert len(routed(pointing(node(owner=owner)))) == 1
