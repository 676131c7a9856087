"""Placement as one process of Trueup runs it: the capture, the view, and the reconciler, without Spark and ZooKeeper.

All durable state (topics, checkpoint) is kept outside, so that a crash at any seam discards only the rest.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from types import SimpleNamespace

from tests.memory_store import MemoryStore
from tests.simulation.batches import Batch, Checkpoint, MicroBatches
from tests.simulation.checkers import Checkers
from tests.simulation.instances import Leader
from tests.simulation.surroundings import BUCKETS, Eyes, Hands
from trueup.state.bookkeeper.ledgers import EMPTY, Ledgers, concat
from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.bookkeeper.topology import Topology
from trueup.state.common.errors import TrueupError
from trueup.state.placement.settings import PlacementSettings
from trueup.state.placement.view import Bucket
from trueup.streams.bookkeeper.codec import topology_bytes, topology_from
from trueup.streams.bookkeeper.keeper import TopologyKeeper
from trueup.streams.catalog import all_metrics
from trueup.streams.config.live import LiveSection
from trueup.streams.journal.catch_up import CatchUp
from trueup.streams.placement.judging import Judging
from trueup.streams.placement.metrics import PlacementMetrics
from trueup.streams.placement.query import TOPICS, AnswerRow, row_of
from trueup.streams.placement.reconciler import Copies, PlacementReconciler
from trueup.streams.placement.repairs.repair_workers import RepairWorkers
from trueup.streams.placement.report import PlacementReport

METRICS = all_metrics("simulated")
_decoded = lru_cache(16)(topology_from)


@dataclass
class PlacementParts:
    """The classes under test; tests of the simulation replace them by defective ones."""

    reconciler: type[PlacementReconciler] = PlacementReconciler
    keeper: type[TopologyKeeper] = TopologyKeeper
    bucket: type[Bucket] = Bucket
    judging: type[Judging] = Judging


def checkpoint() -> Checkpoint:
    """A checkpoint of placement before its first batch."""
    return Checkpoint([MemoryStore() for _ in range(BUCKETS)], dict.fromkeys(TOPICS, 0))


class Watched:
    """The part of `streams.bookkeeper.cluster.BookKeeper` that `PlacementReport` uses."""

    def __init__(self, eyes: Eyes, hands: Hands) -> None:
        self.eyes, self.hands = eyes, hands

    def health(self) -> SimpleNamespace:
        seen = self.eyes.lost_ms is None
        return SimpleNamespace(
            connected=seen, synced=seen, ledgers=len(self.eyes.held), hidden=0, forbidden=0, age_ms=self._age_ms
        )

    def _age_ms(self, now_ms: int) -> int:
        return 0 if self.eyes.lost_ms is None else max(0, now_ms - self.eyes.lost_ms)

    def blind(self, now_ms: int) -> bool:
        return self.eyes.lost_ms is not None and self.eyes.world.now_ms - self.eyes.lost_ms > self.hands.stale_ms

    def unbound(self) -> str:
        return ""


class Placing:
    """Placement in one process that leads, from its start to its crash."""

    def __init__(
        self,
        leader: Leader,
        eyes: Eyes,
        hands: Hands,
        checkpoint: Checkpoint,
        checkers: Checkers,
        parts: PlacementParts,
        copies: Copies | None = None,
    ) -> None:
        self.leader, self.journal, self.faults, self.clock = leader, leader.journal, leader.faults, leader.clock
        self.live, self.eyes, self.checkers, self.parts = leader.live, eyes, checkers, parts
        self._reports = Random(0)
        checkers.settings(self.live.now.section(PlacementSettings))
        # Registered before the keeper, which may act on a change at once.
        self.live.listeners.append(self._settings_in_force)
        self.keeper = parts.keeper(self.journal, self.live, self.clock)
        self.keeper.load()
        policy = LiveSection.of(self.live, PlacementSettings)
        metrics = METRICS.of(PlacementMetrics)
        self.read = CatchUp(self.journal, TOPICS)
        self.read.begin()
        self.reconciler = parts.reconciler(
            hands,
            self.journal,
            policy,
            self.keeper,
            metrics,
            self.clock,
            BUCKETS,
            caught_up=lambda: self.read.done,
            copies=copies,
        )
        self.reconciler.load()
        self.batches = MicroBatches(checkpoint, self.journal, self.faults, self.reconciler.batch)
        self.judging = parts.judging(self.journal, self.clock)
        self.judging.load()
        watched, workers = Watched(eyes, hands), RepairWorkers(list, 0, self.clock)
        self.placed = PlacementReport(
            policy, watched, watched, self.keeper, self.judging, self.reconciler, workers, self.clock
        )
        eyes.on_sightings, eyes.published = self.keeper.seen, self.judging.published
        if not self.faults.cut:
            eyes.connect()

    def close(self) -> None:
        """The process ends."""
        self.eyes.close()

    def depose(self) -> None:
        """Another process leads from now on."""
        self.checkers.over = True

    def queue(self) -> None:
        """Events arrive."""
        self.eyes.queue()

    def _settings_in_force(self) -> None:
        self.checkers.settings(self.live.now.section(PlacementSettings))
        self.checkers.tick(self.clock())

    def step(self) -> None:
        """One iteration: capture, a batch, a tick."""
        self.checkers.begin(self.clock())
        self._supervised(self.eyes.look)
        self.checkers.tick(self.clock())
        self._supervised(self.keeper.tick)
        self._supervised(lambda: self.keeper.name_lost(self.reconciler.unnamed()))
        self._supervised(self.batch)
        self._supervised(self.reconciler.reconcile)
        self._supervised(lambda: self.placed.tick(runs=True))
        self.checkers.shown(self.placed, self.eyes.held, self.clock())

    def _supervised(self, part: Callable[[], None]) -> None:
        """The supervisor restarts a failed part; it runs again in the next step."""
        try:
            part()
        except TrueupError as error:
            self.checkers.world.note(f"a part failed: {error}")

    def batch(self) -> None:
        """One micro-batch."""
        if self.faults.journal_away:
            return
        self.reconciler.alive()
        ran = self.batches.run(self._arrived)
        # A separate random stream, so that the other events of a seed do not change.
        if not ran or not self.faults.on or self._reports.random() >= self.faults.late:
            self._progress()

    def _arrived(self, taken: Mapping[str, Sequence[int]]) -> Batch:
        log = self.journal.log
        ledgers = concat([EMPTY, *(log.ledgers[at] for at in taken["ledgers"])])
        bodies = [body for at in taken["topology"] if (body := log.bodies["topology"][at][1]) is not None]
        topology = max(map(_decoded, bodies), key=lambda t: t.epoch, default=None)
        return Batch(
            lambda number, store: self._bucket(store, ledgers.take(ledgers.ledger % BUCKETS == number), topology),
            lambda: self.checkers.folded(_members(ledgers)),
        )

    def _bucket(self, store: MemoryStore, ledgers: Ledgers, topology: Topology | None) -> AnswerRow | None:
        if not len(ledgers) and topology is None:
            return None
        answer = self.parts.bucket(store, topology_bytes, _decoded).step(ledgers, topology)
        return row_of(answer) if answer is not None else None

    def _progress(self) -> None:
        """Spark reports a batch after it was committed."""
        self.judging.taken({0: self.batches.kept.offsets["ledgers"]})
        self.read.progress(self.batches.kept.progress)


def _members(ledgers: Ledgers) -> list[tuple[int, int, frozenset[str]]]:
    newest = ledgers.latest()
    return [
        (ledger, mzxid, frozenset(b for e in newest.ensembles(at) for b in e))
        for at, (ledger, mzxid, state) in enumerate(
            zip(newest.ledger.tolist(), newest.mzxid.tolist(), newest.state.tolist(), strict=True)
        )
        if state != LedgerState.UNREADABLE
    ]
