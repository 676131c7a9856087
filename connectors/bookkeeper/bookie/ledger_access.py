"""The metadata that reading a ledger from its bookies needs."""

from trueup.connectors.bookkeeper.bookie.entries import Digest, digest_of
from trueup.connectors.bookkeeper.metadata import queries
from trueup.connectors.bookkeeper.metadata.layout import BookKeeperPaths
from trueup.connectors.bookkeeper.metadata.metadata import ZnodeSource
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.state.bookkeeper.observations import LedgerRecord, LedgerState
from trueup.state.common.errors import Refused, Stop


class NoSuchMetadata(Refused):
    """BookKeeper has no metadata of this ledger: it was deleted."""


def current(client: ZooKeeperClient, paths: BookKeeperPaths, ledger: int) -> tuple[LedgerRecord, bytes]:
    """The metadata of a ledger, as a record and as the bytes of the node. Raises `NoSuchMetadata`, `Retry`, and `Stop`
    for metadata that cannot be decoded."""
    path = paths.ledger(ledger)
    znode = client.look(path)
    if znode is None:
        raise NoSuchMetadata(f"metadata of ledger {ledger}", f"no node {path}", "read it from tiered storage")
    data, stat = znode
    record = queries.decoded(data, ZnodeSource(ledger, path, stat.mzxid, stat.version, stat.ctime, 0))
    if record["state"] == LedgerState.UNREADABLE:
        raise Stop(f"readable metadata of ledger {ledger}", record["error"], "restore the node from a backup")
    return record, data


def readable(client: ZooKeeperClient, paths: BookKeeperPaths, ledger: int) -> tuple[LedgerRecord, Digest]:
    """The metadata of a ledger and the digest of its entries. Raises as `current`, and `Stop` without a digest type."""
    record, data = current(client, paths, ledger)
    return record, digest_of(data, paths.ledger(ledger))
