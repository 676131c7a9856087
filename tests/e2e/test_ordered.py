"""`trueup delete ledger` on a BookKeeper without Pulsar: the ordered ledger is deleted from every bookie. The last test
restores an older copy of the cluster's ZooKeeper and runs `trueup journal rebuild`."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.trueup import Trueup, Witness, command
from trueup.connectors.bookkeeper.deletion.presence import PresenceAnswer, presence
from trueup.connectors.bookkeeper.metadata.addresses import Addresses
from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.demo.leak import instance
from trueup.sandbox.writer import LedgerWriter

pytestmark = [pytest.mark.servers, pytest.mark.release, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., SandboxCluster]) -> SandboxCluster:
    return start_cluster(racks={"/rack1": 2, "/rack2": 1}, daemons=False)


@pytest.fixture(scope="module")
def trueup(cluster: SandboxCluster, new_root: Callable[[], Path]) -> Iterator[Trueup]:
    chosen = {"owners": "operator", "instance": instance(cluster.zookeeper.address), "mode": "approve"}
    with Trueup(cluster, new_root(), deletion={**chosen, "confirm_s": 0.5}) as made:
        made.start()
        yield made


def held(witness: Witness, ledger: int, bookies: list[str]) -> set[str]:
    """Bookies that do not confirm the absence of the ledger."""
    found = presence({ledger: bookies}, Addresses(witness.client, witness.paths), 5.0)[ledger]
    return {bookie for bookie, answer in found.items() if answer is not PresenceAnswer.GONE}


def test_what_is_ordered_is_gone_from_every_bookie(trueup: Trueup, writer: LedgerWriter, witness: Witness) -> None:
    ledger, other = writer.write(3, 2, 2, 20), writer.write(3, 2, 2, 20)
    bookies = [row["bookie"] for row in trueup.api("bookies")]
    before = held(witness, ledger, bookies)
    row = trueup.json("delete", "ledger", str(ledger), "--yes")
    assert (row["stage"], len(before) > 0, held(witness, ledger, bookies), held(witness, other, bookies) != set()) == (
        "confirmed",
        True,
        set(),
        True,
    )


def test_a_killed_trueup_goes_on_with_an_order(
    trueup: Trueup, cluster: SandboxCluster, writer: LedgerWriter, witness: Witness
) -> None:
    ledger = writer.write(3, 3, 2, 20)
    cluster.kill("bookie1")
    assert trueup.run("delete", "ledger", str(ledger), "--yes", "--wait", "1").code == 4
    trueup.kill()
    trueup.start()
    cluster.start("bookie1")
    trueup.until("the deletion to be confirmed", lambda: not trueup.api("deletions"))
    assert witness.client.look(witness.paths.ledger(ledger)) is None


def test_an_open_ledger_is_refused(trueup: Trueup, writer: LedgerWriter, witness: Witness) -> None:
    ledger = writer.create(3, 2, 2).ledger
    result = trueup.run("delete", "ledger", str(ledger), "--yes")
    assert (result.code, witness.client.look(witness.paths.ledger(ledger)) is not None) == (5, True)


def test_a_restored_zookeeper_is_noticed_and_begun_anew_with(
    trueup: Trueup, cluster: SandboxCluster, writer: LedgerWriter, witness: Witness, new_root: Callable[[], Path]
) -> None:
    data, copy, kept = cluster.zookeeper.root / "data", new_root() / "copy", writer.write(3, 2, 2, 20)
    trueup.until("the ledger to be observed", lambda: trueup.get(f"api/ledgers/{kept}")[0] == 200)
    held = trueup.api("status")["ledgers"]
    cluster.kill("zookeeper")
    shutil.copytree(data, copy)
    cluster.start("zookeeper")
    metadata = witness.client.retry(witness.client.get, witness.paths.ledger(kept))[0]
    witness.client.retry(witness.client.create, witness.paths.ledger(1_000_000), metadata, makepath=True)
    trueup.wait("the ledger to be observed", lambda status: status["ready"] and status["ledgers"] > held)
    trueup.end()
    cluster.kill("zookeeper")
    shutil.rmtree(data)
    shutil.copytree(copy, data)
    cluster.start("zookeeper")
    trueup.process.start()
    trueup.wait("the copy to be noticed", lambda status: any("rebuild" in each for each in status["problems"]))
    ready, rebuild = trueup.get("readyz")[0], ["journal", "rebuild", "-c", str(trueup.file), "--yes"]
    running = command(*rebuild)
    trueup.end()
    done = command(*rebuild)
    trueup.start()
    found = ready, running.code, done.code, trueup.api("status")["ledgers"]
    assert found == (503, 2, 0, held), (running, done)
