"""Copies of ledgers under way: each is locked, its stripes are copied by Spark tasks, and then its metadata change.

A copy runs on a thread of its own. Its outcome waits until the reconciler takes it. Copies of an earlier run ended with
their ZooKeeper session, which held their locks.
"""

import logging
import socket
import threading
from collections.abc import Callable, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, Protocol

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from trueup.connectors.bookkeeper.copy.adds import RefusingTarget
from trueup.connectors.bookkeeper.copy.ledger_copy import LockedLedger
from trueup.connectors.bookkeeper.copy.members import MemberChange
from trueup.connectors.bookkeeper.copy.remote_copy import CopyOrder
from trueup.connectors.bookkeeper.metadata.layout import BookKeeperPaths
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.state.common.counts import many
from trueup.state.common.errors import Retry, TrueupError, ended
from trueup.state.placement.copies.targets import LedgerMoves
from trueup.state.settings.settings import ClusterSettings
from trueup.streams.placement.repairs.copy_task import CopyResult, CopyTask, run

log = logging.getLogger(__name__)
AT_ONCE = 2
"""Ledgers that are copied at the same time, each by one task. One slot of Spark stays free for its queries."""


class CopyOutcome(NamedTuple):
    """How a copy ended."""

    ledger: int
    result: str
    """copied; refused (the ledger is not as it was judged, or an operator must change something); retry (nothing was
    changed); unknown (the response to the change of the metadata was lost: observe); failed (a defect)."""
    detail: str
    entries: int = 0
    bytes: int = 0


class CopyCluster(Protocol):
    """What copies need of the cluster."""

    @property
    def paths(self) -> BookKeeperPaths:
        """Paths of its znodes."""

    def session(self) -> ZooKeeperClient:
        """The session for changes."""

    def used(self) -> Mapping[str, float]:
        """The share of their disks that the writable bookies use."""


class CopiesUnderWay:
    """Safe to use from several threads. ``session`` returns the Spark session; None if there is none. ``slots``: those
    of a local master; None if their number is not known."""

    def __init__(
        self,
        cluster: CopyCluster,
        settings: Callable[[], ClusterSettings],
        session: Callable[[], SparkSession | None],
        slots: int | None,
    ) -> None:
        self._cluster, self._settings, self._session = cluster, settings, session
        self._most = AT_ONCE if slots is None else min(AT_ONCE, max(1, slots - 1))
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(AT_ONCE, "copies")
        self._running: set[int] = set()
        self.used: Mapping[str, float] = {}
        """The share of its disks that each bookie uses, as far as it is known."""
        self._ended: list[CopyOutcome] = []
        self._refusals: dict[int, frozenset[str]] = {}

    def refusing(self, ledger: int) -> frozenset[str]:
        """The bookies that refused earlier copies of a ledger, which its metadata do not show."""
        return self._refusals.get(ledger, frozenset())

    def forget_refusals(self, ledger: int) -> None:
        """No other bookie is left for the ledger: these may have been restarted."""
        self._refusals.pop(ledger, None)

    @property
    def running(self) -> Set[int]:
        """The ledgers that are copied now, or whose outcome was not taken yet."""
        with self._lock:
            return set(self._running)

    @property
    def room(self) -> int:
        """The number of copies that can begin now."""
        return max(0, self._most - len(self.running)) if self._session() is not None else 0

    def look(self) -> None:
        """Ask how full the bookies are. Raises `Retry`."""
        self.used = self._cluster.used()

    def begin(self, ledger: int, version: int, moves: LedgerMoves) -> None:
        """Copy a ledger whose metadata have this version."""
        with self._lock:
            self._running.add(ledger)
        self._threads.submit(self._run, ledger, version, moves).add_done_callback(_tell)

    def taken(self) -> list[CopyOutcome]:
        """The outcomes since the last call."""
        with self._lock:
            outcomes, self._ended = self._ended, []
            self._running -= {outcome.ledger for outcome in outcomes}
            return outcomes

    def close(self) -> None:
        """Begin no more copies. Those under way end with the ZooKeeper session."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _run(self, ledger: int, version: int, moves: LedgerMoves) -> None:
        outcome = CopyOutcome(ledger, "failed", "the copy ended with a defect; see the log")
        try:
            outcome = self._copied(ledger, version, moves)
        except TrueupError as error:
            outcome = CopyOutcome(ledger, ended(error), str(error))
        finally:
            log.info("copy ended", extra=outcome._asdict())
            with self._lock:
                self._ended.append(outcome)

    def _copied(self, ledger: int, version: int, moves: LedgerMoves) -> CopyOutcome:
        client, paths = self._cluster.session(), self._cluster.paths
        changes = [MemberChange(move.first_entry, move.place, move.before, move.after) for move in moves.moves]
        with LockedLedger(client, paths, ledger, version, changes, f"trueup-{socket.gethostname()}") as held:
            orders = [CopyOrder(ledger, version, client.session, stripe) for stripe in held.stripes]
            results = self._tasks([CopyTask(self._settings(), paths, order) for order in orders], ledger)
            for damage in (damage for result in results for damage in result.damages):
                log.warning("replica damaged", extra=damage._asdict())
            errors = [
                (order.stripe, result.error) for order, result in zip(orders, results, strict=True) if result.error
            ]
            self._note_refusals(ledger, [stripe.target for stripe, why in errors if isinstance(why, RefusingTarget)])
            left = {stripe.piece.first: error for stripe, error in errors}
            if left.keys() >= {change.first_entry for change in changes}:
                raise errors[0][1]
            held.commit(without=left)
        entries, size = sum(result.entries for result in results), sum(result.bytes for result in results)
        said = [f"{many(entries, 'entry', 'entries')} copied"]
        said += [f"the fragment from entry {first} on was left: {error}" for first, error in left.items()]
        return CopyOutcome(ledger, "copied", "; ".join(said), entries, size)

    def _note_refusals(self, ledger: int, bookies: Sequence[str]) -> None:
        if bookies:
            self._refusals[ledger] = self.refusing(ledger) | frozenset(bookies)

    def _tasks(self, tasks: Sequence[CopyTask], ledger: int) -> list[CopyResult]:
        """Run the tasks on the executors. Raises `Retry`."""
        if not tasks:
            return []
        spark = self._session()
        if spark is None:
            raise Retry("a Spark session", "none", "it is copied when there is one")
        try:
            spark.sparkContext.setJobDescription(f"copy of ledger {ledger}")
            return spark.sparkContext.parallelize(tasks, 1).map(run).collect()
        except (Py4JError, PySparkException, OSError) as error:
            raise Retry(f"tasks that copy ledger {ledger}", type(error).__name__, "it is copied again later") from error


def _tell(copy: Future[None]) -> None:
    if not copy.cancelled() and (error := copy.exception()) is not None:
        log.error("copy failed", exc_info=error)
