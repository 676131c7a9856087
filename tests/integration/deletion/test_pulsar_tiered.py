"""Copies in an object store: complete copies are verified, and each other copy is reported with its defect."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.objects import client_of
from tests.offloaded import Written, offloaded
from trueup.connectors.pulsar.offload_verify import OffloadFacts, Tiered
from trueup.connectors.s3.store import BucketLocation, ObjectStore
from trueup.sandbox.servers.objects import REGION, Objects
from trueup.state.common.errors import Retry, Stop
from trueup.state.deletion.offloads import ObjectPair, OffloadedCopy

pytestmark = pytest.mark.servers
OWNER = "t/ns/persistent/a"
PAIR = ObjectPair("01234567-89ab-cdef-0123-456789abcdef", 5)
ENTRIES = [bytes([n]) * 300 for n in range(20)]
WHOLE = offloaded(ENTRIES, 1_000)
FACTS = OffloadFacts(OWNER, 19, 6_000)
ENVIRONMENT = {"KEY": "x", "SECRET": "y"}


@pytest.fixture(scope="module")
def objects(new_root: Callable[[], Path]) -> Iterator[Objects]:
    with Objects(new_root(), buckets=["offloaded", "other"]) as server:
        server.up()
        yield server


@pytest.fixture(scope="module")
def client(objects: Objects) -> Any:
    return client_of(objects.endpoint)


class Counting(ObjectStore):
    """Counts the bytes that are read."""

    read_bytes = 0

    def read(self, key: str, offset: int, count: int, tag: str) -> bytes:
        found = super().read(key, offset, count, tag)
        self.read_bytes += len(found)
        return found


@pytest.fixture
def store(objects: Objects) -> Counting:
    return Counting(BucketLocation("offloaded", REGION, objects.endpoint, "KEY", "SECRET"), ENVIRONMENT)


@pytest.fixture
def tiered(store: Counting) -> Tiered:
    return Tiered({"archive": store})


@pytest.fixture
def copy(objects: Objects) -> OffloadedCopy:
    return OffloadedCopy(PAIR, True, "S3", "offloaded", objects.endpoint)


def put(client: Any, written: Written, owner: str = OWNER, form: str = "1", pair: ObjectPair = PAIR) -> None:
    metadata = {"ManagedLedgerName": owner, "S3ManagedLedgerOffloaderFormatVersion": form}
    for key, content in ((pair.data_key, written.data), (pair.index_key, written.index)):
        client.put_object(Bucket="offloaded", Key=key, Body=content, Metadata=metadata)


def test_a_whole_copy_is_verified(client: Any, tiered: Tiered, copy: OffloadedCopy) -> None:
    put(client, WHOLE)
    tiered.verify(copy, FACTS)


def test_what_was_verified_is_not_read_again_unless_it_is_another_by_now(
    client: Any, tiered: Tiered, store: Counting, copy: OffloadedCopy
) -> None:
    put(client, WHOLE)
    tiered.verify(copy, FACTS)
    once = store.read_bytes
    tiered.verify(copy, FACTS)
    again = store.read_bytes
    put(client, offloaded([b"x" * 300, *ENTRIES[1:]], 1_000))
    tiered.verify(copy, FACTS)
    assert (again, store.read_bytes > once) == (once, True)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda c: c.delete_object(Bucket="offloaded", Key=PAIR.data_key), "ledger-5 in .*found none"),
        (lambda c: c.delete_object(Bucket="offloaded", Key=PAIR.index_key), "index in .*found none"),
        (lambda c: put(c, WHOLE, owner="t/ns/persistent/b"), "managed ledger"),
        (lambda c: put(c, offloaded(ENTRIES, 1_000, owner="t/ns/persistent/b")), "managed ledger"),
        (lambda c: put(c, WHOLE, form="2"), "format version"),
        (lambda c: c.put_object(Bucket="offloaded", Key=PAIR.data_key, Body=WHOLE.data), "format version"),
        (lambda c: put(c, offloaded(ENTRIES[:-1], 1_000)), "last entry and length"),
        (lambda c: put(c, offloaded(ENTRIES[:-1], 1_000, last=19, length=6_000)), "entries up to 19"),
        (lambda c: put(c, WHOLE._replace(data=WHOLE.data[:-1])), "bytes at byte"),
        (lambda c: put(c, WHOLE._replace(data=bytes(len(WHOLE.data)))), "0xfbdbabcb at byte 0"),
        (lambda c: put(c, WHOLE._replace(index=b"")), "an index of at least"),
        (lambda c: put(c, WHOLE._replace(index=b"\x3d\x1f\xb0\xbc" + bytes(60))), "format 2"),
    ],
    ids=[
        "no data",
        "no index",
        "another's object",
        "another's ledger",
        "another form",
        "says nothing",
        "shorter",
        "hollow",
        "cut",
        "zeros",
        "empty",
        "form 2",
    ],
)
def test_every_invalid_offload_is_refused_with_its_error(
    client: Any, tiered: Tiered, copy: OffloadedCopy, spoil: Any, says: str
) -> None:
    put(client, WHOLE)
    tiered.verify(copy, FACTS)
    spoil(client)
    with pytest.raises(Stop, match=says):
        tiered.verify(copy, FACTS)


def test_a_copy_that_was_never_completed_is_none(client: Any, tiered: Tiered, copy: OffloadedCopy) -> None:
    put(client, WHOLE)
    with pytest.raises(Stop, match="incomplete"):
        tiered.verify(copy._replace(complete=False), FACTS)


@pytest.mark.parametrize(
    "facts",
    [OffloadFacts(OWNER, 20, 6_000), OffloadFacts(OWNER, 19, 6_001), OffloadFacts("t/n/persistent/b", 19, 6_000)],
)
def test_a_copy_is_held_against_what_the_ledger_is_now(
    client: Any, tiered: Tiered, copy: OffloadedCopy, facts: OffloadFacts
) -> None:
    put(client, WHOLE)
    tiered.verify(copy, FACTS)
    with pytest.raises(Stop):
        tiered.verify(copy, facts)


def test_an_offload_outside_the_configured_stores_names_its_bucket(tiered: Tiered, copy: OffloadedCopy) -> None:
    with pytest.raises(Stop, match=r"stores: for bucket elsewhere .* found 0"):
        tiered.verify(copy._replace(bucket="elsewhere"), FACTS)


def test_equal_bucket_names_are_distinguished_by_the_endpoint(
    client: Any, store: Counting, objects: Objects, copy: OffloadedCopy
) -> None:
    put(client, WHOLE)
    far = ObjectStore(BucketLocation("offloaded", REGION, "http://127.0.0.1:9", "KEY", "SECRET"), ENVIRONMENT)
    Tiered({"near": store, "far": far}).verify(copy, FACTS)
    with pytest.raises(Stop, match="found 2"):
        Tiered({"near": store, "far": far}).verify(copy._replace(endpoint=""), FACTS)


def test_a_store_that_does_not_answer_is_asked_again_later(copy: OffloadedCopy) -> None:
    far = ObjectStore(BucketLocation("offloaded", REGION, "http://127.0.0.1:9", "KEY", "SECRET"), ENVIRONMENT)
    with pytest.raises(Retry):
        Tiered({"far": far}).verify(copy._replace(endpoint="http://127.0.0.1:9"), FACTS)


def test_no_more_copies_are_remembered_than_may_be(client: Any, store: Counting, copy: OffloadedCopy) -> None:
    tiered = Tiered({"archive": store}, kept=1)
    put(client, WHOLE)
    other = ObjectPair(PAIR.uid, 6)
    put(client, WHOLE, pair=other)
    for pair in (PAIR, other):
        tiered.verify(copy._replace(pair=pair), FACTS)
    twice = store.read_bytes
    tiered.verify(copy, FACTS)
    assert store.read_bytes > twice
