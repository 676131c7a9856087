"""A repair on a cluster with zkEnableSecurity: bookies, workers and Trueup log in to ZooKeeper by DIGEST-MD5."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.trueup import on_one_rack
from trueup.connectors.bookkeeper.metadata import queries
from trueup.connectors.bookkeeper.metadata.layout import BookKeeperPaths
from trueup.connectors.bookkeeper.placement.mark_creations import MarkOrder
from trueup.connectors.bookkeeper.placement.marks import Marks
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.connectors.zookeeper.errors import Forbidden
from trueup.connectors.zookeeper.requests import Stat
from trueup.connectors.zookeeper.session import client_of
from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.writer import LedgerWriter
from trueup.state.bookkeeper.observations import LedgerRecord
from trueup.state.settings.settings import ClusterSettings

pytestmark = [pytest.mark.servers, pytest.mark.release]
USER, PASSWORD = "bookkeeper", "bookkeeper-secret"
_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule required"
_PROVIDER = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"


@pytest.fixture(scope="module")
def logins(new_root: Callable[[], Path]) -> Iterator[None]:
    """Every JVM that starts meanwhile logs in, and the server knows the user."""
    jaas = new_root() / "jaas.conf"
    jaas.write_text(
        f'Server {{ {_MODULE} user_{USER}="{PASSWORD}"; }};\n'
        f'Client {{ {_MODULE} username="{USER}" password="{PASSWORD}"; }};\n'
    )
    flags = f"-Djava.security.auth.login.config={jaas} -Dzookeeper.authProvider.sasl={_PROVIDER}"
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("JAVA_TOOL_OPTIONS", f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} {flags}")
        yield


@pytest.fixture(scope="module")
def cluster(logins: None, start_cluster: Callable[..., SandboxCluster]) -> SandboxCluster:
    settings = {"zkEnableSecurity": "true", "rwRereplicateBackoffMs": 100}
    return start_cluster(racks={"/rack1": 2, "/rack2": 1}, autorecovery=1, daemons=False, settings=settings)


def test_workers_repair_a_ledger_that_trueup_marks_as_its_owner(cluster: SandboxCluster) -> None:
    with LedgerWriter(cluster) as writer:
        (ledger,) = on_one_rack(cluster, writer, 1, 20)
    security = {"sasl.mechanism": "DIGEST-MD5", "sasl.username": USER, "sasl.password": PASSWORD}
    ours = client_of(ClusterSettings(zookeeper=cluster.zookeeper.address, security=security)).open(60.0)
    stranger = client_of(ClusterSettings(zookeeper=cluster.zookeeper.address)).open(60.0)
    try:
        paths = queries.paths_of(ours, "/ledgers")
        mark = paths.mark(ledger)
        (outcome,) = Marks(ours, paths).mark([MarkOrder(ledger, _stored(ours, paths, ledger)[1].version)])
        assert outcome.result == "written", outcome
        assert {(one.id.scheme, one.id.id) for one in ours.get_acls(mark)[0]} == {("sasl", USER)}
        with pytest.raises(Forbidden):
            stranger.drop(mark, -1)
        cluster.start("autorecovery")
        wait_until(lambda: ours.look(mark) is None, 240.0, "a worker to take the mark")
        assert cluster.bookie_id(3) in str(_stored(ours, paths, ledger)[0])
    finally:
        cluster.stop("autorecovery")
        ours.shut()
        stranger.shut()


def _stored(client: ZooKeeperClient, paths: BookKeeperPaths, ledger: int) -> tuple[LedgerRecord, Stat]:
    found = queries.one(client, paths, ledger, 0)
    assert found is not None
    return found
