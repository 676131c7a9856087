"""Ledgers written by BookKeeper's client and read from real bookies, with damaged, missing and unresponsive copies."""

from collections.abc import Callable, Iterator

import pytest

from tests.proxy import Proxy
from trueup.connectors.bookkeeper.bookie.codes import Code, NoSuchEntry, NoSuchLedger
from trueup.connectors.bookkeeper.bookie.entries import DamagedEntry, Digest, DigestType, digest_of
from trueup.connectors.bookkeeper.bookie.reader import Bookies, Damage, LedgerReader
from trueup.connectors.bookkeeper.bookie.replica_check import check
from trueup.connectors.bookkeeper.bookie.striping import EnsembleRange, held
from trueup.connectors.bookkeeper.metadata import queries
from trueup.connectors.bookkeeper.metadata.addresses import Address, Addresses
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.writer import LedgerWriter, payload
from trueup.state.bookkeeper.observations import LedgerRecord
from trueup.state.common.errors import Refused, Retry
from trueup.state.placement.damage import ReplicaRange, ReplicaRead

pytestmark = pytest.mark.servers
ENTRIES = 700
NEVER_WRITTEN = 987_654


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., SandboxCluster]) -> SandboxCluster:
    return start_cluster(racks={"/rack1": 2, "/rack2": 1}, autorecovery=0)


@pytest.fixture(scope="module")
def writer(cluster: SandboxCluster) -> Iterator[LedgerWriter]:
    with LedgerWriter(cluster) as made:
        yield made


@pytest.fixture(scope="module")
def client(cluster: SandboxCluster) -> Iterator[ZooKeeperClient]:
    made = ZooKeeperClient(cluster.zookeeper.address, timeout=30.0).open()
    yield made
    made.shut()


class Site:
    """Readers of the cluster's ledgers. ``moved``: bookies that are reached at other addresses."""

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client, self._paths = client, queries.paths_of(client, "/ledgers")
        self.addresses = Addresses(client, self._paths)
        self.moved: dict[str, Address] = {}
        self.bookies = Bookies(lambda bookie: self.moved.get(bookie) or self.addresses(bookie), 5.0)
        self.damages: list[Damage] = []

    def record(self, ledger: int) -> LedgerRecord:
        found = queries.one(self._client, self._paths, ledger, 0)
        assert found is not None
        return found[0]

    def digest(self, ledger: int) -> Digest:
        path = self._paths.ledger(ledger)
        found = self._client.look(path)
        assert found is not None
        return digest_of(found[0], path)

    def reader(self, ledger: int) -> LedgerReader:
        return LedgerReader(self.record(ledger), self.digest(ledger), self.bookies, self.damages.append)

    def read(self, ledger: int, first: int = 0, last: int | None = None) -> dict[int, bytes]:
        return {entry: bytes(found) for entry, found in self.reader(ledger).read(first, last)}

    def check(self, ledger: int, bookie: str, members: list[str] | None = None) -> ReplicaRead:
        """Trueup's own read of one replica. ``members``: another ensemble than that of the metadata."""
        record = self.record(ledger)
        if members is not None:
            record = {**record, "fragments": [{"first_entry": 0, "bookies": members}]}
        replica = ReplicaRange(ledger, bookie, 0, 1_000)
        return check(record, self.digest(ledger), self.bookies.reads(bookie), replica)

    def through(self, proxy: Proxy, bookie: str) -> None:
        host, port = proxy.address.split(":")
        self.moved[bookie] = (host, int(port))


@pytest.fixture
def site(client: ZooKeeperClient) -> Iterator[Site]:
    made = Site(client)
    yield made
    made.bookies.close()


@pytest.fixture
def relay(site: Site) -> Iterator[Callable[[str], Proxy]]:
    made: list[Proxy] = []

    def begin(bookie: str) -> Proxy:
        made.append(Proxy(bookie))
        site.through(made[-1], bookie)
        return made[-1]

    yield begin
    for proxy in made:
        proxy.close()


def written(ledger: int, first: int, last: int) -> dict[int, bytes]:
    return {entry: payload(ledger, entry) for entry in range(first, last + 1)}


