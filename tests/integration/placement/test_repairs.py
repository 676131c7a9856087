"""Marks and the Auditor vote with BookKeeper: two racks, and workers that repair placement."""

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from tests.e2e.trueup import Witness
from tests.integration.bookkeeper.tree import MemoryJournal
from tests.supervised import run
from trueup.connectors.bookkeeper.metadata import queries
from trueup.connectors.bookkeeper.metadata.capture import BookKeeperCapture, JournalContent
from trueup.connectors.bookkeeper.metadata.layout import BookKeeperPaths
from trueup.connectors.bookkeeper.metadata.racks import Script
from trueup.connectors.bookkeeper.placement.auditor_election import AuditorOrders, AuditorState, Vote
from trueup.connectors.bookkeeper.placement.mark_creations import MarkOrder
from trueup.connectors.bookkeeper.placement.marks import Marks
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.writer import LedgerWriter
from trueup.state.bookkeeper.observations import LedgerState

pytestmark = pytest.mark.servers

ROOT = "/ledgers"
ENTRIES = 20
WAIT_S = 180.0


class Auditor:
    """Trueup's vote and its notifications."""

    def __init__(self, cluster: SandboxCluster) -> None:
        self.orders_received: list[AuditorOrders] = []
        self.vote = Vote(
            lambda: ZooKeeperClient(cluster.zookeeper.address, timeout=30.0),
            ROOT,
            "trueup-test",
            self.orders_received.append,
        )


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., SandboxCluster]) -> SandboxCluster:
    # A worker releases a lock after 1/32 of this time, doubled at each attempt.
    settings = {"lockReleaseOfFailedLedgerGracePeriod": 64_000}
    return start_cluster(racks={"/rack1": 3, "/rack2": 2}, autorecovery=1, daemons=False, settings=settings)


@pytest.fixture(scope="module")
def auditor(cluster: SandboxCluster) -> Iterator[Auditor]:
    """Votes before any AutoRecovery daemon does."""
    made = Auditor(cluster)
    made.vote.start(run)
    wait_until(lambda: made.vote.holder().role is AuditorState.OURS, WAIT_S, "our vote to be the lowest")
    cluster.start("autorecovery")
    yield made
    made.vote.close()


@pytest.fixture(scope="module")
def client(cluster: SandboxCluster) -> Iterator[ZooKeeperClient]:
    made = ZooKeeperClient(cluster.zookeeper.address, timeout=30.0).open()
    yield made
    made.shut()


@pytest.fixture(scope="module")
def paths(client: ZooKeeperClient, auditor: Auditor) -> BookKeeperPaths:
    return queries.paths_of(client, ROOT)


@pytest.fixture(scope="module")
def journal(cluster: SandboxCluster, auditor: Auditor) -> Iterator[MemoryJournal]:
    made = MemoryJournal()
    capture = BookKeeperCapture(
        lambda: ZooKeeperClient(cluster.zookeeper.address, timeout=30.0),
        ROOT,
        Script(cluster.rack_script),
        made.publish,
        made.seen,
        JournalContent(),
        lambda: 1_000,
    )
    capture.start(run)
    wait_until(lambda: capture.health().synced, WAIT_S, "the capture to be in step")
    yield made
    capture.close()


@pytest.fixture(autouse=True)
def all_bookies(cluster: SandboxCluster, journal: MemoryJournal) -> None:
    cluster.start("bookies")
    wait_until(lambda: statuses(journal) == {"writable"}, WAIT_S, "all bookies to be registered")


@pytest.fixture
def writer(cluster: SandboxCluster) -> Iterator[LedgerWriter]:
    with LedgerWriter(cluster) as made:
        yield made


def statuses(journal: MemoryJournal) -> set[str]:
    return {sighting.registered for sighting in journal.bookies[-1]} if journal.bookies else set()


def registered(journal: MemoryJournal) -> set[str]:
    return {sighting.bookie for sighting in journal.bookies[-1] if sighting.registered}


def members(journal: MemoryJournal, ledger: int) -> list[str]:
    record = journal.ledgers.get(ledger)
    return [bookie for fragment in record["fragments"] for bookie in fragment["bookies"]] if record else []


