"""Presence requests to real bookies, before and after the deletion of a ledger."""

from collections.abc import Callable, Iterator

import pytest

from trueup.connectors.bookkeeper.deletion.presence import PresenceAnswer, presence
from trueup.connectors.bookkeeper.metadata import queries
from trueup.connectors.bookkeeper.metadata.addresses import Addresses
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.writer import LedgerWriter

pytestmark = pytest.mark.servers
GONE, HELD, SILENT = PresenceAnswer.GONE, PresenceAnswer.HELD, PresenceAnswer.SILENT
NEVER_WRITTEN = 987_654


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., SandboxCluster]) -> SandboxCluster:
    return start_cluster(racks={"/rack1": 2, "/rack2": 1}, autorecovery=0, settings={"gcWaitTime": 1_000})


@pytest.fixture(scope="module")
def writer(cluster: SandboxCluster) -> Iterator[LedgerWriter]:
    with LedgerWriter(cluster) as made:
        yield made


@pytest.fixture(scope="module")
def client(cluster: SandboxCluster) -> Iterator[ZooKeeperClient]:
    made = ZooKeeperClient(cluster.zookeeper.address, timeout=30.0).open()
    yield made
    made.shut()


Ask = Callable[..., dict[int, dict[str, PresenceAnswer]]]


def asking(client: ZooKeeperClient) -> Ask:
    paths = queries.paths_of(client, "/ledgers")
    return lambda asked, **options: presence(asked, Addresses(client, paths), 5.0, **options)


@pytest.fixture
def ask(client: ZooKeeperClient) -> Ask:
    return asking(client)


@pytest.fixture
def all_bookies(cluster: SandboxCluster) -> list[str]:
    return [cluster.bookie_id(n) for n in cluster.bookies]


def every(bookies: list[str], answer: PresenceAnswer) -> dict[str, PresenceAnswer]:
    return dict.fromkeys(bookies, answer)


def test_bookies_of_an_ensemble_hold_the_ledger(writer: LedgerWriter, ask: Ask, all_bookies: list[str]) -> None:
    ledger = writer.write(3, 2, 2, 5)
    assert ask({ledger: all_bookies}) == {ledger: every(all_bookies, HELD)}


def test_a_ledger_that_never_was_is_gone_everywhere(ask: Ask, all_bookies: list[str]) -> None:
    assert ask({NEVER_WRITTEN: all_bookies}) == {NEVER_WRITTEN: every(all_bookies, GONE)}


def test_thousands_are_distinguished(writer: LedgerWriter, ask: Ask, all_bookies: list[str]) -> None:
    held = [writer.write(3, 3, 2, 1) for _ in range(5)]
    asked = dict.fromkeys([*held, *range(NEVER_WRITTEN, NEVER_WRITTEN + 5000)], all_bookies)
    found = ask(asked)
    assert found == {i: every(all_bookies, HELD if i in held else GONE) for i in asked}


def test_a_deleted_ledger_goes_from_every_bookie(writer: LedgerWriter, ask: Ask, all_bookies: list[str]) -> None:
    ledger = writer.write(3, 3, 2, 20)
    writer.delete(ledger)
    wait_until(lambda: ask({ledger: all_bookies})[ledger] == every(all_bookies, GONE), 180.0, "no bookie to hold it")


def test_a_bookie_that_was_down_holds_the_ledger_until_it_collects(
    cluster: SandboxCluster, writer: LedgerWriter, ask: Ask, all_bookies: list[str]
) -> None:
    ledger = writer.write(3, 3, 2, 20)
    reasons: dict[tuple[int, str], str] = {}
    cluster.kill("bookie3")
    down = cluster.bookie_id(3)
    try:
        assert ask({ledger: all_bookies}, reasons=reasons)[ledger] == every(all_bookies, HELD) | {down: SILENT}
        assert (down in reasons[ledger, down], len(reasons)) == (True, 1)
        writer.delete(ledger)
        gone_but_one = every(all_bookies, GONE) | {down: SILENT}
        wait_until(lambda: ask({ledger: all_bookies})[ledger] == gone_but_one, 180.0, "the others to drop it")
    finally:
        cluster.start("bookie3")
    wait_until(lambda: ask({ledger: all_bookies})[ledger] == every(all_bookies, GONE), 180.0, "all to drop it")


def test_a_bookie_that_is_not_registered_is_not_asked(writer: LedgerWriter, ask: Ask) -> None:
    ledger = writer.write(2, 2, 2, 1)
    reasons: dict[tuple[int, str], str] = {}
    assert ask({ledger: ["127.0.0.9:3181"]}, reasons=reasons) == {ledger: {"127.0.0.9:3181": SILENT}}
    assert reasons[ledger, "127.0.0.9:3181"] == "bookie 127.0.0.9:3181 is not registered"


@pytest.fixture(scope="module")
def older_storage(start_cluster: Callable[..., SandboxCluster]) -> SandboxCluster:
    """A bookie that keeps written entries in memory for minutes."""
    storage = "org.apache.bookkeeper.bookie.SortedLedgerStorage"
    settings = {"gcWaitTime": 1_000, "flushInterval": 600_000, "ledgerStorageClass": storage}
    return start_cluster(racks={"/rack1": 1}, autorecovery=0, settings=settings)


def test_a_bookie_of_the_older_storage_drops_what_it_has_in_memory(older_storage: SandboxCluster) -> None:
    client = ZooKeeperClient(older_storage.zookeeper.address, timeout=30.0).open()
    ask, bookie = asking(client), older_storage.bookie_id(1)
    with LedgerWriter(older_storage) as writer:
        ledger = writer.write(1, 1, 1, 3)
        assert ask({ledger: [bookie]}) == {ledger: {bookie: HELD}}
        writer.delete(ledger)
        wait_until(lambda: ask({ledger: [bookie]})[ledger][bookie] is GONE, 180.0, "the bookie to drop it")
    client.shut()