def flipped(ledger: int, entry: int) -> Callable[[str, bytes], bytes]:
    """A function that changes one byte of this entry's payload."""
    good = payload(ledger, entry)
    return lambda _way, data: data.replace(good, bytes([good[0] ^ 1]) + good[1:])


@pytest.mark.parametrize(("ensemble", "quorum"), [(1, 1), (2, 2), (3, 2), (3, 3)])
def test_a_ledger_reads_as_it_was_written(writer: LedgerWriter, site: Site, ensemble: int, quorum: int) -> None:
    ledger = writer.write(ensemble, quorum, quorum, ENTRIES)
    assert (site.read(ledger), site.damages) == (written(ledger, 0, ENTRIES - 1), [])


@pytest.mark.parametrize(("ensemble", "quorum"), [(2, 2), (3, 2)])
def test_a_range_of_it_too(writer: LedgerWriter, site: Site, ensemble: int, quorum: int) -> None:
    ledger = writer.write(ensemble, quorum, quorum, 50)
    assert site.read(ledger, 17, 31) == written(ledger, 17, 31)


def test_nothing_is_read_beyond_the_end(writer: LedgerWriter, site: Site) -> None:
    ledger = writer.write(2, 2, 2, 5)
    assert site.read(ledger, 3, 99) == written(ledger, 3, 4)


def test_an_empty_ledger_has_no_entries(writer: LedgerWriter, site: Site) -> None:
    ledger = writer.write(3, 2, 2, 0)
    assert (site.reader(ledger).last(), site.read(ledger)) == (-1, {})


@pytest.mark.parametrize(
    ("java", "kind"), [("CRC32", DigestType.CRC32), ("MAC", DigestType.HMAC), ("DUMMY", DigestType.DUMMY)]
)
def test_entries_of_every_digest_are_checked(cluster: SandboxCluster, site: Site, java: str, kind: DigestType) -> None:
    with LedgerWriter(cluster, name=java, digest=java) as other:
        ledger = other.write(2, 2, 2, 20)
    assert (site.digest(ledger).kind, site.read(ledger)) == (kind, written(ledger, 0, 19))


def test_each_bookie_holds_its_stripe(writer: LedgerWriter, site: Site) -> None:
    ledger = writer.write(3, 2, 2, 40)
    ensemble = tuple(site.record(ledger)["fragments"][0]["bookies"])
    holds = [[e for e, code, _ in site.bookies.reads(b).some(ledger, range(40)) if not code] for b in ensemble]
    assert holds == [held(EnsembleRange(0, 39, ensemble), position, 2) for position in range(3)]


def test_an_open_ledger_is_read_up_to_what_is_confirmed(writer: LedgerWriter, site: Site) -> None:
    handle = writer.create(2, 2, 2)
    writer.add(handle, 30)
    writer.add(handle, 1)  # confirms the previous entries
    reader = site.reader(handle.ledger)
    assert (site.read(handle.ledger), reader.last()) == (written(handle.ledger, 0, 29), 29)
    writer.add(handle, 1)  # fails if the ledger was fenced
    writer.close(handle)


def test_a_note_of_the_writer_covers_the_last_entry(cluster: SandboxCluster, site: Site) -> None:
    with LedgerWriter(cluster, name="noting", settings={"explicitLacInterval": "100"}) as noting:
        handle = noting.create(2, 2, 2)
        noting.add(handle, 30)
        wait_until(lambda: site.reader(handle.ledger).last() == 29, 180.0, "a note of entry 29")
        assert site.read(handle.ledger) == written(handle.ledger, 0, 29)


def test_an_open_ledger_without_entries(writer: LedgerWriter, site: Site) -> None:
    handle = writer.create(3, 2, 2)
    assert (site.reader(handle.ledger).last(), site.read(handle.ledger)) == (-1, {})
    writer.close(handle)


@pytest.mark.parametrize(("ensemble", "quorum"), [(2, 2), (3, 2)])
@pytest.mark.parametrize("entry", [0, 7, 19])
def test_a_damaged_copy_is_reported_and_another_is_read(
    writer: LedgerWriter, site: Site, relay: Callable[[str], Proxy], ensemble: int, quorum: int, entry: int
) -> None:
    ledger = writer.write(ensemble, quorum, quorum, 20)
    bookies = site.record(ledger)["fragments"][0]["bookies"]
    first = sorted(bookies)[ledger % ensemble] if ensemble == quorum else bookies[entry % ensemble]
    relay(first).change = flipped(ledger, entry)
    assert site.read(ledger) == written(ledger, 0, 19)
    assert [(damage.entry, damage.bookie) for damage in site.damages] == [(entry, first)]
    assert f"byte 32 of entry {entry} of ledger {ledger}" in site.damages[0].found


