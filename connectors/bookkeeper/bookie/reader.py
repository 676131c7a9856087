"""Reads a ledger from its bookies: every entry is verified, and read from another replica if necessary.

Never fences: of an open ledger it reads only confirmed entries.
"""

import ssl
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from trueup.connectors.bookkeeper.bookie.admin_calls import Calls, Lac
from trueup.connectors.bookkeeper.bookie.bulk_reads import WINDOW, ReadConnection
from trueup.connectors.bookkeeper.bookie.codes import NoSuchEntry, NoSuchLedger
from trueup.connectors.bookkeeper.bookie.entries import DamagedEntry, Digest
from trueup.connectors.bookkeeper.bookie.striping import EnsembleRange, held, pieces, write_set
from trueup.connectors.bookkeeper.metadata.addresses import Address
from trueup.connectors.closing import Closing
from trueup.connectors.zookeeper.errors import Forbidden
from trueup.state.bookkeeper.observations import LedgerRecord, LedgerState
from trueup.state.common.errors import BadBytes, Refused, Retry, TrueupError

_TOGETHER_BYTES = 4 << 20
_TOGETHER_OPEN = 64
"""Window for entries of an open ledger, whose sizes are unknown."""
_UNFIT = (DamagedEntry, NoSuchEntry, NoSuchLedger)
"""Errors of a replica that is missing or damaged."""


class Damage(NamedTuple):
    """A replica that could not serve an entry."""

    ledger: int
    entry: int
    bookie: str
    """The id of the bookie that should hold the replica."""
    found: str
    """The problem, as text."""
    missing: bool = False
    """Whether the bookie does not have the entry; otherwise the bytes of the entry are damaged."""


class Bookies(Closing):
    """Connections to bookies for one reader at a time.

    ``timeout_s``: the maximum time without a response from each bookie. ``addresses`` returns None for a bookie without
    an address.
    """

    def __init__(
        self, addresses: Callable[[str], Address | None], timeout_s: float, tls: ssl.SSLContext | None = None
    ) -> None:
        self._addresses, self._timeout_s, self._tls = addresses, timeout_s, tls
        self._reads: dict[str, ReadConnection] = {}

    def reads(self, bookie: str) -> ReadConnection:
        """Bulk reads from this bookie, always over the same connection. Raises `Retry` if it is not registered."""
        if bookie not in self._reads:
            self._reads[bookie] = ReadConnection(bookie, self._address(bookie), self._timeout_s, self._tls)
        return self._reads[bookie]

    def calls(self, bookie: str) -> Calls:
        """A new connection for requests to this bookie, which the caller must close. Raises `Retry`."""
        return Calls(bookie, self._address(bookie), self._timeout_s, self._tls)

    def close(self) -> None:
        """Close all connections."""
        for reads in self._reads.values():
            reads.close()

    def _address(self, bookie: str) -> Address:
        try:
            address = self._addresses(bookie)
        except Forbidden as error:
            # Other bookies may have the entry.
            raise Retry(error.expected, error.found, error.todo) from error
        if address is None:
            raise Retry(f"bookie {bookie} to be registered", "no registration", "start it; the read is retried")
        return address


