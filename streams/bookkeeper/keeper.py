"""Maintains the topology: observed bookies, settled by policy and time. It is published when verdicts depend on a
change.

The last topology is loaded from the journal, so the grace of a bookie that was missing before a restart continues.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from trueup.state.bookkeeper.membership import MembershipPolicy, next_epoch, settle
from trueup.state.bookkeeper.observations import Sighting
from trueup.state.bookkeeper.topology import NamespaceGroups, Status, Topology
from trueup.state.common.errors import Retry
from trueup.state.placement.policy.declared import declared
from trueup.state.placement.settings import PlacementSettings
from trueup.streams.bookkeeper.codec import topology_record
from trueup.streams.bookkeeper.topics import TOPOLOGY, TOPOLOGY_KEY
from trueup.streams.config.live import Live, LiveSection
from trueup.streams.journal.journal import Journal

log = logging.getLogger(__name__)
KEY = TOPOLOGY_KEY
AGAIN_MS = 600_000  # minimum interval of epochs that are published only because time has passed


def membership(policy: PlacementSettings, least_ms: int = 0, unnamed: bool = False) -> MembershipPolicy:
    """The placement settings for the status of bookies. ``least_ms``: minimum grace; ``unnamed``: no ledger names a
    lost bookie."""
    return MembershipPolicy(
        grace_ms=max(int(policy.grace_s * 1000), least_ms),
        hold_share=policy.hold_share,
        min_racks=policy.min_racks,
        enforce_min_racks=policy.enforce_min_racks,
        placement=declared(policy),
        collect_ms=int(policy.collect_s * 1000),
        restarted=policy.restarted,
        release_hold=policy.release_hold,
        unnamed=unnamed,
    )


class TopologyKeeper:
    """The topology in force. Safe to use from several threads.

    ``first_epoch``: the first epoch that this run published; a bucket that answered it has answered in this run.
    """

    def __init__(self, journal: Journal, live: Live, clock: Callable[[], int]) -> None:
        self._journal, self._clock, self._policy = journal, clock, LiveSection.of(live, PlacementSettings)
        self._lock = threading.RLock()
        self._seen: Sequence[Sighting] | None = None
        self._unregistered: frozenset[str] = frozenset()
        self._due_ms: int | None = None
        self.again_ms: int | None = None
        self._unpublished = True
        self._least_ms = 0
        self._namespaces: tuple[NamespaceGroups, ...] | None = None
        self._unnamed: int | None = None
        self.topology: Topology | None = None
        self.first_epoch: int | None = None
        self.notes: tuple[str, ...] = ()
        live.listeners.append(self.settle)

    def load(self) -> None:
        """Load the last topology of the journal."""
        self.topology = self._journal.newest(TOPOLOGY).get(KEY)

    def seen(self, sightings: Sequence[Sighting]) -> None:
        """Take a complete list of registered bookies."""
        with self._lock:
            self._seen = sightings
            self.settle()

    def group(self, namespaces: tuple[NamespaceGroups, ...]) -> None:
        """Take the isolation groups of all namespaces."""
        with self._lock:
            if namespaces != self._namespaces:
                self._namespaces = namespaces
                self.settle()

    def add_unregistered(self, bookies: Sequence[str]) -> None:
        """Add bookies that ledgers name and that were never registered: the cookie was removed, or the bookie is new
        and not listed yet. They have the same grace as any missing bookie."""
        with self._lock:
            if not self._unregistered.issuperset(bookies):
                self._unregistered |= set(bookies)
                self._unnamed = None
                self.settle()

    def tick(self) -> None:
        """Settle again if a time limit has passed, and repeat a publication that failed."""
        with self._lock:
            if self._unpublished or (self._due_ms is not None and self._clock() >= self._due_ms):
                self.settle()
            elif self._again():
                # Buckets judge their state again only for a new epoch.
                self._unpublished = True
                self.settle()

    def _again(self) -> bool:
        """Whether verdicts may differ because time has passed, and the last epoch is old enough."""
        if self.again_ms is None or self.topology is None:
            return False
        return self._clock() >= max(self.again_ms, self.topology.at_ms + AGAIN_MS)

    def wait_for(self, least_ms: int) -> None:
        """Set a minimum grace for missing bookies that overrides the settings (lostBookieRecoveryDelay)."""
        with self._lock:
            if least_ms != self._least_ms:
                self._least_ms = least_ms
                self.settle()

    def name_lost(self, unnamed: int | None) -> None:
        """Set the epoch by which no ledger names a lost bookie; None if some do. While it is in force, decommissioned
        bookies are forgotten."""
        with self._lock:
            if unnamed != self._unnamed:
                self._unnamed = unnamed
                self.settle()

    def publish_again(self) -> None:
        """Every bucket must answer again: a view was lost. The next tick publishes an epoch, the first one that
        counts."""
        with self._lock:
            self._unpublished, self.first_epoch = True, None

    def settle(self, at_once: bool = False) -> None:
        """Determine the status of all bookies. Publish the topology if it changed, or if this run has not published
        one.

        ``at_once``: whether to apply no grace, as an operator's order of an audit requires.
        """
        with self._lock:
            if self._seen is None:
                return
            # Ledgers may name a bookie that is lost since now: no bucket has judged by this topology yet.
            unnamed = self.topology is not None and self._unnamed == self.topology.epoch
            policy = membership(self._policy.current, self._least_ms, unnamed)
            policy = replace(policy, namespaces=self._namespaces)
            policy = replace(policy, grace_ms=0) if at_once else policy
            if unnamed and self.topology is not None:
                lost = {bookie.id for bookie in self.topology.bookies if bookie.status is Status.LOST}
                self._unregistered -= lost
            unregistered = self._unregistered.difference(sighting.bookie for sighting in self._seen)
            seen = [*self._seen, *(Sighting(name, None, "", False, 0) for name in sorted(unregistered))]
            settled = settle(seen, self.topology, policy, self._clock())
            self._due_ms, self.notes = settled.next_ms, tuple(settled.notes)
            topology = settled.topology
            if self._unpublished and not settled.changed and self.topology is not None:
                # Every bucket must answer once in a run, and it answers only a new epoch.
                now_ms = self._clock()
                topology = replace(topology, epoch=next_epoch(self.topology, now_ms), at_ms=now_ms)
            if settled.changed or self._unpublished:
                self._unpublished = True
                self.topology = topology
                self._publish(topology)

    def _publish(self, topology: Topology) -> None:
        try:
            self._journal.put([(TOPOLOGY, KEY, topology_record(topology))])
        except Retry as error:
            log.warning("topology not published yet", extra={"epoch": topology.epoch, "error": str(error)})
            return
        self._unpublished = False
        if self.first_epoch is None:
            self.first_epoch = topology.epoch
        log.info(
            "topology published", extra={"epoch": topology.epoch, "held": topology.held, "notes": list(self.notes)}
        )
