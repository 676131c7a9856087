"""Deletion as one process of Trueup runs it: the capture of owners, the view, and the loops over ledgers and objects.

What is durable is kept outside: the topics of the journal, and Spark's checkpoint. The connector is a model of the
guarded transaction; the nodes of owners are read and decoded by the product's code.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from tests.memory_store import MemoryStore
from tests.simulation.batches import Batch, Checkpoint, MicroBatches
from tests.simulation.deletion_checkers import DeletionCheckers
from tests.simulation.deletion_target import Connector, CurrentOwners
from tests.simulation.instances import Leader
from tests.simulation.journal import TOPOLOGY, JournalLog
from tests.simulation.owner_capture import OwnerCapture
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
from trueup.streams.deletion.query import TOPICS, LeaksRow, row_of
from trueup.streams.deletion.reconciler import DeletionReconciler
from trueup.streams.journal.catch_up import CatchUp

BUCKETS = 2
LEDGERS, OWNER_NODES = "ledgers", "owners"


@dataclass
class DeletionCheckpoint(Checkpoint):
    """``compacted``: offsets of records that a rebuilt view does not read, as the topics have newer ones of their keys.
    ``newest``: the zxid of the newest row of each ledger."""

    stores: list[MemoryStore] = field(default_factory=lambda: [MemoryStore() for _ in range(BUCKETS)])
    offsets: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOPICS, 0))
    compacted: dict[str, frozenset[int]] = field(default_factory=lambda: dict.fromkeys(TOPICS, frozenset()))
    newest: dict[int, int] = field(default_factory=dict)

    def lose(self, log: JournalLog) -> None:
        """Rebuild the view from topics that have the newest record of each key. Those of ledgers have been compacted,
        as the view of placement is lost with this one."""
        for what in (OWNER_NODES, TOPOLOGY):
            kept = {key: at for at, (key, _) in enumerate(log.bodies[what])}
            self.compacted[what] = frozenset(range(len(log.bodies[what]))) - {*kept.values()}


@dataclass
class DeletionParts:
    """The classes under test and their surroundings; tests of the simulation replace them by defective ones."""

    connector: type[Connector] = Connector
    reconciler: type[DeletionReconciler] = DeletionReconciler
    bucket: type[OwnerBucket] = OwnerBucket
    owners: type[CurrentOwners] = CurrentOwners
    orphans: type[OrphanObjects] = OrphanObjects


class Deleting:
    """Deletion in one process, from its start to its crash. ``first_epoch``: the epoch of the first topology that the
    process published; None before."""

    def __init__(
        self,
        policy: LiveSection[DeletionSettings],
        leader: Leader,
        brokers: Brokers,
        checkpoint: DeletionCheckpoint,
        checkers: DeletionCheckers,
        parts: DeletionParts,
        first_epoch: Callable[[], int | None],
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
            first_epoch,
            checkers.counted,
            leader.clock,
            BUCKETS,
            connector.check,
            caught_up=lambda: self.caught_up.done,
        )
        self.batches = MicroBatches(checkpoint, leader.journal, self.faults, self.reconciler.batch)
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

    # The view

    def batch(self) -> None:
        """One micro-batch."""
        if self.faults.journal_away:
            return
        self.batches.run(self._arrived)
        if not self.faults.happens(self.faults.late):
            self.caught_up.progress(self.checkpoint.progress)

    def _arrived(self, taken: Mapping[str, Sequence[int]]) -> Batch:
        kept, log = self.checkpoint, self.leader.journal.log
        read = {what: [at for at in offsets if at not in kept.compacted[what]] for what, offsets in taken.items()}
        newest = dict(kept.newest)
        arrived = in_order((log.ledgers[at] for at in read[LEDGERS]), newest)
        ledgers = owned_rows(concat([EMPTY, *arrived]), self.brokers.claims)
        bodies = {what: [log.bodies[what][at][1] for at in read[what]] for what in (OWNER_NODES, TOPOLOGY)}
        nodes = node_rows([body for body in bodies[OWNER_NODES] if body is not None])
        epoch = max((topology_from(body).epoch for body in bodies[TOPOLOGY] if body is not None), default=-1)

        def done() -> None:
            self.checkers.folded(nodes)
            kept.newest = newest

        return Batch(
            lambda number, store: self._bucket(store, of_bucket(number, ledgers), of_bucket(number, nodes), epoch), done
        )

    def _bucket(
        self, store: MemoryStore, ledgers: OwnedLedgerTable, nodes: OwnedLedgerTable, epoch: int
    ) -> LeaksRow | None:
        if not len(ledgers) and not len(nodes) and epoch < 0:
            return None
        leaks = self.parts.bucket(store).step(ledgers, nodes, epoch >= 0)
        return row_of(leaks, epoch) if leaks is not None else None


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
