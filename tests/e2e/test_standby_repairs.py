"""Two `trueup run` of one BookKeeper cluster: the leader is stopped amid repairs, the standby goes on with them."""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_standby import LOST, sorted_out
from tests.e2e.trueup import SETTINGS, Trueup, Witness, on_one_rack, until
from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.demo.truth import Truth
from trueup.sandbox.writer import LedgerWriter

pytestmark = [pytest.mark.servers, pytest.mark.release]
ENTRIES, LEDGERS = 10, 20


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., SandboxCluster]) -> SandboxCluster:
    return start_cluster(racks={"/rack1": 2, "/rack2": 2}, daemons=False, kafka=True, settings=SETTINGS)


@pytest.fixture(scope="module")
def narrow(cluster: SandboxCluster, writer: LedgerWriter) -> list[int]:
    return on_one_rack(cluster, writer, LEDGERS, ENTRIES)


@pytest.fixture(scope="module")
def members(
    cluster: SandboxCluster, narrow: list[int], new_root: Callable[[], Path]
) -> Iterator[tuple[Trueup, Trueup]]:
    """The leader, that has found the narrow ledgers, and the standby."""
    # A low mark rate, so that the leader is stopped during the repairs.
    slow = {"mode": "enforce", "grace_s": 60, "max_marks": 6, "marks_per_s": 6, "paused": True}
    made = [
        Trueup(
            cluster, new_root(), placement=slow, journal={"bootstrap": cluster.kafka.bootstrap}, ha={"id": "repairs"}
        )
        for _ in range(2)
    ]
    for one in made:
        one.process.start()
    leader, standby = sorted_out(made)
    leader.wait("the narrow ledgers to be found", lambda status: status["counts"]["drifted"] == len(narrow))
    yield leader, standby
    for one in made:
        one.kill()


def epoch_in_zookeeper(witness: Witness) -> Any:
    """The epoch that changes in ZooKeeper need."""
    found = witness.client.look("/trueup/repairs-e2e")
    return json.loads(found[0])["epoch"] if found else None


def ages(one: Trueup) -> dict[int, int]:
    """Since when each ledger is a finding."""
    return {row["ledger"]: row["since_ms"] for row in one.api("findings?limit=1000")}


def batch(one: Trueup) -> int:
    """The number of the last batch of the placement query, -1 before the first one."""
    return max((row["batch"] for row in one.api("status")["streams"] if row["name"] == "placement"), default=-1)


def test_findings_keep_their_age_when_another_instance_leads(members: tuple[Trueup, Trueup], narrow: list[int]) -> None:
    leader, standby = members
    before = ages(leader)
    standby.until("the standby to have folded the journal", lambda: batch(standby) >= 0)
    folded = batch(standby)
    leader.kill()
    standby.wait("the takeover", lambda status: status["ha"]["role"] == "leader", 60.0)
    standby.wait("its view", lambda status: status["ready"] and status["counts"]["drifted"] == len(narrow))
    after, answered = ages(standby), batch(standby)
    leader.process.start()
    assert (sorted(before), after) == (sorted(narrow), before)
    assert answered > folded, "the query of the standby goes on"


@pytest.fixture(scope="module")
def repairing(cluster: SandboxCluster, members: tuple[Trueup, Trueup]) -> None:
    """Workers, which may end a repair before a test of paused ones looks."""
    cluster.start("autorecovery")


@pytest.mark.usefixtures("repairing")
def test_a_leader_that_is_stopped_amid_repairs_is_replaced_and_no_ledger_is_marked_twice(
    members: tuple[Trueup, Trueup], narrow: list[int], witness: Witness, truth: Truth
) -> None:
    leader, standby = sorted_out(list(members))
    with witness.counting() as marked:
        leader.set("placement.paused", "false")
        leader.until("a third to be true", lambda: len(truth.on_one_rack()) < 2 * LEDGERS // 3)
        epochs = [epoch_in_zookeeper(witness)]
        leader.processes()[0].send_signal(signal.SIGSTOP)
        left = truth.on_one_rack()
        standby.wait("the takeover", lambda status: status["ha"]["role"] == "leader", 60.0)
        leader.processes()[0].send_signal(signal.SIGCONT)
        until(lambda: not leader.process.alive, 30.0, "the earlier leader to end", leader.diagnostics)
        standby.wait("readiness", lambda status: status["ready"])
        standby.wait("no repair", lambda status: not status["counts"]["drifted"] and not status["marks"]["ours"])
        epochs.append(epoch_in_zookeeper(witness))
    assert (len(left) > 0, leader.process.exit_code, epochs) == (True, LOST, [2, 3])
    assert (truth.on_one_rack(), dict(marked)) == (set(), dict.fromkeys(narrow, 1)), standby.diagnostics()
