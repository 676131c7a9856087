"""The orders of a round: the partitions, positions and connector of each task."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from trueup.connectors.contract import Assignment, Endpoint, Lease, Limits
from trueup.state.replication.clusters import bits_of
from trueup.state.replication.leases import divide, writer_id_of
from trueup.state.replication.settings import LinkSettings as Declared
from trueup.streams.config.live import Effective
from trueup.streams.journal.channel import Channel
from trueup.streams.replication.clusters import connector_of, endpoint_of
from trueup.streams.replication.links.checkpoints import Copy
from trueup.streams.replication.links.worker import LeaseOrder


class Reporting(NamedTuple):
    """How leases communicate with a link."""

    channel: Channel | None = None
    """The channel that receives reports while leases run; None if no reports are sent."""
    stop: str = ""
    """The path of the file whose existence ends leases; empty if there is no such file."""
    ended: Callable[[], None] = lambda: None
    """The function that is called after each round."""
    silent_ms: int = 0
    """The time of the last sign of another process that may hold a lease, in ms since the epoch; 0 if there is none."""


NO_REPORTING = Reporting()


class LeaseRound(NamedTuple):
    """The common properties of all orders of a round."""

    path: str
    term: str
    number: int
    tasks: int
    """The maximum number of orders."""
    alone_s: float
    """See `LeaseOrder.alone_s`."""


class LinkOrders:
    """Creates the orders of one link from its current settings."""

    def __init__(
        self,
        name: str,
        live: Effective,
        connectors: Callable[[str, str, str], str] = connector_of,
        reporting: Reporting = NO_REPORTING,
    ) -> None:
        self._name, self._live, self._connectors, self._reporting = name, live, connectors, reporting

    def endpoint(self, cluster: str) -> Endpoint:
        """The endpoint of a cluster."""
        return endpoint_of(self._live.now.sections, cluster)

    def of(self, this: LeaseRound, due: Sequence[tuple[Copy, int]]) -> list[LeaseOrder]:
        """Orders for these copies, each with its number of records that are not copied (-1: unknown)."""
        declared, copies = self._live.now.table(Declared)[self._name], {copy.source: copy for copy, _ in due}
        parts = divide({copy.source: 1.0 + max(0, behind) for copy, behind in due}, this.tasks)
        # The position that a copier finds at the target for a chosen position is stored before anything is copied.
        # Otherwise, if the copier fails after its first records, the next one restarts at the chosen position.
        any_chosen = any(copy.place(this.path).chosen for copy, _ in due)
        lease_s = 0.0 if any_chosen else declared.lease_s
        systems = (self.endpoint(declared.source).system, self.endpoint(declared.target).system)
        connector = self._connectors(*systems, this.path)
        return [
            LeaseOrder(
                self._lease(declared, [copies[source] for source in part], len(parts), this.path),
                connector,
                this.term,
                this.number,
                at,
                lease_s,
                len(parts) == 1 and not any_chosen,
                False,
                this.alone_s,
                self._reporting.channel,
                self._reporting.stop,
            )
            for at, part in enumerate(parts)
        ]

    def _lease(self, declared: Declared, copies: Sequence[Copy], parts: int, path: str) -> Lease:
        limits = Limits(
            declared.records_per_s / parts, declared.bytes_per_s / parts, declared.fetch_bytes, declared.in_flight
        )
        source = self.endpoint(declared.source)
        return Lease(
            link=self._name,
            source=source,
            target=self.endpoint(declared.target),
            writer_id=writer_id_of(self._name, source.bit, declared.flow),
            path=path,
            assignments=tuple(
                Assignment(c.source, c.target, c.place(path), c.start, c.source_id, c.target_id, c.refill)
                for c in copies
            ),
            forward=declared.forward,
            limits=limits,
            failures=declared.failures,
            dead_letters=declared.dead_letter_topic,
            hook=declared.hook,
            transform=declared.transform,
            clusters=bits_of(self._live.now.sections),
        )
