"""The part of a copy that any process can do: it reads the metadata of the ledger itself, and copies one stripe.

No secret is passed to it. It looks at the lock of the ledger, which the session of another process holds, and stops
when that session does not hold it any more.
"""

import ssl
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from trueup.connectors.bookkeeper.bookie.reader import Bookies, Damage, LedgerReader
from trueup.connectors.bookkeeper.copy.adds import AddConnection, AddedEntries
from trueup.connectors.bookkeeper.copy.ledger_source import SourceMetadata
from trueup.connectors.bookkeeper.copy.stripes import StripeCopy, copy
from trueup.connectors.bookkeeper.metadata.addresses import Addresses
from trueup.connectors.bookkeeper.metadata.layout import BookKeeperPaths
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.state.common.errors import Refused, Retry

LOOK_S = 1.0
"""Interval of looks at the lock."""


class CopyOrder(NamedTuple):
    """One stripe of a ledger that another process has locked."""

    ledger: int
    version: int
    """The version of the metadata that this process has read."""
    session: int
    """The ZooKeeper session that holds the lock."""
    stripe: StripeCopy


def copied(
    client: ZooKeeperClient,
    paths: BookKeeperPaths,
    order: CopyOrder,
    timeout_s: float,
    tls: ssl.SSLContext | None,
    damaged: Callable[[Damage], None],
    clock: Callable[[], float] = time.monotonic,
) -> AddedEntries:
    """Copy a stripe. ``timeout_s``: the maximum time without a response of a bookie; ``damaged`` is called for replicas
    that could not be used. Raises `Refused` if the ledger or its lock is not as ordered; see also `stripes.copy`."""
    source = SourceMetadata(client, paths, order.ledger, order.version)
    addresses, target = Addresses(client, paths), order.stripe.target
    address = addresses(target)
    if address is None:
        raise Retry(f"bookie {target} to be registered", "no registration", "start it, or choose another bookie")
    with Bookies(addresses, timeout_s, tls) as bookies, AddConnection(target, address, timeout_s, tls) as adds:
        reader = LedgerReader(source.record, source.digest, bookies, damaged)
        guarded = _while_locked(reader.stripe(order.stripe.piece, order.stripe.position), client, paths, order, clock)
        return copy(source, order.stripe, guarded, bookies, adds)


def _while_locked(
    entries: Iterator[tuple[int, memoryview]],
    client: ZooKeeperClient,
    paths: BookKeeperPaths,
    order: CopyOrder,
    clock: Callable[[], float],
) -> Iterator[tuple[int, memoryview]]:
    """These entries as long as the session holds the lock. Raises `Refused`."""
    again = clock()
    for entry in entries:
        if clock() >= again:
            found = client.look(paths.lock(order.ledger))
            if found is None or found[1].owner != order.session:
                raise Refused(f"the lock of ledger {order.ledger}", "another holder, or none", "decide again")
            again = clock() + LOOK_S
        yield entry