def racks(journal: MemoryJournal, ledger: int) -> set[str | None]:
    rack = {sighting.bookie: sighting.rack for sighting in journal.bookies[-1]}
    return {rack[bookie] for bookie in members(journal, ledger)}


def written(cluster: SandboxCluster, writer: LedgerWriter, journal: MemoryJournal, down: str, ensemble: int = 2) -> int:
    """A closed ledger written while the bookies ``down`` were stopped."""
    cluster.stop(down)
    wait_until(lambda: "" in statuses(journal), WAIT_S, f"{down} to be lost")
    ledger = writer.write(ensemble, ensemble, ensemble, ENTRIES)
    wait_until(lambda: state(journal, ledger) == LedgerState.CLOSED, WAIT_S, "the ledger to be closed")
    return ledger


def state(journal: MemoryJournal, ledger: int) -> int:
    record = journal.ledgers.get(ledger)
    return -1 if record is None else record["state"]


def order(client: ZooKeeperClient, paths: BookKeeperPaths, ledger: int, *replicas: str) -> MarkOrder:
    found = queries.one(client, paths, ledger, 0)
    assert found is not None
    return MarkOrder(ledger, found[1].version, replicas, 1_000)


def marked(client: ZooKeeperClient, paths: BookKeeperPaths, ledger: int) -> bool:
    return client.look(paths.mark(ledger)) is not None


def test_bookies_have_the_racks_of_the_script(cluster: SandboxCluster, journal: MemoryJournal) -> None:
    reported = {sighting.bookie: (sighting.rack, sighting.cookie) for sighting in journal.bookies[-1]}
    assert reported == {cluster.bookie_id(n): (cluster.rack_of(n), True) for n in cluster.bookies}


def test_a_marked_ledger_on_one_rack_is_spread(
    cluster: SandboxCluster,
    client: ZooKeeperClient,
    paths: BookKeeperPaths,
    journal: MemoryJournal,
    writer: LedgerWriter,
) -> None:
    ledger = written(cluster, writer, journal, "/rack2")
    before = racks(journal, ledger)
    cluster.start("bookies")
    wait_until(lambda: statuses(journal) == {"writable"}, WAIT_S, "rack 2 to be back")
    reported = Marks(client, paths).mark([order(client, paths, ledger)])[0].result
    wait_until(lambda: racks(journal, ledger) == {"/rack1", "/rack2"}, WAIT_S, "the ledger to be spread")
    wait_until(lambda: not marked(client, paths, ledger), WAIT_S, "the mark to be taken away")
    assert (before, reported, writer.verify(ledger, ENTRIES).read) == ({"/rack1"}, "written", ENTRIES)


def test_a_marked_ledger_that_lost_a_bookie_is_made_up_to_strength(
    cluster: SandboxCluster,
    client: ZooKeeperClient,
    paths: BookKeeperPaths,
    journal: MemoryJournal,
    writer: LedgerWriter,
) -> None:
    ledger = writer.write(2, 2, 2, ENTRIES)
    wait_until(lambda: state(journal, ledger) == LedgerState.CLOSED, WAIT_S, "the ledger to be closed")
    number, lost = next(
        (n, cluster.bookie_id(n)) for n in cluster.bookies if cluster.bookie_id(n) in members(journal, ledger)
    )
    cluster.kill(f"bookie{number}")
    wait_until(lambda: "" in statuses(journal), WAIT_S, "the bookie to be lost")
    reported = Marks(client, paths).mark([order(client, paths, ledger, lost)])[0].result
    wait_until(lambda: lost not in members(journal, ledger), WAIT_S, "the bookie to be replaced")
    assert (reported, len(members(journal, ledger)), writer.verify(ledger, ENTRIES).read) == ("written", 2, ENTRIES)


