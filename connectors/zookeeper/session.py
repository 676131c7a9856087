"""A client of the ZooKeeper that the settings name."""

from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.connectors.zookeeper.security import options_of
from trueup.state.settings.settings import ClusterSettings
from trueup.state.settings.zookeeper_security import has_identity


def client_of(cluster: ClusterSettings) -> ZooKeeperClient:
    """A client of a cluster's ZooKeeper, not opened yet. Raises `BadSettings` for a secret or file that is not
    readable."""
    return ZooKeeperClient(
        cluster.zookeeper,
        timeout=cluster.session_timeout_ms / 1000,
        tree=cluster.ledgers_root if has_identity(cluster.security, cluster.auth) else "",
        **options_of(cluster.security, cluster.auth),
    )
