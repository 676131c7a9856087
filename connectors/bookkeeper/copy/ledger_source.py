"""What a copy needs of the metadata of a ledger."""

from trueup.connectors.bookkeeper.bookie.entries import Digest, DigestType
from trueup.connectors.bookkeeper.bookie.ledger_access import current
from trueup.connectors.bookkeeper.copy.adds import master_key
from trueup.connectors.bookkeeper.metadata.layout import BookKeeperPaths
from trueup.connectors.bookkeeper.metadata.metadata import protection
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.common.errors import Refused


class SourceMetadata:
    """The metadata of a closed ledger, with secrets, which are never stored, shown or passed on. Raises `Refused` if
    they do not have this version, or the ledger is not closed or has no digest type, and errors of
    `ledger_access.current`."""

    def __init__(self, client: ZooKeeperClient, paths: BookKeeperPaths, ledger: int, version: int) -> None:
        self.record, self.data = current(client, paths, ledger)
        if self.record["version"] != version:
            found = f"version {self.record['version']}"
            raise Refused(f"version {version} of the metadata of ledger {ledger}", found, "decide again")
        if self.record["state"] != LedgerState.CLOSED:
            state = LedgerState(self.record["state"]).name
            raise Refused(f"ledger {ledger} to be closed", state, "copy it after its writer has closed it")
        path = paths.ledger(ledger)
        secret = protection(self.data, path)
        if secret is None:
            todo = "leave the ledger to BookKeeper's workers"
            raise Refused(f"the digest type of ledger {ledger} in {path}", "none", todo)
        self.digest, self.key = Digest(DigestType(secret[0]), secret[1]), master_key(secret[1])
