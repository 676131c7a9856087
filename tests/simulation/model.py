"""An in-memory BookKeeper cluster: bookies, ledgers, marks and the workers that process them.

Time is an integer of ms that `World.advance` increases; every write increments the zxid, as in ZooKeeper. This module
is independent of Trueup. Sources of the workers' behaviour: ReplicationWorker, LedgerChecker,
ZkLedgerUnderreplicationManager and ScanAndCompareGarbageCollector of 4.17.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from tests.simulation.bookkeeper import DEFAULT, Racks, adheres, refill, relocate, windows
from trueup.state.bookkeeper.observations import LedgerState

LOCK_FIRST_MS, LOCK_DOUBLINGS, LOCK_LONGEST_MS = 9_375, 5, 300_000
WORKER_BACKOFF_MS = 5_000
OPEN_GRACE_MS = 30_000
COLLECT_MS = 20_000
REFUSE_MS = 7 * 86_400_000
TRUEUP = "trueup"


@dataclass
class Bookie:
    """``handles``: ledgers that its process wrote or fenced. ``dropped``: those that it has garbage-collected, with the
    time of the last request. Both are in-memory state of the process."""

    id: str
    rack: str
    state: str = "writable"  # or "readonly", "down"
    registered_zxid: int = 0
    begun_zxid: int = 0
    cookie: bool = True
    returned: bool = False  # registered again, with its data, after it was decommissioned
    handles: set[int] = field(default_factory=set)
    dropped: dict[int, int] = field(default_factory=dict)
    groups: tuple[str, ...] = ()

    def refuses(self, ledger: int, now_ms: int) -> bool:
        return ledger in self.dropped and now_ms - self.dropped[ledger] < REFUSE_MS


@dataclass
class Fragment:
    """``holders``: bookies with the entries, members or not. A fragment without entries is hollow."""

    first_entry: int
    bookies: list[str]
    entries: int = 0
    holders: set[str] = field(default_factory=set)


@dataclass
class Ledger:
    id: int
    quorum: int
    ctime_ms: int
    fragments: list[Fragment]
    state: LedgerState = LedgerState.OPEN
    version: int = 0
    mzxid: int = 0
    busy: bool = True
    unreadable: bool = False
    acks: int = 0  # 0: as the write quorum
    isolation: str = ""  # as in `state.bookkeeper.isolation`
    members_ever: dict[str, int] = field(default_factory=dict)  # bookie: zxid of the write that dropped it last

    @property
    def closed(self) -> bool:
        return self.state == LedgerState.CLOSED

    def hollow(self, at: int) -> bool:
        return self.closed and at == len(self.fragments) - 1 and not self.fragments[at].entries

    @property
    def members(self) -> set[str]:
        return {b for f in self.fragments for b in f.bookies}


@dataclass
class Mark:
    """``authors``: all writers, in order. ``zxid``: of the newest write."""

    version: int
    ctime_ms: int
    replicas: tuple[str, ...]
    authors: tuple[str, ...]
    zxid: int


@dataclass
class Worker:
    """One replication worker. ``task``: (ledger, version of the mark when the worker locked it)."""

    id: str
    alive: bool = True
    free_ms: int = 0
    task: tuple[int, int] | None = None
    due_ms: int = 0
    failures: dict[int, int] = field(default_factory=dict)


@dataclass
class Lock:
    worker: str
    until_ms: int | None = None  # None: until the worker is done


class World:
    """The true state. ``watchers``: the changed paths, ("ledger", id), ("mark", id) or ("bookies", 0), of each capture
    that watches. ``fence``: the epoch of the leader whose changes are taken."""

    def __init__(self, rng: Random, least: int, enforce: bool) -> None:
        self.rng, self.least, self.enforce = rng, least, enforce
        self.now_ms, self.zxid, self.next_ledger = 1_000_000, 0, 1
        self.bookies: dict[str, Bookie] = {}
        self.ledgers: dict[int, Ledger] = {}
        self.deleted: dict[int, int] = {}
        self.marks: dict[int, Mark] = {}
        self.locks: dict[int, Lock] = {}
        self.mark_zxid: dict[int, int] = {}
        self.workers = [Worker(f"worker{i}") for i in range(2)]
        self.moves_racks, self.disabled = True, False
        self.garbage: list[tuple[int, int, str]] = []
        self.remains: dict[int, dict[str, int]] = {}
        self.watchers: list[dict[tuple[str, int], None]] = []
        self.fence = 0
        self.log: list[str] = []
        self.fenced: list[tuple[int, tuple[str, ...]]] = []

    def note(self, what: str) -> None:
        self.log.append(f"{self.now_ms:>9} {what}")

    def write(self, kind: str, key: int = 0) -> int:
        self.zxid += 1
        for watcher in self.watchers:
            watcher[kind, key] = None
        return self.zxid

    # Bookies

    def racks(self) -> Racks:
        """The workers' current view; the racks of lost bookies are kept."""
        return Racks(
            {b.id: b.rack or DEFAULT for b in self.bookies.values()},
            frozenset(b.id for b in self.bookies.values() if b.state == "writable"),
            self.least,
            self.enforce,
        )

    def listed(self) -> list[tuple[Bookie, tuple[str, ...] | None]]:
        """All bookies, each with its groups as the rack map lists them; None: it has no groups."""
        return [(bookie, None) for bookie in self.bookies.values()]

    def up(self, bookie: str) -> bool:
        return self.bookies[bookie].state != "down"

    def start(
        self, name: str, rack: str | None = None, state: str = "writable", process: str = "new", turned: bool = False
    ) -> None:
        """Register. ``process``: "new", or "same" if only the session had expired. ``turned``: the bookie became
        read-only or writable in the same session."""
        bookie = self.bookies.setdefault(name, Bookie(name, rack or "", "down"))
        if process == "new":
            self._restart(bookie)
        bookie.returned |= not bookie.cookie
        bookie.state, bookie.cookie = state, True
        bookie.registered_zxid = self.write("bookies")
        bookie.begun_zxid = bookie.begun_zxid if turned else bookie.registered_zxid
        self.note(f"{name} in {bookie.rack or 'no rack'} is {state}")

    def _restart(self, bookie: Bookie) -> None:
        """The process state is lost except for what the journal replays; garbage collection starts its delay again."""
        bookie.dropped.clear()
        bookie.handles = {ledger for ledger in sorted(bookie.handles) if self.rng.random() < 0.3}
        again = self.now_ms + COLLECT_MS
        self.garbage = [(max(due, again) if b == bookie.id else due, i, b) for due, i, b in self.garbage]
        for holders in self.remains.values():
            if bookie.id in holders:
                holders[bookie.id] = max(holders[bookie.id], again)

    def stop(self, name: str) -> None:
        self.bookies[name].state = "down"
        self.write("bookies")
        self.note(f"{name} died")

    def decommission(self, name: str) -> None:
        self.bookies[name].cookie = False
        self.write("bookies")
        self.note(f"{name} was decommissioned")

    # Ledgers

    def save(self, ledger: Ledger) -> None:
        before = set(ledger.members_ever)
        ledger.version += 1
        ledger.mzxid = self.write("ledger", ledger.id)
        left = sorted(b for b, zxid in ledger.members_ever.items() if not zxid and b not in ledger.members)
        self.garbage += [(self.now_ms + COLLECT_MS, ledger.id, b) for b in left]
        for bookie in ledger.members:
            ledger.members_ever[bookie] = 0
        for bookie in before - ledger.members:
            ledger.members_ever[bookie] = ledger.members_ever[bookie] or ledger.mzxid

    def create(self, size: int, quorum: int, careful: bool) -> None:
        draft = self.draft(size, quorum)
        usable = self.choosable(draft, size)
        if len(usable) < size:
            return
        ensemble = self.rng.sample(usable, size)
        for _ in range(12 if careful else 0):
            if self.suits(draft, ensemble):
                break
            ensemble = self.rng.sample(usable, size)
        ledger = replace(draft, fragments=[Fragment(0, ensemble)])
        self.next_ledger += 1
        self.ledgers[ledger.id] = ledger
        self.save(ledger)
        self.note(f"ledger {ledger.id} created on {ensemble} Qw={quorum}")

    def draft(self, _size: int, quorum: int) -> Ledger:
        """A ledger that its writer is about to create."""
        return Ledger(self.next_ledger, quorum, self.now_ms, [], version=-1)

    # The placement policy of writers and workers

    def choosable(self, _ledger: Ledger, _size: int) -> list[str]:
        """The bookies in which a writer places a ledger with ensembles of this size."""
        return self.racks().choosable()

    def suits(self, ledger: Ledger, ensemble: Sequence[str]) -> bool:
        """Whether a careful writer creates the ledger with this ensemble."""
        return adheres(ensemble, ledger.quorum, self.racks())

    def misplaced(self, ledger: Ledger, ensemble: Sequence[str]) -> bool:
        """Whether a worker wants to move replicas although no member is lost."""
        return not adheres(ensemble, ledger.quorum, self.racks())

    def replacements(self, _ledger: Ledger, ensemble: Sequence[str], lost: Sequence[int]) -> dict[int, str] | None:
        """New members in these positions as a worker selects them; None if there are too few bookies."""
        return refill(ensemble, lost, self.racks(), self.rng.choice)

    def replacements_of_writer(
        self, ledger: Ledger, ensemble: Sequence[str], lost: Sequence[int]
    ) -> dict[int, str] | None:
        """New members in these positions as the writer selects them."""
        return self.replacements(ledger, ensemble, lost)

    def add(self, ledger: Ledger) -> None:
        """Write a round of entries; the writer replaces members that do not accept them."""
        tail = ledger.fragments[-1]
        lost = [i for i, b in enumerate(tail.bookies) if self.bookies[b].state != "writable"]
        if lost:
            found = self.replacements_of_writer(ledger, tail.bookies, lost)
            if found is None:
                self.close(ledger)
                return
            ensemble = [found.get(i, b) for i, b in enumerate(tail.bookies)]
            if tail.entries:
                tail = Fragment(tail.first_entry + tail.entries, ensemble)
                ledger.fragments.append(tail)
            else:
                tail.bookies = ensemble
            self.save(ledger)
            self.note(f"ledger {ledger.id} changed its ensemble to {ensemble}")
            if self.rng.random() < 0.2:
                return
        tail.entries += len(tail.bookies)
        tail.holders = set(tail.bookies)
        for bookie in tail.bookies:
            self.bookies[bookie].handles.add(ledger.id)

    def close(self, ledger: Ledger) -> None:
        ledger.state, ledger.busy = LedgerState.CLOSED, False
        self.save(ledger)
        self.note(f"ledger {ledger.id} closed")

    def delete(self, ledger: int) -> None:
        holders = {bookie for fragment in self.ledgers.pop(ledger).fragments for bookie in fragment.holders}
        self.remains[ledger] = {b: self.now_ms + self.rng.randint(0, COLLECT_MS) for b in sorted(holders)}
        self.deleted[ledger] = self.write("ledger", ledger)
        for bookie in self.bookies.values():
            bookie.dropped.pop(ledger, None)
        self.note(f"ledger {ledger} deleted")

    # Marks

    def mark(self, ledger: int, replicas: tuple[str, ...], ctime_ms: int, author: str) -> Mark:
        """Create or extend a mark, as markLedgerUnderreplicated does."""
        before = self.marks.get(ledger)
        zxid = self.mark_zxid[ledger] = self.write("mark", ledger)
        if before is None:
            mark = Mark(0, ctime_ms, replicas, (author,), zxid)
        else:
            both = tuple(dict.fromkeys(before.replicas + replicas))
            mark = Mark(before.version + 1, ctime_ms, both, (*before.authors, author), zxid)
        self.marks[ledger] = mark
        self.note(f"ledger {ledger} marked by {author} for {replicas}, version {mark.version} of the mark")
        return mark

    def unmark(self, ledger: int, author: str) -> None:
        del self.marks[ledger]
        self.mark_zxid[ledger] = self.write("mark", ledger)
        self.note(f"ledger {ledger}: mark removed by {author}")

    def lock(self, ledger: int, lock: Lock) -> None:
        self.locks[ledger] = lock
        self.mark_zxid[ledger] = self.write("mark", ledger)

    def unlock(self, ledger: int) -> None:
        if self.locks.pop(ledger, None) is not None:
            self.mark_zxid[ledger] = self.write("mark", ledger)

    # Time

    def advance(self, to_ms: int) -> None:
        """Run writers, workers and garbage collection until this time."""
        while True:
            self._take_marks()
            due = self._next(to_ms)
            if due is None:
                break
            self.now_ms = max(self.now_ms, due)
            self._expire_locks()
            for worker in self.workers:
                if worker.task and worker.alive and worker.due_ms <= self.now_ms:
                    self._finish(worker)
        self.now_ms = to_ms
        self._collect()

    def repair_now(self) -> None:
        """A worker finishes its task before its time."""
        busy = [worker for worker in self.workers if worker.task and worker.alive]
        if busy:
            self._finish(self.rng.choice(busy))

    def _next(self, to_ms: int) -> int | None:
        times = [w.due_ms for w in self.workers if w.task and w.alive]
        times += [lock.until_ms for lock in self.locks.values() if lock.until_ms is not None]
        if not self.disabled and self._free_marks():
            times += [w.free_ms for w in self.workers if w.alive and not w.task and w.free_ms > self.now_ms]
        return min((t for t in times if t <= to_ms), default=None)

    def _expire_locks(self) -> None:
        for ledger in [i for i, k in self.locks.items() if k.until_ms is not None and k.until_ms <= self.now_ms]:
            self.unlock(ledger)

    def _free_marks(self) -> list[int]:
        return [ledger for ledger in self.marks if ledger not in self.locks]

    def _take_marks(self) -> None:
        for worker in self.workers:
            free = [] if self.disabled else self._free_marks()
            if free and worker.alive and not worker.task and worker.free_ms <= self.now_ms:
                ledger = self.rng.choice(free)
                worker.task = ledger, self.marks[ledger].version
                worker.due_ms = self.now_ms + self.rng.randint(20, 2_000)
                self.lock(ledger, Lock(worker.id))

    def kill_worker(self, worker: Worker) -> None:
        """The worker's session ends, and its locks are released."""
        worker.alive, worker.task = False, None
        worker.failures.clear()
        for ledger in [i for i, lock in self.locks.items() if lock.worker == worker.id]:
            self.unlock(ledger)

    # Repair

    def _finish(self, worker: Worker) -> None:
        assert worker.task is not None
        (number, version), worker.task = worker.task, None
        ledger = self.ledgers.get(number)
        if ledger is None:
            self._done(number, version, worker)
        elif ledger.unreadable:
            self._failed(number, worker)
        elif not self._repair(ledger):
            self._done(number, version, worker)
        elif ledger.closed:
            self._failed(number, worker)
        else:
            self._defer(ledger, worker)

    def _done(self, ledger: int, version: int, worker: Worker) -> None:
        """markLedgerReplicated: delete the mark unless it was written after the worker locked it."""
        mark = self.marks.get(ledger)
        if mark is not None and mark.version == version:
            self.unmark(ledger, worker.id)
        worker.failures.pop(ledger, None)
        self.unlock(ledger)

    def _failed(self, ledger: int, worker: Worker) -> None:
        tried = worker.failures.get(ledger, 0)
        worker.failures[ledger] = tried + 1
        wait = LOCK_FIRST_MS << tried if tried < LOCK_DOUBLINGS else LOCK_LONGEST_MS
        self.locks[ledger] = Lock(worker.id, self.now_ms + wait)
        worker.free_ms = self.now_ms + WORKER_BACKOFF_MS

    def _defer(self, ledger: Ledger, worker: Worker) -> None:
        """An open ledger with a bad fragment: check again after a delay, then fence it if nothing has changed."""
        mark = self.marks.get(ledger.id)
        if mark is not None and self.now_ms - mark.ctime_ms >= OPEN_GRACE_MS and self.tail_lacks(ledger):
            self.fenced.append((ledger.id, mark.authors))
            self.note(f"ledger {ledger.id} fenced by {worker.id}")
            self.close(ledger)
        self.locks[ledger.id] = Lock(worker.id, self.now_ms + OPEN_GRACE_MS)

    def tail_lacks(self, ledger: Ledger) -> bool:
        return any(self.bookies[b].state != "writable" for b in ledger.fragments[-1].bookies)

    def _repair(self, ledger: Ledger) -> bool:
        """One attempt at every bad fragment. Returns whether a bad fragment is left."""
        changed = False
        for at, lost in self._lost(ledger):
            if ledger.closed or at < len(ledger.fragments) - 1:
                found = self.replacements(ledger, ledger.fragments[at].bookies, lost)
                changed |= found is not None and self._move(ledger, at, found)
        if ledger.closed and self.moves_racks:
            losing = {at for at, _ in self._lost(ledger)}
            for at, fragment in enumerate(ledger.fragments):
                if at not in losing and self.misplaced(ledger, fragment.bookies):
                    changed |= self._relocate(ledger, at)
        if changed:
            self.note(f"ledger {ledger.id} repaired to {[f.bookies for f in ledger.fragments]}")
        bad = bool(self._lost(ledger)) or (not ledger.closed and self.tail_lacks(ledger))
        if ledger.closed and self.moves_racks:
            bad |= any(self.misplaced(ledger, f.bookies) for f in ledger.fragments)
        return bad

    def _lost(self, ledger: Ledger) -> list[tuple[int, list[int]]]:
        found = [(n, [i for i, b in enumerate(f.bookies) if not self.up(b)]) for n, f in enumerate(ledger.fragments)]
        return [(n, lost) for n, lost in found if lost]

    def _relocate(self, ledger: Ledger, at: int) -> bool:
        before = ledger.fragments[at].bookies
        after = relocate(before, ledger.quorum, self.racks(), self.rng.choice)
        if after is None:
            return False
        return self._move(ledger, at, {i: b for i, b in enumerate(after) if b != before[i]})

    def _move(self, ledger: Ledger, at: int, targets: dict[int, str]) -> bool:
        """Copy a fragment to new members and update the metadata; False if it is unreadable or refused."""
        fragment = ledger.fragments[at]
        if fragment.entries:
            here = {b for b in fragment.holders if self.up(b)}
            if not all(set(window) & here for window in windows(fragment.bookies, ledger.quorum)):
                return False
            refusing = [b for b in targets.values() if self.bookies[b].refuses(ledger.id, self.now_ms)]
            for bookie in refusing:
                self.bookies[bookie].dropped[ledger.id] = self.now_ms
            if refusing:
                return False
            fragment.holders |= set(targets.values())
            for bookie in targets.values():
                self.bookies[bookie].handles.add(ledger.id)
                self.bookies[bookie].dropped.pop(ledger.id, None)
        fragment.bookies = [targets.get(i, b) for i, b in enumerate(fragment.bookies)]
        self.save(ledger)
        return True

    def _collect(self) -> None:
        """Non-members delete their copies of closed ledgers, and then refuse these ledgers for some time."""
        left = []
        for due_ms, number, bookie in self.garbage:
            ledger = self.ledgers.get(number)
            if ledger is None or bookie in ledger.members:
                continue
            if due_ms > self.now_ms or not self.up(bookie) or number in self.locks or not ledger.closed:
                left.append((due_ms, number, bookie))
                continue
            keeper = self.bookies[bookie]
            if number in keeper.handles:
                keeper.handles.discard(number)
                keeper.dropped[number] = self.now_ms
            for fragment in ledger.fragments:
                fragment.holders.discard(bookie)
        self.garbage = left
        for number in list(self.remains):
            held = {b: due for b, due in self.remains[number].items() if due > self.now_ms or not self.up(b)}
            self.remains[number] = held
            if not held:
                del self.remains[number]