class LedgerReader:
    """Reads one ledger. ``damaged`` is called for missing or damaged replicas, unless no bookie has the ledger.

    Views are valid until the next step. Raises `Retry` if no bookie that may hold an entry responds,
    `DamagedEntry` if every replica of it is damaged, `NoSuchLedger` and `NoSuchEntry` if no bookie has it, `Stop`
    if bookies require a login.
    """

    def __init__(
        self, record: LedgerRecord, digest: Digest, bookies: Bookies, damaged: Callable[[Damage], None]
    ) -> None:
        if record["state"] not in (LedgerState.OPEN, LedgerState.IN_RECOVERY, LedgerState.CLOSED):
            state = LedgerState(record["state"]).name
            raise Refused(f"ledger {record['ledger']} to exist and be readable", state, "read its metadata again")
        self._record, self._digest, self._bookies, self._damaged = record, digest, bookies, damaged
        self._ledger, self._quorum = record["ledger"], record["quorum"]
        self._closed = record["state"] == LedgerState.CLOSED
        self._down: dict[str, TrueupError] = {}
        self._rotation = self._ledger

    def last(self) -> int:
        """The last readable entry, -1 if there is none: for an open ledger the last confirmed one.

        It lags behind the writer by at least one entry until the writer adds more.
        """
        return self._record["last_entry"] if self._closed else self._confirmed()

    def read(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, memoryview]]:
        """Entries ``first`` to ``last`` (None: `last`, which is also the maximum) and their payloads, in order."""
        offset = self._digest.offset
        for entry, stored in self.stored(first, last):
            yield entry, stored[offset:]

    def stored(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, memoryview]]:
        """The same entries in stored form, with head and digest, for copying."""
        self._down.clear()
        end = self.last()
        for piece in pieces(self._record["fragments"], first, end if last is None else min(last, end)):
            striped = self._quorum < len(piece.bookies)
            entries = range(piece.first, piece.last + 1)
            yield from self._striped(piece, entries) if striped else self._whole(piece)

    def stripe(self, piece: EnsembleRange, position: int) -> Iterator[tuple[int, memoryview]]:
        """The entries of a part of a fragment that one place of its ensemble holds, in stored form, in order. They can
        come from any bookie of the fragment."""
        self._down.clear()
        if self._quorum == len(piece.bookies):
            yield from self._whole(piece)
        else:
            yield from self._striped(piece, held(piece, position, self._quorum))

    def _whole(self, piece: EnsembleRange) -> Iterator[tuple[int, memoryview]]:
        """Every bookie holds every entry: read from one bookie until it fails, then from the next."""
        at = piece.first
        while at <= piece.last:
            bookie = self._next_up(piece, at)
            try:
                for entry, stored in self._bookies.reads(bookie).run(self._ledger, at, piece.last):
                    self._digest.check(self._ledger, at, stored)
                    yield entry, stored
                    at = entry + 1
            except _UNFIT as error:
                yield at, self._elsewhere(piece, at, {bookie: error})
                at += 1
                self._rotation += 1
            except (Retry, BadBytes) as error:
                self._down[bookie] = error

    def _next_up(self, piece: EnsembleRange, at: int) -> str:
        # Clients rotate ensembles from ledger to ledger: without the order, consecutive ledgers would use one bookie.
        bookies, size = sorted(piece.bookies), len(piece.bookies)
        for k in range(size):
            bookie = bookies[(self._rotation + k) % size]
            if bookie not in self._down:
                return bookie
        raise self._lost(at, {bookie: self._down[bookie] for bookie in piece.bookies})

    def _striped(self, piece: EnsembleRange, every: Sequence[int]) -> Iterator[tuple[int, memoryview]]:
        """Read each of these entries from the first bookie of its write set, from all bookies in parallel."""
        together = self._together(len(piece.bookies))
        for start in range(0, len(every), together):
            entries = every[start : start + together]
            bodies: dict[int, bytes] = {}
            tried: dict[int, dict[str, TrueupError]] = {entry: {} for entry in entries}
            for bookie in self._ask(piece, entries):
                self._collect(bookie, bodies, tried)
            for entry in entries:
                yield (
                    entry,
                    memoryview(bodies[entry]) if entry in bodies else self._elsewhere(piece, entry, tried[entry]),
                )

    def _together(self, ensemble: int) -> int:
        if not self._closed:
            return _TOGETHER_OPEN
        size = max(1, self._record["length"] // (self._record["last_entry"] + 1))
        return max(1, min(WINDOW * ensemble, _TOGETHER_BYTES // size))

    def _ask(self, piece: EnsembleRange, entries: Iterable[int]) -> list[str]:
        """Request all of these entries and return the bookies."""
        plan: dict[str, list[int]] = {}
        for entry in entries:
            members = [piece.bookies[at] for at in write_set(entry, len(piece.bookies), self._quorum)]
            up = next((bookie for bookie in members if bookie not in self._down), None)
            if up is not None:
                plan.setdefault(up, []).append(entry)
        for bookie, share in plan.items():
            try:
                self._bookies.reads(bookie).ask(self._ledger, share)
            except Retry as error:
                self._down[bookie] = error
        return [bookie for bookie in plan if bookie not in self._down]

    def _collect(self, bookie: str, bodies: dict[int, bytes], tried: dict[int, dict[str, TrueupError]]) -> None:
        reads = self._bookies.reads(bookie)
        try:
            for entry, code, stored in reads.answers():
                try:
                    bodies[entry] = self._checked(reads, entry, code, stored)
                except (*_UNFIT, Retry) as error:
                    tried.setdefault(entry, {})[bookie] = error
        except (Retry, BadBytes) as error:
            self._down[bookie] = error

    def _checked(self, reads: ReadConnection, entry: int, code: int, stored: memoryview) -> bytes:
        if code:
            raise reads.failure(code, entry)
        self._digest.check(self._ledger, entry, stored)
        return bytes(stored)

    def _elsewhere(self, piece: EnsembleRange, entry: int, tried: dict[str, TrueupError]) -> memoryview:
        """Read an entry from the untried bookies of its write set; reports unfit replicas."""
        for at in write_set(entry, len(piece.bookies), self._quorum):
            bookie = piece.bookies[at]
            if bookie in tried:
                continue
            try:
                stored = self._one(bookie, entry)
            except _UNFIT as error:
                tried[bookie] = error
            except (Retry, BadBytes) as error:
                tried[bookie] = self._down[bookie] = error
            else:
                self._tell(entry, tried)
                return memoryview(stored)
        if not all(isinstance(error, NoSuchLedger) for error in tried.values()):  # a deleted ledger is not damaged
            self._tell(entry, tried)
        raise self._lost(entry, tried)

    def _one(self, bookie: str, entry: int) -> bytes:
        if bookie in self._down:
            raise self._down[bookie]
        reads = self._bookies.reads(bookie)
        (answer,) = reads.some(self._ledger, [entry])
        return self._checked(reads, *answer)

    def _tell(self, entry: int, tried: dict[str, TrueupError]) -> None:
        for bookie, error in tried.items():
            # Bookies beyond the ack quorum may receive an entry of an open ledger later.
            if isinstance(error, _UNFIT) and (self._closed or isinstance(error, DamagedEntry)):
                missing = not isinstance(error, DamagedEntry)
                self._damaged(Damage(self._ledger, entry, bookie, str(error), missing))

    def _lost(self, entry: int, tried: dict[str, TrueupError]) -> TrueupError:
        """The error if no bookie returns this entry. A bookie that does not respond may still have it."""
        expected = f"entry {entry} of ledger {self._ledger} from one of {', '.join(tried)}"
        found = "; ".join(f"{bookie}: {error.found}" for bookie, error in tried.items())
        errors = list(tried.values())
        if any(not isinstance(error, _UNFIT) for error in errors):
            return Retry(expected, found, "retry when they respond")
        damaged = next((error for error in errors if isinstance(error, DamagedEntry)), None)
        if damaged is not None:
            where = f"{damaged.where} on each of {', '.join(tried)}"
            return DamagedEntry(where, damaged.at, damaged.wanted, found, "restore it from another source")
        if all(isinstance(error, NoSuchLedger) for error in errors):
            return NoSuchLedger(expected, found, "read the ledger's metadata again")
        return NoSuchEntry(expected, found, "restore it from another source; every bookie of its write set responded")

    def _confirmed(self) -> int:
        """The highest entry that a bookie of the last fragment proves to be confirmed."""
        fragment = self._record["fragments"][-1]
        proofs, problems = [fragment["first_entry"] - 1], []
        for bookie in fragment["bookies"]:
            try:
                with self._bookies.calls(bookie) as calls:
                    lac = calls.lac(self._ledger)
                proofs += [self._proof(lac)] if lac is not None else []
            except (Retry, BadBytes) as error:
                problems.append(f"{bookie}: {error.found}")
        if len(problems) == len(fragment["bookies"]):
            expected = f"the last confirmed entry of ledger {self._ledger} from one of its bookies"
            raise Retry(expected, "; ".join(problems), "retry when they respond")
        return max(proofs)

    def _proof(self, lac: Lac) -> int:
        proofs = [-1]
        if lac.note:
            proofs.append(self._digest.note(self._ledger, memoryview(lac.note)))
        if lac.last:
            proofs.append(self._digest.entry(self._ledger, memoryview(lac.last))[1])
        return max(proofs)