def test_one_entry_is_made_up_to_strength_although_a_whole_window_without_entries_is_lost(
    cluster: SandboxCluster,
    client: ZooKeeperClient,
    paths: BookKeeperPaths,
    journal: MemoryJournal,
    writer: LedgerWriter,
) -> None:
    ledger = writer.write(3, 2, 2, 1)
    wait_until(lambda: state(journal, ledger) == LedgerState.CLOSED, WAIT_S, "the ledger to be closed")
    lost = members(journal, ledger)[1:]
    for number in cluster.bookies:
        if cluster.bookie_id(number) in lost:
            cluster.kill(f"bookie{number}")
    wait_until(lambda: registered(journal).isdisjoint(lost), WAIT_S, "both bookies to be lost")
    reported = Marks(client, paths).mark([order(client, paths, ledger, *lost)])[0].result
    wait_until(lambda: set(lost).isdisjoint(members(journal, ledger)), WAIT_S, "both to be replaced")
    assert (reported, len(members(journal, ledger)), writer.verify(ledger, 1).read) == ("written", 3, 1)


def test_a_mark_is_withdrawn_from_under_a_worker_that_cannot_repair_it(
    cluster: SandboxCluster,
    client: ZooKeeperClient,
    paths: BookKeeperPaths,
    journal: MemoryJournal,
    writer: LedgerWriter,
) -> None:
    ledger = written(cluster, writer, journal, "/rack2")
    acting = Marks(client, paths)
    acting.mark([order(client, paths, ledger)])
    wait_until(lambda: client.look(paths.lock(ledger)) is not None, WAIT_S, "a worker to take the lock")
    found = client.look(paths.mark(ledger))
    assert found is not None
    reported = acting.withdraw([(ledger, found[1].version)])[0].result
    wait_until(lambda: client.look(paths.lock(ledger)) is None, WAIT_S, "the worker to give up the lock")
    assert (reported, marked(client, paths, ledger)) == ("withdrawn", False)


def test_a_request_for_an_audit_comes_to_the_holder_of_the_vote(
    auditor: Auditor, client: ZooKeeperClient, paths: BookKeeperPaths
) -> None:
    before = len(auditor.orders_received)
    found = client.look(paths.delay)
    assert found is not None
    client.put(paths.delay, found[0], -1)
    wait_until(lambda: len(auditor.orders_received) > before, WAIT_S, "the request")
    assert auditor.orders_received[-1] == AuditorOrders(delay_s=0, audit=True, disabled=False)


def test_switching_replication_off_is_reported(
    auditor: Auditor, client: ZooKeeperClient, paths: BookKeeperPaths
) -> None:
    client.make(paths.disable)
    wait_until(lambda: auditor.orders_received[-1].disabled, WAIT_S, "the switch")
    client.drop(paths.disable, -1)
    wait_until(lambda: not auditor.orders_received[-1].disabled, WAIT_S, "the switch back")
    assert auditor.vote.holder().role is AuditorState.OURS


def test_the_auditor_is_parked_until_the_vote_is_given_back(
    cluster: SandboxCluster,
    auditor: Auditor,
    client: ZooKeeperClient,
    paths: BookKeeperPaths,
    journal: MemoryJournal,
    writer: LedgerWriter,
) -> None:
    ledger = writer.write(2, 2, 2, ENTRIES)
    wait_until(lambda: state(journal, ledger) == LedgerState.CLOSED, WAIT_S, "the ledger to be closed")
    number = next(n for n in cluster.bookies if cluster.bookie_id(n) in members(journal, ledger))
    cluster.kill(f"bookie{number}")
    wait_until(lambda: "" in statuses(journal), WAIT_S, "the bookie to be lost")
    # The worker removes a mark on a healthy ledger, which proves that the daemon runs. The other ledger stays unmarked.
    with closing(Witness(cluster)) as witness, witness.counting() as created:
        probe = writer.write(2, 2, 2, 1)
        Marks(client, paths).mark([order(client, paths, probe)])
        wait_until(lambda: not marked(client, paths, probe), WAIT_S, "the worker to have looked")
        parked = ledger not in created and cluster.bookie_id(number) in members(journal, ledger)
        auditor.vote.close()
        wait_until(lambda: cluster.bookie_id(number) not in members(journal, ledger), WAIT_S, "BookKeeper's own repair")
    assert (parked, ledger in created) == (True, True)
