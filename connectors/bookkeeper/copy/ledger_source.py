"""What a copy needs of the metadata of a ledger."""

from trueup.connectors.bookkeeper.bookie.entries import Digest, digest_of
from trueup.connectors.bookkeeper.copy.adds import master_key
from trueup.connectors.bookkeeper.metadata.layout import BookKeeperPaths
from trueup.connectors.bookkeeper.metadata.metadata import ZnodeSource, decode, protection
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.state.bookkeeper.observations import LedgerRecord, LedgerState
from trueup.state.common.errors import Refused


class SourceMetadata:
    """The metadata of a closed ledger, with secrets, which are never stored, shown or passed on. Raises `Refused` if it
    is not closed or has no digest type, `BadBytes`, `Retry`."""

    def __init__(self, client: ZooKeeperClient, paths: BookKeeperPaths, ledger: int) -> None:
        path = paths.ledger(ledger)
        znode = client.look(path)
        if znode is None:
            raise Refused(f"metadata of ledger {ledger}", f"no node {path}", "nothing: it was deleted")
        self.data, stat = znode
        self.version = stat.version
        self.record: LedgerRecord = decode(
            self.data, ZnodeSource(ledger, path, stat.mzxid, stat.version, stat.ctime, 0)
        )
        if self.record["state"] != LedgerState.CLOSED:
            state = LedgerState(self.record["state"]).name
            raise Refused(f"ledger {ledger} to be closed", state, "copy it after its writer has closed it")
        secret = protection(self.data, path)
        if secret is None:
            todo = "leave the ledger to BookKeeper's workers"
            raise Refused(f"the digest type of ledger {ledger} in {path}", "none", todo)
        self.digest: Digest = digest_of(self.data, path)
        self.key = master_key(secret[1])
