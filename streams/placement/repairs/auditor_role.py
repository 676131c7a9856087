"""Trueup in the place of BookKeeper's Auditor: its vote, the orders of operators to it, and under-replication marks."""

import socket
import threading
from collections.abc import Sequence

from trueup.connectors.bookkeeper.metadata import mark_codec, queries
from trueup.connectors.bookkeeper.placement.auditor_election import AuditorOrders, AuditorState, Vote
from trueup.connectors.bookkeeper.placement.mark_creations import MarkOrder
from trueup.connectors.bookkeeper.placement.marks import MarkOutcome, Marks
from trueup.connectors.zookeeper.follower import Run
from trueup.state.placement.settings import PlacementSettings
from trueup.streams.bookkeeper.cluster import BookKeeper
from trueup.streams.config.live import LiveSection

_AUDITS = "BookKeeper's Auditor marks the ledgers of lost bookies, and neither hold nor approve binds it"


class AuditorRole:
    """Implements `streams.placement.reconciler.PlacementCluster`. Safe to use from several threads."""

    def __init__(self, cluster: BookKeeper, policy: LiveSection[PlacementSettings], run: Run) -> None:
        self._cluster, self._policy, self._run = cluster, policy, run
        self._lock = threading.RLock()
        self._vote: Vote | None = None
        self.read, self.marks, self.outdated = cluster.readable, cluster.marks, cluster.outdated
        self.record = cluster.record

    def tick(self) -> None:
        """Take or return the vote according to the mode."""
        policy = self._policy.current
        voting = policy.hold_vote and policy.mode != "observe"
        with self._lock:
            if voting and self._vote is None:
                name = f"trueup-{socket.gethostname()}"
                self._vote = Vote(
                    self._cluster.connect, self._cluster.root, name, self._follow_orders, int(policy.grace_s)
                )
                self._vote.start(self._run)
            elif not voting and self._vote is not None:
                self._vote.close()
                self._vote = None
                self._cluster.keeper.wait_for(0)

    def close(self) -> None:
        """Return the vote."""
        with self._lock:
            if self._vote is not None:
                self._vote.close()

    def _follow_orders(self, orders: AuditorOrders) -> None:
        """While Trueup holds the vote, operators' orders to the Auditor are for Trueup."""
        self._cluster.keeper.wait_for(orders.delay_s * 1000)
        if orders.audit:
            self._cluster.keeper.settle(at_once=True)

    def voters(self) -> list[str]:
        """Voters for the Auditor, without this process; the name of the vote if it may not be read. Raises `Retry`."""
        client, vote = self._cluster.session(), self._vote
        votes = queries.voters(client, self._cluster.paths)
        others = votes if vote is None else [voter for voter in votes if not vote.owns(voter)]
        return [voter.name.decode() if voter.session is None else voter.bookie for voter in others]

    def vote_holder(self) -> str:
        """State of the Auditor's vote, as text."""
        vote = self._vote
        if vote is None:
            return "not requested: BookKeeper's Auditor is active"
        holder = vote.holder()
        if holder.role is AuditorState.OTHER:
            return f"held by {holder.bookie}; Trueup is next when that daemon stops"
        return "ours" if holder.role is AuditorState.OURS else f"waiting: {holder.problem or 'no session yet'}"

    def unbound(self) -> str:
        """Why BookKeeper's Auditor can mark despite hold and approve, and the remedy; empty if it cannot."""
        if not self._policy.current.hold_vote:
            return f"placement.hold_vote is false: {_AUDITS}; set it to true and restart Trueup"
        vote = self._vote
        if vote is None:
            return f"mode observe does not request the vote: {_AUDITS}; modes approve and enforce do"
        holder = vote.holder()
        if holder.role is AuditorState.OTHER:
            todo = "restart that daemon, and the vote passes to Trueup"
            return f"{holder.bookie} holds the Auditor's vote: {_AUDITS}; {todo}"
        if holder.role is AuditorState.OURS:
            return ""
        return f"Trueup has no vote yet ({holder.problem or 'no session yet'}): {_AUDITS}"

    def problems(self) -> list[str]:
        """The errors in votes and orders."""
        vote = self._vote
        return vote.problems() if vote is not None else []

    def blocked_reason(self) -> str:
        """Why no changes are possible now; empty if they are."""
        if unseen := self._cluster.unseen():
            return unseen
        vote = self._vote
        if vote is not None and vote.defect:
            return f"changes in ZooKeeper cannot be followed: {vote.defect}"
        return "" if vote is None else refused(vote)

    def locks(self, ledgers: Sequence[int]) -> dict[int, str]:
        """Workers that hold the locks of these ledgers."""
        return self._marks().holders(ledgers) if ledgers else {}

    def mark(self, orders: Sequence[MarkOrder]) -> list[MarkOutcome]:
        """Write marks, each if its requirements hold."""
        return self._marks().mark(orders)

    def marked(self, ledgers: Sequence[int]) -> dict[int, mark_codec.Mark | None]:
        """Current marks of these ledgers; None: it exists and may not be read."""
        return self._marks().look(ledgers) if ledgers else {}

    def withdraw(self, items: Sequence[tuple[int, int]]) -> list[MarkOutcome]:
        """Delete the marks of these ledgers that still have this znode version."""
        return self._marks().withdraw(items)

    def _marks(self) -> Marks:
        return Marks(self._cluster.session(), self._cluster.paths)


def refused(vote: Vote) -> str:
    """Why orders of operators to the Auditor permit no changes; empty if they do."""
    orders = vote.orders()
    if orders is None:
        problem = vote.holder().problem or "not read yet"
        return f"whether replication is disabled in BookKeeper is not known: {problem}"
    return "replication is disabled in BookKeeper" if orders.disabled else ""
