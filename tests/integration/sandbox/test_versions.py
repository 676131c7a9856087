from collections.abc import Callable

import pytest

from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.writer import LedgerWriter

pytestmark = [pytest.mark.servers, pytest.mark.release]


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., SandboxCluster]) -> SandboxCluster:
    return start_cluster(racks={"/rack1": 1, "/rack2": 1}, autorecovery=1, version="4.18.0")


def test_bookkeeper_4_18_stores_and_serves_entries(cluster: SandboxCluster) -> None:
    with LedgerWriter(cluster) as writer:
        assert writer.verify(writer.write(2, 2, 2, 50), 50).read == 50
