"""Keeps the topology: what is seen of the bookies, settled by policy and time, published when verdicts depend on it.

The last topology is read back from the journal, so a bookie that was away before a restart has been away since then.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from trueup.state.bookkeeper.membership import MembershipPolicy, settle
from trueup.state.bookkeeper.observations import Sighting
from trueup.state.bookkeeper.topology import Status, Topology
from trueup.state.common.errors import Retry
from trueup.state.placement.settings import PlacementSettings
from trueup.streams.config.live import Live
from trueup.streams.journal.codec import topology_of, topology_record
from trueup.streams.journal.journal import Journal

log = logging.getLogger(__name__)
KEY = b"topology"
AGAIN_MS = 600_000  # all is judged again for the sake of time alone at most this often


def membership(policy: PlacementSettings, least_ms: int = 0, unnamed: bool = False) -> MembershipPolicy:
    """The part of the placement settings that bookies are judged by; ``least_ms`` is the least grace; ``unnamed``:
    no ledger names a lost bookie."""
    return MembershipPolicy(
        grace_ms=max(int(policy.grace_s * 1000), least_ms),
        hold_share=policy.hold_share,
        min_racks=policy.min_racks,
        enforce_min_racks=policy.enforce_min_racks,
        collect_ms=int(policy.collect_s * 1000),
        restarted=policy.restarted,
        release_hold=policy.release_hold,
        unnamed=unnamed,
    )


class Keeper:
    """The topology in force. Safe to use from several threads.

    ``first_epoch`` is the first that this run published: a bucket that answered for it has spoken in this run.
    """

    def __init__(self, journal: Journal, live: Live, clock: Callable[[], int]) -> None:
        self._journal, self._live, self._clock = journal, live, clock
        self._lock = threading.RLock()
        self._seen: Sequence[Sighting] | None = None
        self._strange: frozenset[str] = frozenset()
        self._due_ms: int | None = None
        self.again_ms: int | None = None
        self._unpublished = True
        self._least_ms = 0
        self._unnamed: int | None = None
        self.topology: Topology | None = None
        self.first_epoch: int | None = None
        self.notes: tuple[str, ...] = ()
        live.listeners.append(self.settle)

    def load(self) -> None:
        """Take up the last topology of the journal."""
        for record in self._journal.read("topology"):
            if record.value is not None:
                self.topology = topology_of(record.value)

    def seen(self, sightings: Sequence[Sighting]) -> None:
        """Take a complete list of what is registered now."""
        with self._lock:
            self._seen = sightings
            self.settle()

    def strange(self, bookies: Sequence[str]) -> None:
        """Take names that ledgers use and that nobody ever registered: bookies whose cookie was removed, or new ones
        that the next list will hold. They are given the grace like any bookie that is away."""
        with self._lock:
            if not self._strange.issuperset(bookies):
                self._strange |= set(bookies)
                self._unnamed = None
                self.settle()

    def tick(self) -> None:
        """Settle again if a time limit passed, and publish what could not be published before."""
        with self._lock:
            if self._unpublished or (self._due_ms is not None and self._clock() >= self._due_ms):
                self.settle()
            elif self._again():
                # Only a new epoch makes the buckets judge by what they remember.
                self._unpublished = True
                self.settle()

    def _again(self) -> bool:
        """Whether verdicts may differ by time alone, and were not asked for too lately."""
        if self.again_ms is None or self.topology is None:
            return False
        return self._clock() >= max(self.again_ms, self.topology.at_ms + AGAIN_MS)

    def wait_for(self, least_ms: int) -> None:
        """Give every missing bookie at least this long, whatever the settings say (lostBookieRecoveryDelay)."""
        with self._lock:
            if least_ms != self._least_ms:
                self._least_ms = least_ms
                self.settle()

    def name_lost(self, unnamed: int | None) -> None:
        """Take the epoch by which no ledger names a lost bookie; None: by none. While it is in force, those that were
        decommissioned are forgotten."""
        with self._lock:
            if unnamed != self._unnamed:
                self._unnamed = unnamed
                self.settle()

    def settle(self, at_once: bool = False) -> None:
        """Judge the bookies now and publish the topology if it changed, or if this run has not published one.

        ``at_once``: without any grace, as an operator who orders an audit wants it.
        """
        with self._lock:
            if self._seen is None:
                return
            # A bookie that is lost only now may be named: no bucket has judged by that yet.
            unnamed = self.topology is not None and self._unnamed == self.topology.epoch
            policy = membership(self._live.now.placement, self._least_ms, unnamed)
            policy = replace(policy, grace_ms=0) if at_once else policy
            if unnamed and self.topology is not None:
                lost = {bookie.id for bookie in self.topology.bookies if bookie.status is Status.LOST}
                self._strange -= lost
            unregistered = self._strange.difference(sighting.bookie for sighting in self._seen)
            seen = [*self._seen, *(Sighting(name, None, "", False, 0) for name in sorted(unregistered))]
            settled = settle(seen, self.topology, policy, self._clock())
            self._due_ms, self.notes = settled.next_ms, tuple(settled.notes)
            topology = settled.topology
            if self._unpublished and not settled.changed and self.topology is not None:
                # Every bucket has to speak once in a run, and only a new epoch makes it.
                topology = replace(topology, epoch=self.topology.epoch + 1, at_ms=self._clock())
            if settled.changed or self._unpublished:
                self._unpublished = True
                self.topology = topology
                self._publish(topology)

    def _publish(self, topology: Topology) -> None:
        try:
            self._journal.put([("topology", KEY, topology_record(topology))])
        except Retry as error:
            log.warning("topology not published yet", extra={"epoch": topology.epoch, "error": str(error)})
            return
        self._unpublished = False
        if self.first_epoch is None:
            self.first_epoch = topology.epoch
        log.info("topology", extra={"epoch": topology.epoch, "held": topology.held, "notes": list(self.notes)})
