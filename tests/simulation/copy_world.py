"""A cluster whose bookies store the bytes of entries, so that a copy of a ledger can be compared with them.

Bookies can lose or damage replicas, or acknowledge an entry and forget it. An operator can replace members without the
lock, as `bookkeeper shell recover` does.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random

from tests.simulation.bookkeeper import windows
from tests.simulation.model import COLLECT_MS, Fragment, Ledger, Lock, World
from trueup.connectors.bookkeeper.bookie.entries import Digest, DigestType, head_of
from trueup.connectors.bookkeeper.bookie.striping import write_set
from trueup.connectors.bookkeeper.copy.adds import master_key
from trueup.connectors.bookkeeper.metadata.metadata import encode
from trueup.state.bookkeeper.observations import LedgerRecord

PAYLOAD_BYTES = 8
SESSION_MS = (2_000, 10_000)
"""The time after which ZooKeeper ends the session of a process that ended."""


@lru_cache(1 << 14)
def secret(ledger: int) -> tuple[DigestType, bytes]:
    """The digest type and the password that the writer of a ledger chose."""
    rng = Random(ledger)
    return rng.choice(list(DigestType)), b"" if rng.random() < 0.3 else b"password of %d" % ledger


@lru_cache(1 << 14)
def stored(ledger: int, entry: int) -> bytes:
    """An entry as its writer stored it."""
    head = head_of(ledger, entry, entry - 1, (entry + 1) * PAYLOAD_BYTES)
    return Digest(*secret(ledger)).seal(head, entry.to_bytes(PAYLOAD_BYTES))


@lru_cache(1 << 14)
def key_of(ledger: int) -> bytes:
    """The master key that the writer of a ledger sends."""
    return master_key(secret(ledger)[1])


@dataclass
class Replica:
    """What a bookie stores of a ledger. The first request decides the key."""

    key: bytes
    entries: dict[int, bytes] = field(default_factory=dict)


@dataclass
class SessionLock(Lock):
    """A lock of Trueup."""

    session: int = 0
    version: int = 0


def entries_of(fragment: Fragment) -> range:
    """The entries of a fragment."""
    return range(fragment.first_entry, fragment.first_entry + fragment.entries)


def held(fragment: Fragment, bookie: str, quorum: int) -> list[int]:
    """The entries of a fragment that this member holds."""
    size = len(fragment.bookies)
    return [e for e in entries_of(fragment) if bookie in (fragment.bookies[at] for at in write_set(e, size, quorum))]


class CopyWorld(World):
    """``disks``: the replicas of each bookie, by ledger. ``sessions``: when ZooKeeper ends each session, 0 if it does
    not. ``used``: the share of its disks that each bookie uses. ``lacking``: entries that a bookie lost, damaged or
    forgot, as (bookie, ledger, entry)."""

    def __init__(self, rng: Random, least: int, enforce: bool) -> None:
        super().__init__(rng, least, enforce)
        self.disks: dict[str, dict[int, Replica]] = {}
        self.sessions: dict[int, int] = {}
        self.used: dict[str, float] = {}
        self.lacking: set[tuple[str, int, int]] = set()
        self.careless = rng.choice((0.0, 0.0, 0.05))
        """The share of copied entries that bookies acknowledge and do not keep."""

    # Sessions with ZooKeeper

    def begin_session(self) -> int:
        """A new session, by its id."""
        number = len(self.sessions) + 1
        self.sessions[number] = 0
        return number

    def end_session(self, session: int, wait: bool = False) -> None:
        """ZooKeeper ends a session, now or after its timeout, and deletes its locks."""
        if wait:
            self.sessions[session] = self.now_ms + self.rng.randint(*SESSION_MS)
            return
        self.sessions[session] = -1
        for ledger in [i for i, k in self.locks.items() if isinstance(k, SessionLock) and k.session == session]:
            self.unlock(ledger)

    def advance(self, to_ms: int) -> None:
        super().advance(to_ms)
        for session in [number for number, end_ms in self.sessions.items() if 0 < end_ms <= to_ms]:
            self.end_session(session)

    # What bookies store

    def made(self, bookie: str, ledger: int, key: bytes) -> Replica:
        """The replica of a ledger; a new one with this key if there is none."""
        return self.disks.setdefault(bookie, {}).setdefault(ledger, Replica(key))

    def replica(self, bookie: str, ledger: int) -> Replica | None:
        """The replica of a ledger."""
        return self.disks.get(bookie, {}).get(ledger)

    def _write(self, bookie: str, ledger: int, entry: int) -> None:
        """The writer, or a worker, stores an entry."""
        self.made(bookie, ledger, key_of(ledger)).entries[entry] = stored(ledger, entry)

    def intact(self, bookie: str, ledger: int, entry: int) -> bool:
        """Whether a bookie stores the bytes of an entry, so that a client can read them."""
        replica = self.replica(bookie, ledger)
        if replica is None or replica.key != key_of(ledger):
            return False
        return replica.entries.get(entry) == stored(ledger, entry)

    def readable(self, ledger: Ledger, fragment: Fragment) -> bool:
        """Whether a live member has each entry of a fragment."""
        here = [bookie for bookie in fragment.bookies if self.up(bookie)]
        members = windows(fragment.bookies, ledger.quorum)
        return all(
            any(b in here and self.intact(b, ledger.id, entry) for b in members[entry % len(fragment.bookies)])
            for entry in entries_of(fragment)
        )

    def add(self, ledger: Ledger) -> None:
        before = _entries(ledger)
        super().add(ledger)
        for entry in range(before, _entries(ledger)):
            bookies = ledger.fragments[-1].bookies
            for at in write_set(entry, len(bookies), ledger.quorum):
                self._write(bookies[at], ledger.id, entry)

    def _move(self, ledger: Ledger, at: int, targets: dict[int, str]) -> bool:
        fragment = ledger.fragments[at]
        if not self.readable(ledger, fragment) or not super()._move(ledger, at, targets):
            return False
        for bookie in targets.values():  # workers copy all entries of a fragment
            for entry in entries_of(fragment):
                self._write(bookie, ledger.id, entry)
        return True

    def _collect(self) -> None:
        super()._collect()
        waiting = {(ledger, bookie) for _, ledger, bookie in self.garbage}
        for bookie, replicas in self.disks.items():
            for number in [n for n in replicas if (n, bookie) not in waiting]:
                ledger = self.ledgers.get(number)
                if ledger is not None and bookie not in ledger.members:
                    del replicas[number]

    # Requests of a copy

    def keep(self, bookie: str, ledger: int, key: bytes, entry: int, body: bytes) -> None:
        """A bookie stores an entry of a copy, or forgets it. What no metadata name is collected later."""
        replica = self.made(bookie, ledger, key)
        self.bookies[bookie].handles.add(ledger)
        if self.rng.random() < self.careless:
            self.lacking.add((bookie, ledger, entry))
        else:
            replica.entries[entry] = body
            self.lacking.discard((bookie, ledger, entry))
        if not any((number, name) == (ledger, bookie) for _, number, name in self.garbage):
            self.garbage.append((self.now_ms + self.rng.randint(0, COLLECT_MS), ledger, bookie))

    def replace_members(self, ledger: Ledger, record: LedgerRecord) -> None:
        """Let the metadata of a ledger name these members."""
        for fragment, after in zip(ledger.fragments, record["fragments"], strict=True):
            fragment.holders |= set(after["bookies"]) - set(fragment.bookies)
            fragment.bookies = list(after["bookies"])
        self.save(ledger)
        self.note(f"ledger {ledger.id} copied to {[f.bookies for f in ledger.fragments]}")

    def record(self, ledger: Ledger) -> LedgerRecord:
        """The metadata of a ledger."""
        total, first = _entries(ledger), ledger.fragments[0].bookies
        return {
            "ledger": ledger.id,
            "mzxid": ledger.mzxid,
            "version": ledger.version,
            "ctime_ms": ledger.ctime_ms,
            "seen_ms": self.now_ms,
            "state": int(ledger.state),
            "ensemble": len(first),
            "quorum": ledger.quorum,
            "ack_quorum": ledger.acks or ledger.quorum,
            "last_entry": total - 1 if ledger.closed else -1,
            "length": total * PAYLOAD_BYTES if ledger.closed else 0,
            "fragments": [{"first_entry": f.first_entry, "bookies": list(f.bookies)} for f in ledger.fragments],
            "custom": {},
            "error": "",
        }

    def metadata(self, ledger: Ledger) -> bytes:
        """The bytes of the znode of a ledger."""
        if ledger.unreadable:
            return b"damaged"
        kind, password = secret(ledger.id)
        return encode(self.record(ledger), 3, password, kind)

    # What happens to bookies

    def damage(self) -> None:
        """A bookie loses or damages an entry that another live member has."""
        found = list(self._replicas())
        if not found:
            return
        bookie, ledger, entry = self.rng.choice(found)
        entries = self.disks[bookie][ledger].entries
        if self.rng.random() < 0.5 or secret(ledger)[0] is DigestType.DUMMY:  # nobody can see that its bytes changed
            del entries[entry]
        else:
            entries[entry] = entries[entry][:-1] + bytes([entries[entry][-1] ^ 1])
        self.lacking.add((bookie, ledger, entry))
        self.note(f"{bookie} lost entry {entry} of ledger {ledger}")

    def _replicas(self) -> Iterator[tuple[str, int, int]]:
        """Entries of which another live member has an intact replica too."""
        for ledger in self.ledgers.values():
            for fragment in ledger.fragments:
                for bookie in fragment.bookies:
                    for entry in held(fragment, bookie, ledger.quorum):
                        others = [b for b in fragment.bookies if b != bookie and self.up(b)]
                        if self.intact(bookie, ledger.id, entry) and any(
                            self.intact(other, ledger.id, entry) for other in others
                        ):
                            yield bookie, ledger.id, entry

    def recover(self, ledger: Ledger) -> None:
        """An operator lets BookKeeper replace the lost members of a closed ledger, without its lock."""
        if ledger.closed and not ledger.unreadable:
            self._repair(ledger)


def _entries(ledger: Ledger) -> int:
    """The number of entries of a ledger."""
    tail = ledger.fragments[-1]
    return tail.first_entry + tail.entries
