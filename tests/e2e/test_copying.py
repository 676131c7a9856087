"""Ledgers that Trueup itself copies, in a cluster without any AutoRecovery daemon: `placement.executor` is copy."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.trueup import Trueup, on_one_rack
from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.demo.truth import Truth
from trueup.sandbox.writer import LedgerWriter

pytestmark = pytest.mark.servers
ENTRIES = 200
LEDGERS = 4


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., SandboxCluster]) -> SandboxCluster:
    """A bookie that a copy replaced is no target, so one must be left that was never a member."""
    return start_cluster(racks={"/rack1": 5, "/rack2": 2}, autorecovery=0, kafka=True)


@pytest.fixture(scope="module")
def ledgers(cluster: SandboxCluster, writer: LedgerWriter) -> dict[str, list[int]]:
    """``near``: ledgers with both replicas on one rack. ``out of reach``: four members on one rack with Qw 3, which the
    walk of BookKeeper's workers does not lead to two racks."""
    near = on_one_rack(cluster, writer, LEDGERS, ENTRIES)
    cluster.stop("/rack2")
    far = [writer.write(4, 3, 2, ENTRIES) for _ in range(LEDGERS)]
    cluster.start("/rack2")
    return {"near": near, "out of reach": far}


@pytest.fixture(scope="module")
def trueup(cluster: SandboxCluster, ledgers: dict[str, list[int]], new_root: Callable[[], Path]) -> Iterator[Trueup]:
    placement = {
        "mode": "approve",
        "grace_s": 1.0,
        "hold_share": 0.9,
        "executor": "copy",
        "copy_enabled": True,
        "decline_retry_s": 1.0,
    }
    with Trueup(cluster, new_root(), placement=placement, journal={"bootstrap": cluster.kafka.bootstrap}) as made:
        made.start()
        yield made


def test_a_copy_waits_for_its_approval(trueup: Trueup, ledgers: dict[str, list[int]], truth: Truth) -> None:
    wanted = {ledger for some in ledgers.values() for ledger in some}
    trueup.until("all to be planned", lambda: {row["ledger"] for row in trueup.api("plan")} == wanted)
    (row,) = (row for row in trueup.api("plan") if row["ledger"] == ledgers["near"][0])
    assert (row["kind"], row["stage"], ledgers["near"][0] in truth.on_one_rack()) == ("copy", "awaiting approval", True)


@pytest.mark.parametrize("placed", ["near", "out of reach"])
def test_an_approved_copy_is_made_and_no_other_one(
    placed: str, trueup: Trueup, ledgers: dict[str, list[int]], truth: Truth, writer: LedgerWriter
) -> None:
    first, *others = ledgers[placed]
    (row,) = (row for row in trueup.api("plan") if row["ledger"] == first)
    assert trueup.run("approve", row["id"]).code == 0
    trueup.until("the copy", lambda: first not in truth.on_one_rack())
    assert ({*others} <= truth.on_one_rack(), writer.verify(first, ENTRIES).read) == (True, ENTRIES)


def test_ledgers_are_copied_that_no_worker_can_repair(
    trueup: Trueup, ledgers: dict[str, list[int]], truth: Truth, writer: LedgerWriter
) -> None:
    left = {*ledgers["out of reach"][1:]}
    trueup.until("the approved one to be true", lambda: {*trueup.findings("no-walk")} == left)
    trueup.set("placement.mode", "enforce")
    trueup.wait("all to be true", lambda status: status["counts"]["true"] == 2 * LEDGERS)
    reads = [writer.verify(ledger, ENTRIES).read for some in ledgers.values() for ledger in some]
    assert (truth.on_one_rack(), reads) == (set(), [ENTRIES] * 2 * LEDGERS)


def test_a_lost_bookie_is_replaced_without_any_daemon(
    cluster: SandboxCluster, trueup: Trueup, ledgers: dict[str, list[int]], truth: Truth, writer: LedgerWriter
) -> None:
    lost = next(n for n in cluster.bookies if cluster.bookie_id(n) in members(truth))
    cluster.kill(f"bookie{lost}")
    trueup.until("the replacement", lambda: cluster.bookie_id(lost) not in members(truth))
    reads = [writer.verify(ledger, ENTRIES).read for some in ledgers.values() for ledger in some]
    assert reads == [ENTRIES] * 2 * LEDGERS
    cluster.start(f"bookie{lost}")


def test_a_copy_that_was_interrupted_is_made_again(
    cluster: SandboxCluster, trueup: Trueup, truth: Truth, writer: LedgerWriter
) -> None:
    """Killed at a random time while it copies."""
    many = on_one_rack(cluster, writer, 12, ENTRIES)
    trueup.until("copies", lambda: {*many} - truth.on_one_rack())
    trueup.kill()
    trueup.start()
    trueup.until("all to be copied", lambda: not {*many} & truth.on_one_rack())
    assert [writer.verify(ledger, ENTRIES).read for ledger in many] == [ENTRIES] * 12


def members(truth: Truth) -> set[str]:
    rows = truth.ledgers()
    return {bookie for at in range(len(rows)) for ring in rows.ensembles(at) for bookie in ring}
