"""The places from which the entries of a topic's ledgers are read: bookies and object stores of one cluster."""

import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from trueup.connectors.bookkeeper.bookie.ledger_access import readable
from trueup.connectors.bookkeeper.bookie.reader import Bookies, Damage, LedgerReader
from trueup.connectors.bookkeeper.metadata import queries
from trueup.connectors.bookkeeper.metadata.addresses import Addresses
from trueup.connectors.closing import Closing
from trueup.connectors.pulsar.offload_read import OffloadReader
from trueup.connectors.pulsar.offload_verify import Tiered
from trueup.connectors.s3.store import ObjectStore
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.state.common.errors import Refused
from trueup.state.read_priority.tiers import LedgerInfo, Tier

ASK_S = 10.0
"""Maximum time without a response of a bookie, after which another one is used."""
Entries = Iterator[tuple[int, memoryview]]


class LedgerSource(Protocol):
    """The ledgers of one tier."""

    def read(self, info: LedgerInfo, first: int, last: int | None) -> Entries:
        """Entries ``first`` to ``last`` (None: the last readable one) with their payloads, in order. Views are valid
        until the next step. Raises a `TrueupError`."""


class BookKeeperSource(Closing):
    """Reads from bookies; never fences. ``damaged``: the function that is called for missing and damaged replicas."""

    def __init__(
        self, client: ZooKeeperClient, root: str, tls: ssl.SSLContext | None, damaged: Callable[[Damage], None]
    ) -> None:
        self._client, self._paths, self._damaged = client, queries.paths_of(client, root), damaged
        self._tls = tls
        self._free = list[Bookies]()

    def close(self) -> None:
        """Close all connections to bookies that no read uses."""
        while self._free:
            self._free.pop().close()

    def read(self, info: LedgerInfo, first: int, last: int | None) -> Entries:
        """See `LedgerSource`. Of an open ledger, entries up to the last confirmed one are readable. Another read may
        begin before this one ends: a connection serves one read at a time."""
        with self._bookies() as bookies:
            yield from self._reader(info.ledger, bookies).read(first, last)

    def last(self, ledger: int) -> int:
        """The last readable entry of a ledger, -1: none; of an open one, the last confirmed. Raises `TrueupError`."""
        with self._bookies() as bookies:
            return self._reader(ledger, bookies).last()

    @contextmanager
    def _bookies(self) -> Iterator[Bookies]:
        bookies = self._free.pop() if self._free else Bookies(Addresses(self._client, self._paths), ASK_S, self._tls)
        try:
            yield bookies
        finally:
            self._free.append(bookies)

    def _reader(self, ledger: int, bookies: Bookies) -> LedgerReader:
        record, digest = readable(self._client, self._paths, ledger)
        return LedgerReader(record, digest, bookies, self._damaged)


class TieredSource:
    """Reads offloaded ledgers of one topic. ``owner``: the name of its managed ledger."""

    def __init__(self, stores: Mapping[str, ObjectStore], owner: str) -> None:
        self._tiered, self._owner = Tiered(stores), owner

    def read(self, info: LedgerInfo, first: int, last: int | None) -> Entries:
        """See `LedgerSource`."""
        if info.copy is None or not info.copy.complete:
            raise Refused(f"a complete offload of ledger {info.ledger}", "none", "read it from BookKeeper")
        reader = OffloadReader(self._tiered.store(info.copy), info.copy, self._owner)
        end = info.entries - 1 if last is None else last
        return reader.read(first, end, info.size if (first, end) == (0, info.entries - 1) else 0)


def sources(bookkeeper: LedgerSource, tiered: LedgerSource) -> dict[Tier, LedgerSource]:
    """Both tiers."""
    return {Tier.BOOKKEEPER: bookkeeper, Tier.TIERED: tiered}
