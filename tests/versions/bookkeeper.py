"""BookKeeper: repairs, deletions and reads on a cluster of one version, and the whole application on another one.

Tests of other suites run here on this cluster.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.configuration import parse
from tests.e2e.test_lost_bookies import holding
from tests.e2e.trueup import SETTINGS, Trueup, Witness, on_one_rack
from tests.integration.bookkeeper import test_presence as presence
from tests.integration.bookkeeper import test_reader as reads
from tests.integration.placement import test_repairs as repairs
from tests.versions.given import since, version
from trueup.connectors.bookkeeper.deletion.remove import RemovalOrder, remove
from trueup.connectors.bookkeeper.metadata import queries
from trueup.connectors.bookkeeper.metadata.layout import BookKeeperPaths
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.demo.truth import Truth
from trueup.sandbox.writer import LedgerWriter
from trueup.state.placement.board import NEWER_WORKERS
from trueup.streams.bookkeeper.worker_checks import worker
from trueup.streams.bookkeeper.worker_versions import LACKS, REMEDY

pytestmark = pytest.mark.servers

BP_54 = (4, 16)
"""The first version whose workers repair placement."""
ENTRIES = 10
Record = Callable[[str, object], None]


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., SandboxCluster]) -> SandboxCluster:
    settings = {"lockReleaseOfFailedLedgerGracePeriod": 64_000, "gcWaitTime": 1_000}
    racks = {"/rack1": 3, "/rack2": 2}
    return start_cluster(racks=racks, autorecovery=1, daemons=False, settings=settings, version=version())


auditor, client, paths, journal = repairs.auditor, repairs.client, repairs.paths, repairs.journal
all_bookies, writer, site = repairs.all_bookies, repairs.writer, reads.site


@pytest.mark.parametrize("rack", ["/rack2"])
def test_a_ledger_on_one_rack_is_spread(
    cluster: SandboxCluster, request: pytest.FixtureRequest, record_property: Record, rack: str
) -> None:
    if since(*BP_54):
        names = ("client", "paths", "journal", "writer")
        repairs.test_a_marked_ledger_on_one_rack_is_spread(cluster, *map(request.getfixturevalue, names))
        return
    check = next(worker(parse({"cluster": {"zookeeper": "zk:2181"}}), cluster.autorecovery_urls[0], {}, {}))
    record_property("words", f"{check.found}: {check.todo}")
    assert (check.status, check.found, check.todo) == ("fail", LACKS, REMEDY)


test_racks_are_read = repairs.test_bookies_have_the_racks_of_the_script
test_a_lost_bookie_is_replaced = repairs.test_a_marked_ledger_that_lost_a_bookie_is_made_up_to_strength
test_lost_windows_without_entries_are_replaced = (
    repairs.test_one_entry_is_made_up_to_strength_although_a_whole_window_without_entries_is_lost
)
test_replication_that_is_switched_off_is_reported = repairs.test_switching_replication_off_is_reported
test_a_request_for_an_audit_is_received = repairs.test_a_request_for_an_audit_comes_to_the_holder_of_the_vote
test_ledgers_are_read_as_they_were_written = reads.test_a_ledger_reads_as_it_was_written
test_a_range_of_a_ledger_is_read = reads.test_a_range_of_it_too
test_an_open_ledger_is_read_up_to_what_is_confirmed = reads.test_an_open_ledger_is_read_up_to_what_is_confirmed


def test_a_deleted_ledger_goes_from_every_bookie(
    cluster: SandboxCluster, client: ZooKeeperClient, paths: BookKeeperPaths, writer: LedgerWriter
) -> None:
    ledger, bookies = writer.write(3, 3, 2, ENTRIES), [cluster.bookie_id(n) for n in cluster.bookies]
    found = queries.one(client, paths, ledger, 0)
    assert found is not None
    ask = presence.asking(client)
    held = list(ask({ledger: bookies})[ledger].values()).count(presence.HELD)
    [outcome] = remove(client, paths, [RemovalOrder(ledger, found[0]["version"], found[0]["ctime_ms"])], 0)
    wait_until(lambda: set(ask({ledger: bookies})[ledger].values()) == {presence.GONE}, 180.0, "no bookie to hold it")
    assert (held, outcome.result) == (3, "deleted")


@pytest.fixture(scope="module")
def whole(start_cluster: Callable[..., SandboxCluster]) -> SandboxCluster:
    """A repair of the placement leaves a bookie that refuses the ledger, so another one must be there for a loss. Where
    only losses are repaired, all bookies that can replace the lost one are on the other rack."""
    racks = {"/rack1": 3 if since(*BP_54) else 2, "/rack2": 2}
    return start_cluster(False, racks=racks, autorecovery=1, kafka=True, settings=SETTINGS, version=version())


@pytest.fixture(scope="module")
def trueup(whole: SandboxCluster, new_root: Callable[[], Path]) -> Iterator[Trueup]:
    """An application that repairs eight ledgers on one rack. It is the Auditor: workers of 4.15 do not see marks that
    the Auditor of their own process writes."""
    with LedgerWriter(whole) as made:
        on_one_rack(whole, made, 8, ENTRIES)
    address = {"zookeeper": whole.zookeeper.address, "name": "versions", "session_timeout_ms": 8_000}
    sections: dict[str, dict[str, object]] = {
        "cluster": {**address, "autorecovery": whole.autorecovery_urls},
        "placement": {"mode": "approve", "grace_s": 1.0, "hold_share": 0.9},
        "journal": {"bootstrap": whole.kafka.bootstrap},
    }
    with Trueup(whole, new_root(), **sections) as made:
        made.start()
        made.until("our vote", lambda: made.source("vote")["detail"] == "ours")
        whole.start("autorecovery")
        if not since(*BP_54):
            made.wait("the version to be known", lambda status: any(LACKS in text for text in status["problems"]))
        made.set("placement.mode", "enforce")
        yield made


def test_the_application_repairs_what_the_version_can(whole: SandboxCluster, trueup: Trueup) -> None:
    if since(*BP_54):
        trueup.wait("all to be true", lambda status: status["counts"]["true"] == 8)
        return
    trueup.wait("ledgers to wait", lambda status: status["waiting"] == {NEWER_WORKERS: 8})
    with closing(Witness(whole)) as witness:
        marks = witness.marks()
    assert (marks, any(LACKS in text for text in trueup.api("status")["problems"])) == ({}, True)


def test_the_application_replaces_a_lost_bookie(whole: SandboxCluster, trueup: Trueup) -> None:
    """All ledgers are on /rack1 if the version does not repair placement."""
    whole.kill("bookie1")
    with Truth(whole) as truth:
        trueup.until("the bookie to be replaced", lambda: not holding(truth, whole.bookie_id(1)))
    assert trueup.wait("all to be true", lambda status: status["counts"]["true"] == 8)