@pytest.mark.parametrize(("ensemble", "quorum"), [(2, 2), (3, 2)])
def test_a_check_of_one_replica_finds_its_damage_and_no_other(
    writer: LedgerWriter, site: Site, relay: Callable[[str], Proxy], ensemble: int, quorum: int
) -> None:
    ledger = writer.write(ensemble, quorum, quorum, 20)
    bad, good = site.record(ledger)["fragments"][0]["bookies"][:2]
    relay(bad).change = flipped(ledger, 0)
    assert site.check(ledger, bad).damaged == (0,)
    assert site.check(ledger, good).whole


def test_a_replica_that_a_bookie_never_received_is_missing(
    cluster: SandboxCluster, writer: LedgerWriter, site: Site
) -> None:
    ledger = writer.write(2, 2, 2, 20)
    members = site.record(ledger)["fragments"][0]["bookies"]
    (other,) = (bookie.id for bookie in cluster.bookies.values() if bookie.id not in members)
    with pytest.raises(Refused, match="in a write set with bookie"):
        site.check(ledger, other)
    assert site.check(ledger, other, [other, members[1]]).missing == tuple(range(20))


@pytest.mark.parametrize(("ensemble", "quorum"), [(2, 2), (3, 2)])
def test_an_entry_whose_copies_are_all_damaged(
    writer: LedgerWriter, site: Site, relay: Callable[[str], Proxy], ensemble: int, quorum: int
) -> None:
    ledger = writer.write(ensemble, quorum, quorum, 20)
    for bookie in site.record(ledger)["fragments"][0]["bookies"]:
        relay(bookie).change = flipped(ledger, 7)
    with pytest.raises(DamagedEntry, match=f"byte 32 of entry 7 of ledger {ledger} on each of"):
        site.read(ledger)
    assert {damage.entry for damage in site.damages} == {7}
    assert len({damage.bookie for damage in site.damages}) == quorum


@pytest.mark.parametrize(("ensemble", "quorum"), [(2, 2), (3, 2)])
def test_bookies_that_hang_up_are_read_around(
    writer: LedgerWriter, site: Site, relay: Callable[[str], Proxy], ensemble: int, quorum: int
) -> None:
    ledger = writer.write(ensemble, quorum, quorum, 50)
    relay(site.record(ledger)["fragments"][0]["bookies"][0]).open = False
    assert (site.read(ledger), site.damages) == (written(ledger, 0, 49), [])


@pytest.mark.parametrize(("ensemble", "quorum"), [(2, 2), (3, 2)])
def test_a_bookie_killed_during_a_read_is_replaced_by_another(
    writer: LedgerWriter, site: Site, relay: Callable[[str], Proxy], ensemble: int, quorum: int
) -> None:
    ledger = writer.write(ensemble, quorum, quorum, 2_000)
    first = sorted(site.record(ledger)["fragments"][0]["bookies"])[ledger % ensemble]
    proxy, result = relay(first), []

    def mortal(direction: str, data: bytes) -> bytes:
        result.append(len(data) if direction == "said" else 0)
        return data if sum(result) < 100_000 else b""

    proxy.change = mortal
    assert (site.read(ledger), site.damages) == (written(ledger, 0, 1_999), [])
    assert sum(result) >= 100_000


@pytest.mark.parametrize(("ensemble", "quorum"), [(2, 2), (3, 2)])
def test_when_no_bookie_answers_it_is_to_be_tried_again(
    writer: LedgerWriter, site: Site, relay: Callable[[str], Proxy], ensemble: int, quorum: int
) -> None:
    ledger = writer.write(ensemble, quorum, quorum, 5)
    for bookie in site.record(ledger)["fragments"][0]["bookies"]:
        relay(bookie).open = False
    with pytest.raises(Retry, match=f"expected entry 0 of ledger {ledger} from one of"):
        site.read(ledger)


