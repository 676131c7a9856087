"""Deletion as one process of Trueup runs it: the capture of owners, the view, and the loops over ledgers and objects.

What is durable is kept outside: the topics of the journal, and Spark's checkpoint. The connector is a model of the
guarded transaction; the nodes of owners are read and decoded by the product's code.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tests.memory_store import MemoryStore
from tests.simulation.deletion_checkers import DeletionCheckers
from tests.simulation.deletion_target import Connector, CurrentOwners, Leader
from tests.simulation.journal import TOPOLOGY, JournalLog
from tests.simulation.owner_capture import OwnerCapture
from tests.simulation.placing import Frame
from tests.simulation.pulsar import OWNERS, Brokers
from tests.simulation.pulsar_session import Session
from tests.simulation.store import CLUSTER, STORE, SimulatedStore
from trueup.state.bookkeeper.ledgers import EMPTY, Ledgers, concat
from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.common.errors import TrueupError
from trueup.state.deletion.lifecycle import Deletion, DeletionStage
from trueup.state.deletion.owned_ledgers import NO_LEDGERS, NO_NODES, OWNED, OwnedLedgerTable
from trueup.state.deletion.owners import NO_CLAIM, Claim
from trueup.state.deletion.settings import DeletionSettings
from trueup.state.deletion.stores import StoreSettings
from trueup.state.deletion.view import OwnerBucket
from trueup.streams.bookkeeper.codec import topology_from
from trueup.streams.config.live import LiveSection
from trueup.streams.deletion.codec import node_rows
from trueup.streams.deletion.orphan_objects import OrphanObjects
from trueup.streams.deletion.query import TOPICS
from trueup.streams.deletion.reconciler import DeletionReconciler
from trueup.streams.journal.catch_up import CatchUp

BUCKETS = 2
LEDGERS, OWNER_NODES = "ledgers", "owners"


@dataclass
class DeletionCheckpoint:
    """Spark's durable state: bucket stores, consumed offsets, and the end offsets of the started batch. ``compacted``:
    offsets of records that a rebuilt view does not read, as the topics have newer ones of their keys. ``newest``: the
    zxid of the newest row of each ledger."""

    stores: list[MemoryStore] = field(default_factory=lambda: [MemoryStore() for _ in range(BUCKETS)])
    offsets: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOPICS, 0))
    begun: dict[str, int] | None = None
    compacted: dict[str, frozenset[int]] = field(default_factory=lambda: dict.fromkeys(TOPICS, frozenset()))
    newest: dict[int, int] = field(default_factory=dict)

    def lose(self, log: JournalLog) -> None:
        """Begin anew: the view is rebuilt from topics that have the newest record of each key."""
        fresh, newest = DeletionCheckpoint(), dict[int, tuple[int, int]]()
        self.stores, self.offsets, self.begun, self.newest = fresh.stores, fresh.offsets, None, {}
        for at, row in enumerate(log.ledgers):
            ledger, mzxid = int(row.ledger[0]), int(row.mzxid[0])
            newest[ledger] = max(newest.get(ledger, (-1, -1)), (mzxid, at))
        kept = {LEDGERS: {at for _, at in newest.values()}}
        for what in (OWNER_NODES, TOPOLOGY):
            kept[what] = set({key: at for at, (key, _) in enumerate(log.bodies[what])}.values())
        ends = {LEDGERS: len(log.ledgers), **{what: len(log.bodies[what]) for what in (OWNER_NODES, TOPOLOGY)}}
        self.compacted = {what: frozenset(set(range(end)) - kept[what]) for what, end in ends.items()}


@dataclass
class DeletionParts:
    """The classes under test and their surroundings; tests of the simulation replace them by defective ones."""

    connector: type[Connector] = Connector
    reconciler: type[DeletionReconciler] = DeletionReconciler
    bucket: type[OwnerBucket] = OwnerBucket
    owners: type[CurrentOwners] = CurrentOwners
    orphans: type[OrphanObjects] = OrphanObjects


class Deleting:
    """Deletion in one process, from its start to its crash."""

    def __init__(
        self,
        policy: LiveSection[DeletionSettings],
        leader: Leader,
        brokers: Brokers,
        checkpoint: DeletionCheckpoint,
        checkers: DeletionCheckers,
        parts: DeletionParts,
    ) -> None:
        self.policy, self.leader, self.brokers, self.checkers = policy, leader, brokers, checkers
        self.checkpoint, self.parts, self.faults = checkpoint, parts, leader.faults
        self.caught_up = CatchUp(leader.journal, TOPICS)
        session = Session(brokers, leader.faults, brokers.step)
        self.capture = OwnerCapture(brokers, session, leader.journal, leader.faults)
        connector = parts.connector(brokers, leader, self.capture, policy, checkers)
        self.reconciler = parts.reconciler(
            connector,
            leader.journal,  # type: ignore[arg-type]
            policy,
            leader.first_epoch,
            checkers.counted,
            leader.clock,
            BUCKETS,
            connector.check,
            caught_up=lambda: self.caught_up.done,
        )
        store = SimulatedStore(brokers.bucket, leader.faults, self._deleting_object, brokers.step)
        self.orphans = parts.orphans(
            {STORE: store},  # type: ignore[dict-item]
            {STORE: StoreSettings(STORE, cluster=CLUSTER, list_s=10)},
            parts.owners(session, self.capture),
            leader.journal,  # type: ignore[arg-type]
            policy,
            lambda *_: None,
            leader.clock,
        )

    def load(self) -> None:
        """Load what earlier processes remembered, and observe from now on. Raises `TrueupError`."""
        self.caught_up.begin()
        self.reconciler.load()
        self.orphans.load()
        self.capture.load()

    def step(self) -> None:
        """One iteration: the capture, a batch of the view, and both loops. Raises `Crash`."""
        self._supervised(self.capture.look)
        self._supervised(self.batch)
        before = dict(self.reconciler.deletions)
        self._supervised(self.reconciler.reconcile)
        self.checkers.reported(self.reconciler, before)
        self._supervised(self.orphans.reconcile)

    def _supervised(self, part: Callable[[], None]) -> None:
        """The supervisor restarts a failed part; it runs again in the next step."""
        try:
            part()
        except TrueupError as error:
            self.brokers.world.note(f"a part of deletion failed: {error}")

    def _deleting_object(self, key: str) -> None:
        self.leader.act()
        self.checkers.deleting_object(key, self.policy.current)

    def approve(self, ledgers: bool, objects: bool) -> None:
        """An operator approves what waits: deletions of ledgers, or of objects."""
        for reconciler, chosen, told in (
            (self.reconciler, ledgers, self.checkers.approved_ledgers),
            (self.orphans.reconciler, objects, self.checkers.approved_objects),
        ):
            waiting = [m for m in reconciler.deletions.values() if m.stage is DeletionStage.MARKED]
            if chosen and waiting:
                told(waiting)
                self._supervised(partial(_approve, reconciler, waiting))

    def lose_view(self) -> None:
        """The query starts again without its checkpoint. Raises `TrueupError`."""
        self.checkpoint.lose(self.leader.journal.log)
        self.checkers.forgotten()
        self.caught_up.begin()
        self.reconciler.lose_view()

    # The view

    def batch(self) -> None:
        """One micro-batch. An unfinished batch runs again over the same records."""
        if self.faults.journal_away:
            return
        kept = self.checkpoint
        kept.begun = kept.begun or self._ends()
        if kept.begun != kept.offsets:
            self._run(kept, kept.begun)
        kept.begun = None
        if not self.faults.happens(self.faults.late):
            ends = {what: {"0": offset} for what, offset in kept.offsets.items()}
            self.caught_up.progress({"sources": [{"endOffset": ends}]})

    def _run(self, kept: DeletionCheckpoint, ends: dict[str, int]) -> None:
        taken = {
            what: [at for at in range(kept.offsets[what], ends[what]) if at not in kept.compacted[what]]
            for what in TOPICS
        }
        log, newest = self.leader.journal.log, dict(kept.newest)
        arrived = in_order((log.ledgers[at] for at in taken[LEDGERS]), newest)
        ledgers = owned_rows(concat([EMPTY, *arrived]), self.brokers.claims)
        bodies = {what: [log.bodies[what][at][1] for at in taken[what]] for what in (OWNER_NODES, TOPOLOGY)}
        nodes = node_rows([body for body in bodies[OWNER_NODES] if body is not None])
        epoch = max((topology_from(body).epoch for body in bodies[TOPOLOGY] if body is not None), default=-1)
        rows, stores = [], list(kept.stores)
        for number in range(BUCKETS):
            self.faults.seam()
            row = self._bucket(number, stores, ledgers, nodes, epoch)
            rows += [row] if row else []
        self.faults.seam()
        self.reconciler.batch(Frame(rows), 0)  # type: ignore[arg-type]
        self.faults.seam()
        self.checkers.folded(nodes)
        kept.stores, kept.offsets, kept.newest = stores, ends, newest

    def _ends(self) -> dict[str, int]:
        """End offsets of the next batch: the end of each topic, or an offset before it."""
        ends = {what: self.leader.journal.ends(what)[0] for what in TOPICS}
        for what, end in ends.items():
            if self.faults.happens(self.faults.partial):
                ends[what] = self.faults.rng.randint(self.checkpoint.offsets[what], end)
        return ends

    def _bucket(
        self, number: int, stores: list[MemoryStore], ledgers: OwnedLedgerTable, nodes: OwnedLedgerTable, epoch: int
    ) -> dict[str, Any] | None:
        mine, here = of_bucket(number, ledgers), of_bucket(number, nodes)
        if not len(mine) and not len(here) and epoch < 0:
            return None
        stores[number] = MemoryStore(stores[number].log, dict(stores[number].cells))
        leaks = self.parts.bucket(stores[number]).step(mine, here, epoch >= 0)
        if leaks is None:
            return None
        row = {"leaks": leaks.rows.tobytes(), "names": "\n".join(leaks.names), "elsewhere": leaks.elsewhere.tobytes()}
        return {"bucket": number, "epoch": epoch, "ledgers": leaks.ledgers, **row}


def _approve(reconciler: DeletionReconciler, waiting: Sequence[Deletion]) -> None:
    reconciler.approve([deletion.ledger for deletion in waiting])


def in_order(rows: Iterable[Ledgers], newest: dict[int, int]) -> Iterator[Ledgers]:
    """Rows without those that repeat an older state of their ledger: the view does not remember deleted ledgers, and
    the producer of the journal never repeats a record after a newer one."""
    for row in rows:
        ledger, mzxid = int(row.ledger[0]), int(row.mzxid[0])
        if mzxid >= newest.get(ledger, -1):
            newest[ledger] = mzxid
            yield row


def owned_rows(ledgers: Ledgers, claims: Mapping[int, Claim]) -> OwnedLedgerTable:
    """Ledgers with the owners that readable metadata name. Empty closed ledgers have no entry, others
    ten."""
    if not len(ledgers):
        return NO_LEDGERS
    rows, names = np.zeros(len(ledgers), OWNED), {"": 0}
    for name in ("ledger", "mzxid", "ctime_ms", "seen_ms", "version", "state"):
        rows[name] = getattr(ledgers, name)
    empty = (ledgers.state == LedgerState.CLOSED) & (ledgers.entries == 0) & (ledgers.fragments == 1)
    rows["last_entry"], rows["length"] = np.where(empty, -1, 9), 100
    for at, number in enumerate(ledgers.ledger.tolist()):
        if ledgers.state[at] != LedgerState.GONE:
            readable = ledgers.state[at] != LedgerState.UNREADABLE
            claim = claims.get(number, NO_CLAIM) if readable else NO_CLAIM
            rows["component"][at] = claim.component
            rows["owner"][at] = names.setdefault(claim.owner, len(names))
            rows["name"][at] = names.setdefault(claim.name, len(names))
    return OwnedLedgerTable(rows, tuple(names))


def of_bucket(number: int, table: OwnedLedgerTable) -> OwnedLedgerTable:
    """The rows of one bucket. Ledgers that are deleted or cannot be read go to every bucket, others without an owner to
    one by their id."""
    if not len(table):
        return NO_LEDGERS if table.rows.dtype == OWNED else NO_NODES
    places = [OWNERS.index(name) % BUCKETS if name in OWNERS else -1 for name in table.names]
    bucket = np.array(places)[table.rows["owner"]]
    if table.rows.dtype == OWNED:
        bucket = np.where(bucket < 0, table.rows["ledger"] % BUCKETS, bucket)
        mine = (bucket == number) | np.isin(table.rows["state"], (LedgerState.GONE, LedgerState.UNREADABLE))
        return OwnedLedgerTable(table.rows[mine], table.names)
    mine = bucket == number
    return OwnedLedgerTable(table.rows[mine], table.names, table.listed[np.repeat(mine, table.rows["count"])])
