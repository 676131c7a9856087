import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from kazoo.client import KazooClient

from trueup.connectors.embedded.processes import wait_until
from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.writer import LedgerWriter, Readback, payload
from trueup.state.common.errors import Stop, Unknown

pytestmark = [pytest.mark.servers, pytest.mark.release]

ENTRIES = 30


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., SandboxCluster]) -> SandboxCluster:
    return start_cluster(racks={"/rack1": 2, "/rack2": 2}, autorecovery=1, kafka=True)


@pytest.fixture(autouse=True)
def all_up(cluster: SandboxCluster) -> None:
    cluster.start("bookies")


@pytest.fixture
def writer(cluster: SandboxCluster) -> Iterator[LedgerWriter]:
    with LedgerWriter(cluster) as made:
        yield made


@pytest.fixture
def session(cluster: SandboxCluster) -> Iterator[KazooClient]:
    client = KazooClient(cluster.zookeeper.address)
    client.start()
    yield client
    client.stop()
    client.close()


def test_every_server_listens_on_loopback_only(cluster: SandboxCluster) -> None:
    listening = [
        connection.laddr.ip
        for server in cluster.servers.values()
        for connection in psutil.Process(server.process.pid).net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert [ip for ip in listening if not ip.removeprefix("::ffff:").startswith("127.")] == []


def test_bookies_register_under_the_addresses_of_their_racks(cluster: SandboxCluster, session: KazooClient) -> None:
    registered = {name for name in session.get_children("/ledgers/available") if name != "readonly"}
    assert registered == {cluster.bookie_id(n) for n in cluster.bookies}


def test_the_rack_script_answers_for_each_bookie(cluster: SandboxCluster) -> None:
    addresses = [cluster.bookie_id(n).split(":")[0] for n in cluster.bookies]
    done = subprocess.run([cluster.rack_script, *addresses], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["/rack1", "/rack1", "/rack2", "/rack2"]


def test_what_was_written_reads_back(writer: LedgerWriter) -> None:
    ledger = writer.write(2, 2, 2, ENTRIES)
    assert writer.verify(ledger, ENTRIES).read == ENTRIES


def test_an_open_ledger_is_read_without_fencing_it(writer: LedgerWriter) -> None:
    handle = writer.create(2, 2, 2)
    writer.add(handle, ENTRIES)
    assert writer.verify(handle.ledger, ENTRIES).read == ENTRIES
    writer.add(handle, 1)
    assert handle.entries == ENTRIES + 1


def test_a_writer_goes_on_in_a_new_fragment_when_it_loses_a_bookie(
    cluster: SandboxCluster, writer: LedgerWriter
) -> None:
    handle = writer.create(3, 3, 2)
    writer.add(handle, ENTRIES)
    member = handle.java.getLedgerMetadata().getEnsembleAt(0).get(0).toString()
    cluster.kill(next(bookie.name for bookie in cluster.bookies.values() if bookie.id == member))
    writer.add(handle, ENTRIES)
    writer.close(handle)
    assert handle.java.getLedgerMetadata().getAllEnsembles().size() == 2
    assert writer.verify(handle.ledger, 2 * ENTRIES).read == 2 * ENTRIES


def test_an_entry_that_is_never_acknowledged_is_given_up(cluster: SandboxCluster) -> None:
    zookeeper = psutil.Process(cluster.zookeeper.process.pid)
    with LedgerWriter(cluster, name="given-up", settings={"addEntryQuorumTimeoutSec": "2"}) as writer:
        handle = writer.create(2, 2, 2)
        writer.add(handle, ENTRIES)
        member = handle.java.getLedgerMetadata().getEnsembleAt(0).get(0).toString()
        zookeeper.suspend()  # the replacement of a bookie cannot be recorded
        try:
            cluster.kill(next(bookie.name for bookie in cluster.bookies.values() if bookie.id == member))
            with pytest.raises(Unknown):
                writer.add(handle, 1)
        finally:
            zookeeper.resume()
        writer.close(handle)
        assert (handle.entries, writer.verify(handle.ledger, ENTRIES).read) == (ENTRIES, ENTRIES)


def test_a_lost_entry_does_not_hide_the_others(cluster: SandboxCluster, writer: LedgerWriter) -> None:
    handle = writer.create(2, 1, 1)
    writer.add(handle, ENTRIES)
    writer.close(handle)
    cluster.kill("bookie1")
    first = handle.java.getLedgerMetadata().getEnsembleAt(0)
    members = [first.get(index).toString() for index in range(2)]
    lost = [entry for entry in range(ENTRIES) if members[entry % 2] == cluster.bookie_id(1)]
    assert writer.verify(handle.ledger, ENTRIES).lost == tuple(lost)


def test_all_entries_of_a_dead_cluster_are_lost(cluster: SandboxCluster, writer: LedgerWriter) -> None:
    ledger = writer.write(2, 2, 2, ENTRIES)
    cluster.kill("bookies")
    assert writer.verify(ledger, ENTRIES).lost == tuple(range(ENTRIES))


def test_other_content_is_corrupt(cluster: SandboxCluster) -> None:
    with (
        LedgerWriter(cluster, entry_size=100, name="longer") as longer,
        LedgerWriter(cluster, entry_size=99) as shorter,
    ):
        ledger = longer.write(2, 2, 2, 3)
        assert shorter.verify(ledger, 3).corrupt == (0, 1, 2)


def test_a_flipped_bit_on_disk_is_corrupt(cluster: SandboxCluster, writer: LedgerWriter) -> None:
    handle = writer.create(1, 1, 1)
    writer.add(handle, 5)
    writer.close(handle)
    member = handle.java.getLedgerMetadata().getEnsembleAt(0).get(0).toString()
    bookie = next(bookie for bookie in cluster.bookies.values() if bookie.id == member)
    cluster.stop(bookie.name)
    flip(bookie.root, payload(handle.ledger, 3))
    cluster.start(bookie.name)
    assert writer.verify(handle.ledger, 5) == Readback(handle.ledger, 4, corrupt=(3,))


def test_a_deleted_ledger_is_lost(writer: LedgerWriter) -> None:
    ledger = writer.write(2, 2, 2, 1)
    writer.delete(ledger)
    assert writer.verify(ledger, 1).lost == (0,)


def test_no_ledger_can_be_made_on_too_few_bookies(cluster: SandboxCluster, writer: LedgerWriter) -> None:
    with pytest.raises(Unknown, match="NotEnoughBookies"):
        writer.create(5, 2, 2)


def test_a_killed_bookie_loses_its_registration_and_gets_it_back(cluster: SandboxCluster, session: KazooClient) -> None:
    cluster.kill("bookie4")
    wait_until(lambda: not registered(session, cluster, 4), 180.0, "the registration gone")
    cluster.start("bookie4")
    assert registered(session, cluster, 4)


def test_a_stopped_bookie_unregisters_at_once(cluster: SandboxCluster, session: KazooClient) -> None:
    cluster.stop("bookie3", 180.0)
    assert not registered(session, cluster, 3)


def test_a_rack_goes_and_comes_as_one(cluster: SandboxCluster) -> None:
    cluster.kill("/rack2")
    assert [name for name, alive in cluster.status().items() if not alive] == ["bookie3", "bookie4"]
    cluster.start("/rack2")
    assert all(cluster.status().values())


def test_entries_outlive_a_kill_of_every_bookie(cluster: SandboxCluster, writer: LedgerWriter) -> None:
    ledger = writer.write(2, 2, 2, ENTRIES)
    cluster.kill("bookies")
    cluster.start("bookies")
    assert writer.verify(ledger, ENTRIES).read == ENTRIES


def test_an_unknown_server_is_refused_with_the_known_ones(cluster: SandboxCluster) -> None:
    with pytest.raises(Stop, match=r"bookie4.*/rack2"):
        cluster.kill("bookie5")


def test_the_worker_has_the_repair_flag(cluster: SandboxCluster) -> None:
    conf = (cluster.autorecoveries[0].root / "autorecovery1.conf").read_text()
    assert "repairedPlacementPolicyNotAdheringBookieEnabled=true\n" in conf


def test_content_differs_between_entries_and_ledgers() -> None:
    assert len({payload(ledger, entry) for ledger in range(5) for entry in range(5)}) == 25


def flip(directory: Path, content: bytes) -> None:
    """Change one bit of every copy of an entry in entry logs and journals."""
    found = 0
    for path in [*directory.rglob("*.log"), *directory.rglob("*.txn")]:
        stored = path.read_bytes()
        found += stored.count(content)
        path.write_bytes(stored.replace(content, bytes([content[0] ^ 1]) + content[1:]))
    assert found


def registered(session: KazooClient, cluster: SandboxCluster, number: int) -> bool:
    return session.exists(f"/ledgers/available/{cluster.bookie_id(number)}") is not None
