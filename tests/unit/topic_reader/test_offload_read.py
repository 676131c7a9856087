"""Entries read from the objects of an offloaded ledger, in ranges."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.offloaded import Written, offloaded
from trueup.connectors.pulsar import offload_read
from trueup.connectors.pulsar.offload_read import NoSuchObject, OffloadReader
from trueup.connectors.s3.store import BucketLocation, ObjectStart, ObjectStore
from trueup.state.common.errors import BadBytes, Refused, Stop
from trueup.state.deletion.offloads import ObjectPair, OffloadedCopy
from trueup.state.read_priority.tiers import LedgerInfo
from trueup.streams.topic_reader.sources import TieredSource

OWNER = "t/ns/persistent/a"
COPY = OffloadedCopy(ObjectPair("00000000-0000-4000-8000-000000000000", 7), True, bucket="bucket")
ENTRIES = [bytes([number]) * (50 + 17 * number) for number in range(12)]


class FakeStore:
    """A bucket in memory. ``reads``: offset and size of each read of the data object."""

    place, tag = BucketLocation("bucket"), "tag"

    def __init__(self, written: Written) -> None:
        self.objects = {COPY.pair.data_key: written.data, COPY.pair.index_key: written.index}
        self.reads, self.metadata = list[tuple[int, int]](), {"managedledgername": OWNER}

    def begin(self, key: str, offset: int, count: int) -> ObjectStart | None:
        found = self.objects.get(key)
        if found is None:
            return None
        return ObjectStart(self.read(key, offset, count, self.tag), len(found), self.tag, self.metadata)

    def read(self, key: str, offset: int, count: int, tag: str) -> bytes:
        if tag != self.tag:
            raise Stop(key, "replaced", "")
        if key == COPY.pair.data_key:
            self.reads.append((offset, count))
        return self.objects[key][offset : offset + count]


def reader(store: FakeStore) -> OffloadReader:
    return OffloadReader(store, COPY, OWNER)  # type: ignore[arg-type]


def entries(store: FakeStore, first: int = 0, last: int | None = None) -> dict[int, bytes]:
    return {entry: bytes(payload) for entry, payload in reader(store).read(first, last)}


@pytest.fixture(params=[200, 333, 1 << 20], ids="window-{}".format)
def window(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload_read, "WINDOW", request.param)


@pytest.mark.usefixtures("window")
@pytest.mark.parametrize("block", [400, 1_000, 1 << 20])
def test_all_entries_are_read_whatever_the_sizes_of_blocks_and_ranges(block: int) -> None:
    assert entries(FakeStore(offloaded(ENTRIES, block))) == dict(enumerate(ENTRIES))


@pytest.mark.usefixtures("window")
@pytest.mark.parametrize(("first", "last"), [(0, 0), (3, 7), (11, 11), (5, 99), (12, None)])
def test_a_range_of_entries_is_read(first: int, last: int | None) -> None:
    wanted = {n: ENTRIES[n] for n in range(first, min(len(ENTRIES), (11 if last is None else last) + 1))}
    assert entries(FakeStore(offloaded(ENTRIES, 400)), first, last) == wanted


def test_a_read_starts_at_the_block_of_its_first_entry() -> None:
    written = offloaded(ENTRIES, 400)
    store = FakeStore(written)
    entries(store, 9)
    assert store.reads[0][0] == max(offset for first, offset in written.blocks if first <= 9)


def test_each_byte_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload_read, "WINDOW", 200)
    written = offloaded(ENTRIES, 400)
    store = FakeStore(written)
    entries(store)
    assert sum(count for _, count in store.reads) == len(written.data)


def test_blocks_after_the_last_entry_are_not_read() -> None:
    written = offloaded(ENTRIES, 400)
    store = FakeStore(written)
    entries(store, 0, 1)
    assert store.reads == [(0, written.blocks[1][1])]


def test_a_small_rest_is_part_of_the_last_range(monkeypatch: pytest.MonkeyPatch) -> None:
    written = offloaded(ENTRIES, 1 << 20)
    monkeypatch.setattr(offload_read, "WINDOW", len(written.data) * 9 // 10)
    store = FakeStore(written)
    entries(store)
    assert store.reads == [(0, len(written.data))]


def test_an_object_that_is_replaced_during_a_read_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload_read, "WINDOW", 200)
    store = FakeStore(offloaded(ENTRIES, 400))
    found = reader(store).read()
    next(found)
    store.tag = "another"
    with pytest.raises(Stop, match="replaced"):
        list(found)


@pytest.mark.parametrize("end", ["data_key", "index_key"])
def test_a_missing_object_is_named(end: str) -> None:
    store, key = FakeStore(offloaded(ENTRIES)), getattr(COPY.pair, end)
    del store.objects[key]
    with pytest.raises(NoSuchObject, match=key):
        entries(store)


def test_a_cut_object_is_damaged() -> None:
    store = FakeStore(offloaded(ENTRIES))
    store.objects[COPY.pair.data_key] = store.objects[COPY.pair.data_key][:-1]
    with pytest.raises(BadBytes):
        entries(store)


def test_entries_before_damage_are_read() -> None:
    written = offloaded(ENTRIES, 400)
    store, (_, offset) = FakeStore(written), written.blocks[1]
    store.objects[COPY.pair.data_key] = written.data[:offset] + b"x" + written.data[offset + 1 :]
    found = list[int]()

    def read() -> None:
        found.extend(entry for entry, _ in reader(store).read())

    with pytest.raises(BadBytes, match=f"byte {offset} of"):
        read()
    assert found == [*range(written.blocks[1][0])]


def test_objects_of_another_topic_are_not_read_and_do_not_prove_that_entries_are_gone() -> None:
    with pytest.raises(Stop, match="t/ns/persistent/b") as found:
        entries(FakeStore(offloaded(ENTRIES, owner="t/ns/persistent/b")))
    assert not isinstance(found.value, Refused)


def test_objects_of_a_ledger_that_names_no_owner_are_read() -> None:
    assert entries(FakeStore(offloaded(ENTRIES, owner=""))) == dict(enumerate(ENTRIES))


def small(store: FakeStore, last: int | None = None) -> dict[int, bytes]:
    """The first entries of a ledger whose record says that it is small."""
    source: Any = TieredSource({"a": store}, OWNER)  # type: ignore[dict-item]
    info = LedgerInfo(7, len(ENTRIES), sum(map(len, ENTRIES)), 1, COPY)
    return {entry: bytes(payload) for entry, payload in source.read(info, 0, last)}


@pytest.mark.parametrize("last", [None, 11])
@pytest.mark.parametrize("block", [400, 1_000, 1 << 20])
def test_a_small_object_is_read_with_one_request_and_without_its_index(block: int, last: int | None) -> None:
    store = FakeStore(offloaded(ENTRIES, block))
    del store.objects[COPY.pair.index_key]
    assert (small(store, last), len(store.reads)) == (dict(enumerate(ENTRIES)), 1)


def test_of_a_part_of_a_small_object_only_its_blocks_are_read() -> None:
    written = offloaded(ENTRIES, 400)
    store = FakeStore(written)
    assert (small(store, 1), store.reads) == (dict(enumerate(ENTRIES[:2])), [(0, written.blocks[1][1])])


def test_an_object_that_is_larger_than_its_record_says_is_read_with_its_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload_read, "WINDOW", sum(map(len, ENTRIES)))
    padded = [ENTRIES[0], bytes(1_000), *ENTRIES[2:]]
    found = small(FakeStore(offloaded(padded, 1_200)))
    assert found == dict(enumerate(padded))


@pytest.mark.parametrize("kept", [-1, 399, 401, 100])
def test_a_small_object_that_was_cut_is_damaged(kept: int) -> None:
    store = FakeStore(offloaded(ENTRIES, 400))
    store.objects[COPY.pair.data_key] = store.objects[COPY.pair.data_key][:kept]
    with pytest.raises(BadBytes):
        small(store)


def test_a_small_object_without_its_last_block_is_damaged() -> None:
    written = offloaded(ENTRIES, 400)
    store = FakeStore(written)
    store.objects[COPY.pair.data_key] = written.data[: written.blocks[-1][1]]
    with pytest.raises(BadBytes, match=f"entry {written.blocks[-1][0]}"):
        small(store)


@pytest.mark.parametrize("length", [0, 127, -1, 1 << 62])
def test_a_small_object_with_a_wrong_length_of_a_block_is_damaged(length: int) -> None:
    written = offloaded(ENTRIES, 400)
    store = FakeStore(written)
    store.objects[COPY.pair.data_key] = written.data[:12] + length.to_bytes(8, "big", signed=True) + written.data[20:]
    with pytest.raises(BadBytes):
        small(store)


def test_a_small_object_of_another_topic_is_refused() -> None:
    store = FakeStore(offloaded(ENTRIES))
    store.metadata = {"managedledgername": "t/ns/persistent/b"}
    with pytest.raises(Stop, match="t/ns/persistent/b"):
        small(store)


class RefusingS3:
    """A client of S3 whose store refuses every read of an object with this code."""

    def __init__(self, code: str) -> None:
        self.code = code

    def get_object(self, **asked: object) -> object:
        raise ClientError({"Error": {"Code": self.code}}, "GetObject")


@pytest.mark.parametrize(("code", "proof"), [("InvalidRange", True), ("NoSuchKey", True), ("AccessDenied", False)])
def test_only_an_object_that_was_cut_or_deleted_proves_that_its_entries_are_gone(code: str, proof: bool) -> None:
    store = ObjectStore(BucketLocation("bucket"))
    store._made = RefusingS3(code)
    with pytest.raises(Stop) as found:
        store.read("key", 7, 1, "tag")
    assert isinstance(found.value, Refused) is proof


def test_an_object_that_is_no_index_proves_that_its_entries_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload_read, "LONGEST_INDEX", len(offloaded(ENTRIES).index))
    with pytest.raises(BadBytes):
        entries(FakeStore(Written(b"", b"x" * 20, ())))
