"""Deletes ledgers without known owner metadata: removes the znode if it has the observed version.

A ledger is deleted by deleting its znode (LedgerDeleteOp); bookies then collect its entries. BookKeeper's client does
this at any version. Here the ledger is read again, must be closed, have the same creation time and no known owner.
"""

from collections.abc import Sequence
from typing import NamedTuple

from trueup.connectors.bookkeeper.metadata.layout import BookKeeperPaths
from trueup.connectors.bookkeeper.metadata.queries import one
from trueup.connectors.zookeeper.client import CommittedNode, ZooKeeperClient, deletion
from trueup.connectors.zookeeper.errors import GONE, Forbidden
from trueup.state.bookkeeper.observations import LedgerRecord, LedgerState
from trueup.state.common.errors import Refused, TrueupError, ended
from trueup.state.deletion.owners import Component, claim_of, pulsars


class RemovalOrder(NamedTuple):
    """An order to delete a ledger if it is unchanged."""

    ledger: int
    version: int
    """The version that the znode must still have."""
    ctime_ms: int
    """The creation time that the ledger must still have, ms since the epoch."""


class Removed(NamedTuple):
    """The result of one order."""

    ledger: int
    result: str
    """One of: deleted; gone (no such ledger); refused (``detail`` has the reason); unknown (the response was lost:
    observe before anything else); retry (nothing was written)."""
    detail: str = ""
    """The reason for the result; empty if the ledger was deleted."""


def refusal(record: LedgerRecord) -> Refused | None:
    """Why such a ledger must not be deleted by order; None if it may."""
    state, claim = LedgerState(record["state"]), claim_of(record["custom"])
    if claim.component is not Component.UNKNOWN or pulsars(record["custom"]):
        claimant = f"{claim.component.name.lower()} of {claim.owner}"
        owner = "metadata that only Pulsar can interpret" if claim.component is Component.UNKNOWN else claimant
        return Refused("a ledger that is not Pulsar's", owner, "set deletion.owners to pulsar")
    if state is LedgerState.CLOSED:
        return None
    todo = "inspect its znode" if state is LedgerState.UNREADABLE else "open it with recovery first"
    return Refused("a closed ledger", f"{state.name.lower()} {record['error']}".strip(), todo)


def remove(
    client: ZooKeeperClient, paths: BookKeeperPaths, orders: Sequence[RemovalOrder], now_ms: int
) -> list[Removed]:
    """Execute each order in a separate transaction and return the results in their order. Raises `Retry` if none was
    attempted."""
    done: dict[int, Removed] = {}
    ready: dict[int, RemovalOrder] = {}
    for at, order in enumerate(orders):
        try:
            ledger = one(client, paths, order.ledger, now_ms)
        except Forbidden as error:
            done[at] = Removed(order.ledger, "refused", str(error))
            continue
        if ledger is None:
            done[at] = Removed(order.ledger, "gone", "the ledger does not exist")
        elif problem := _changed(order, ledger[0]) or refusal(ledger[0]):
            done[at] = Removed(order.ledger, "refused", str(problem))
        else:
            ready[at] = order
    operations = [[deletion(paths.ledger(order.ledger), order.version)] for order in ready.values()]
    for at, answer in zip(ready, client.commit(operations), strict=True):
        done[at] = _removed(orders[at].ledger, answer)
    return [done[at] for at in range(len(orders))]


def _changed(order: RemovalOrder, record: LedgerRecord) -> Refused | None:
    expected, found = (order.version, order.ctime_ms), (record["version"], record["ctime_ms"])
    if expected == found:
        return None
    states = [f"version {version}, created at {ctime_ms}" for version, ctime_ms in (expected, found)]
    return Refused(f"metadata of {states[0]}", states[1], "order it again")


def _removed(ledger: int, answer: CommittedNode | TrueupError) -> Removed:
    if not isinstance(answer, CommittedNode):
        return Removed(ledger, ended(answer), str(answer))
    [code] = answer.codes
    if code is None:
        return Removed(ledger, "deleted")
    if code == GONE:
        return Removed(ledger, "gone", "the ledger does not exist")
    return Removed(ledger, "refused", f"expected an unchanged znode; found error {code}; order the deletion again")