def test_a_bookie_that_does_not_know_batches_is_read_from_all_the_same(
    writer: LedgerWriter, site: Site, relay: Callable[[str], Proxy]
) -> None:
    ledger = writer.write(2, 2, 2, ENTRIES)
    asked: list[int] = []

    def older(direction: str, data: bytes) -> bytes:
        if direction == "said" or not data:
            return data
        asked.append(data[5])
        return b"" if asked[-1] == 7 else data

    for bookie in site.record(ledger)["fragments"][0]["bookies"]:
        relay(bookie).change = older
    assert site.read(ledger) == written(ledger, 0, ENTRIES - 1)
    assert (asked[:2], site.damages) == ([7, 2], [])


def test_a_bookie_that_lost_the_ledger_is_reported_and_another_is_read(
    cluster: SandboxCluster, writer: LedgerWriter, site: Site
) -> None:
    ledger = writer.write(2, 2, 2, 20)
    members = site.record(ledger)["fragments"][0]["bookies"]
    (outsider,) = {cluster.bookie_id(n) for n in cluster.bookies} - set(members)
    first = sorted(members)[ledger % 2]
    site.moved[first] = site.addresses(outsider)
    assert site.read(ledger) == written(ledger, 0, 19)
    assert [(damage.entry, damage.bookie) for damage in site.damages] == [(0, first)]


def test_entries_that_a_bookie_lost_are_reported_and_read_from_others(writer: LedgerWriter, site: Site) -> None:
    ledger = writer.write(3, 2, 2, 20)
    members = site.record(ledger)["fragments"][0]["bookies"]
    site.moved[members[0]] = site.addresses(members[2])
    assert site.read(ledger) == written(ledger, 0, 19)
    assert [(damage.entry, damage.bookie) for damage in site.damages] == [(e, members[0]) for e in range(0, 20, 3)]


def test_a_ledger_that_no_bookie_has(writer: LedgerWriter, site: Site) -> None:
    ledger = writer.write(2, 2, 2, 3)
    nowhere = site.record(ledger) | {"ledger": NEVER_WRITTEN}
    with pytest.raises(NoSuchLedger):
        list(LedgerReader(nowhere, site.digest(ledger), site.bookies, site.damages.append).read())


@pytest.mark.parametrize(("ensemble", "quorum"), [(2, 2), (3, 2)])
def test_an_entry_that_no_bookie_has(writer: LedgerWriter, site: Site, ensemble: int, quorum: int) -> None:
    ledger = writer.write(ensemble, quorum, quorum, 3)
    longer = site.record(ledger) | {"last_entry": 5}
    reader = LedgerReader(longer, site.digest(ledger), site.bookies, site.damages.append)
    with pytest.raises(NoSuchEntry, match="expected entry 3 of ledger"):
        list(reader.read())


def test_a_ledger_of_two_fragments(cluster: SandboxCluster, writer: LedgerWriter, site: Site) -> None:
    handle = writer.create(2, 2, 2)
    writer.add(handle, 30)
    first = site.record(handle.ledger)["fragments"][0]["bookies"]
    number = next(n for n in cluster.bookies if cluster.bookie_id(n) == first[0])
    cluster.kill(f"bookie{number}")
    try:
        writer.add(handle, 30)
        writer.close(handle)
        assert len(site.record(handle.ledger)["fragments"]) == 2
        assert site.read(handle.ledger) == written(handle.ledger, 0, 59)
    finally:
        cluster.start(f"bookie{number}")


def test_single_questions(writer: LedgerWriter, site: Site) -> None:
    ledger = writer.write(2, 2, 2, 3)
    bookie = site.record(ledger)["fragments"][0]["bookies"][0]
    with site.bookies.calls(bookie) as calls:
        found = [calls.read(ledger, 1).code, calls.read(ledger, 9).code, calls.read(NEVER_WRITTEN, 0).code]
        room = calls.room()
        nothing = calls.lac(NEVER_WRITTEN)
        stored = memoryview(calls.read(ledger, 1).stored)
    site.digest(ledger).check(ledger, 1, stored)
    assert (found, nothing) == ([Code.OK, Code.NO_ENTRY, Code.NO_LEDGER], None)
    assert 0 < room.free <= room.total
