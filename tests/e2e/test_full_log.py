"""The log goes to a full disk: every write to stdout and stderr fails."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.trueup import SETTINGS, Trueup, on_one_rack
from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.writer import LedgerWriter

pytestmark = [pytest.mark.servers, pytest.mark.release]
TO_A_FULL_DISK = ["sh", "-c", 'exec "$0" "$@" > /dev/full 2>&1']


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., SandboxCluster]) -> SandboxCluster:
    return start_cluster(racks={"/rack1": 2, "/rack2": 1}, daemons=False, settings=SETTINGS)


@pytest.fixture(scope="module")
def trueup(cluster: SandboxCluster, new_root: Callable[[], Path]) -> Iterator[Trueup]:
    with Trueup(cluster, new_root(), placement={"mode": "enforce"}) as made:
        made.process.within(TO_A_FULL_DISK)
        made.start()
        yield made


def test_ledgers_are_marked(trueup: Trueup, cluster: SandboxCluster, writer: LedgerWriter) -> None:
    ledgers = on_one_rack(cluster, writer, 5, 5)
    trueup.until("marks", lambda: {row["ledger"] for row in trueup.api("marks")} == set(ledgers))


def test_it_ends_in_order(trueup: Trueup) -> None:
    assert trueup.end() == 0
