"""Selects ledgers by a bookie that holds them, and by the namespace of their owner, from their current metadata."""

from dataclasses import dataclass

import numpy as np

from trueup.connectors.bookkeeper.metadata import bulk, queries
from trueup.connectors.bookkeeper.metadata.layout import BookKeeperPaths
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.state.bookkeeper.ledgers import Column, Ledgers, concat
from trueup.state.common.errors import Refused
from trueup.state.deletion.owners import claim_of, namespace_of

MOST = 100_000
"""Maximum number of ledgers to read for one request."""


@dataclass(frozen=True, slots=True)
class LedgerSelection:
    """What ledgers must have."""

    bookie: str | None = None
    """The bookie that is a member of any ensemble of the ledger; None: any bookie."""
    namespace: str | None = None
    """The tenant and namespace of the owner that the ledger's metadata name; None: any owner, or no owner."""

    def __bool__(self) -> bool:
        return self.bookie is not None or self.namespace is not None


ANY = LedgerSelection()


def not_too_many(count: int) -> None:
    """Raises `Refused` if so many ledgers are not read for one request."""
    if count > MOST:
        todo = "also select by --verdict or --rule; `trueup get ledgers` without --all"
        raise Refused(f"a bookie or a namespace to be looked for among at most {MOST:,} ledgers", f"{count:,}", todo)


def search(client: ZooKeeperClient, paths: BookKeeperPaths, limit: int, where: LedgerSelection) -> tuple[Ledgers, int]:
    """Current rows of the first ``limit`` ledgers that match, and the number of all that do. Reads all ledgers."""
    parts, total = list[Ledgers](), 0
    for batch in queries.snapshot(client, paths, 0):
        rows = batch.ledgers.take(matching(batch, where))
        parts.append(rows.take(np.arange(len(rows)) < limit - total))
        total += len(rows)
    return concat(parts), total


def select(client: ZooKeeperClient, paths: BookKeeperPaths, ledgers: Column, where: LedgerSelection) -> Column:
    """Those of these ledgers that match, from current reads, in ascending order: int64."""
    asked = np.unique(ledgers)
    selected = np.zeros(len(asked), bool)
    for ids, nodes in queries.read(client, paths, asked) if len(asked) else ():
        batch = bulk.decode(ids, nodes, paths.ledger, 0)
        selected |= np.isin(asked, batch.ledgers.ledger[matching(batch, where)])
    return asked[selected]


def matching(batch: bulk.LedgerBatch, where: LedgerSelection) -> Column:
    """Whether each row of a batch matches: bool."""
    matches = np.ones(len(batch), bool)
    if where.bookie is not None:
        matches &= batch.ledgers.naming({where.bookie})
    if where.namespace is not None:
        matches &= _owned(batch, where.namespace)
    return matches


def _owned(batch: bulk.LedgerBatch, namespace: str) -> Column:
    codes, forms = batch.customs()
    owned: Column = np.array([namespace_of(claim_of(form).owner) == namespace for form in forms])[codes]
    for row, record in batch.alone.items():
        owned[row] = namespace_of(claim_of(record["custom"]).owner) == namespace
    return owned
