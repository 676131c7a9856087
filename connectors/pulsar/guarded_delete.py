"""Deletes ledgers of managed ledgers, in a transaction that verifies that the owner did not change.

A ledger is deleted by deleting its znode (LedgerDeleteOp); bookies then collect its entries. Neither Pulsar nor
BookKeeper's client checks anything before. Here the owner is read again, and one transaction checks that its node
is unchanged and deletes the znode if it still has the version of the decision. Only the node of the managed ledger
decides on its data, so only this node is checked: its cursors must be readable and must not reference the ledger, but
they change all the time.

A version does not identify a node: one that was deleted and created again has the same versions a second time, and a
transaction checks nothing else. Therefore everything is read twice, and the transaction is sent only if the second
read, directly before it, finds the same nodes: the zxid of the last write of a path is never used twice. It remains
possible that between the second response and the transaction, one round trip, the owner's node is deleted, created,
written up to the same version, and lists a ledger that it did not list before. A broker never does: ledger ids are not
reused, so the node of a new topic lists only later ledgers.

Nodes of other owners are not read again: the decision excludes ledgers that they reference, and a reference that is
made after it is noticed only if the view contains it before the order. A broker never lists a ledger that it did not
create.

A ledger that its owner lists and records as deleted is deleted only after the verification of its offloaded copy.
Nothing else is ever deleted, not even empty directories, and no node of Pulsar is written.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from trueup.connectors.pulsar.layout import NodeKind, NodeLocation, PulsarPaths
from trueup.connectors.pulsar.offload_verify import OffloadFacts
from trueup.connectors.pulsar.queries import FORBIDDEN, GONE, Node, owned, read
from trueup.connectors.zookeeper.client import CommittedNode, ZooKeeperClient, check, deletion
from trueup.connectors.zookeeper.requests import Stat
from trueup.state.bookkeeper.observations import LedgerRecord, LedgerState
from trueup.state.common.errors import Retry, Stop, TrueupError, ended
from trueup.state.deletion.offloads import OffloadedCopy
from trueup.state.deletion.owners import Claim, Component, OwnerStatus, Pointers, claim_of

Decode = Callable[[int, bytes, Stat], LedgerRecord]
"""The record of a ledger from its znode; UNREADABLE if it cannot be decoded."""
Verify = Callable[[OffloadedCopy, OffloadFacts], None]
_BAD_VERSION = -103


class DeleteOrder(NamedTuple):
    """An order to delete a ledger if its version, creation time and claim equal those of the decision."""

    ledger: int
    version: int
    """The version of the znode of the ledger."""
    ctime_ms: int
    """The creation time of the ledger, in ms since the epoch."""
    claim: Claim
    unclosed: bool = False
    """Whether the ledger may be OPEN, because its writer continued with a later one."""
    dropped: bool = False
    """Whether the owner still lists the ledger and records it as deleted, because an offloaded copy exists."""


class _Ready(NamedTuple):
    """An executable order."""

    owner: int
    """The zxid of the last write of the owner's node."""
    ledger: int
    """The zxid of the last write of the ledger's znode."""
    operations: list[bytes]
    """The operations of the transaction."""


class DeleteOutcome(NamedTuple):
    """The result of one order."""

    ledger: int
    result: str
    """One of these: deleted; gone (no such ledger); refused; unknown (the response was lost: observe before anything
    else); retry (nothing was written); ready (the result of a check: the transaction would be sent)."""
    detail: str = ""
    """The reason for the result; empty if the result is deleted or ready."""
    zxid: int = -1
    """The zxid of the transaction, or of the read that found the ledger gone; -1 for other results."""


class Deleter:
    """Deletes ledgers through one session, with an ensemble that stores ledgers and managed ledgers.

    ``ledger_path``: the znode of a ledger. ``now`` returns the time in ms since the epoch. ``verify`` checks the
    offloaded copy of a ledger and raises if it is not complete. ``unread``: which nodes may not be read, so that they
    may reference any ledger; empty: none.
    """

    def __init__(
        self,
        client: ZooKeeperClient,
        paths: PulsarPaths,
        ledger_path: Callable[[int], str],
        decode: Decode,
        now: Callable[[], int],
        verify: Verify,
        unread: Callable[[], str],
    ) -> None:
        self._client, self._paths, self._now = client, paths, now
        self._ledger_path, self._decode, self._verify, self._unread = ledger_path, decode, verify, unread

    def delete(self, orders: Sequence[DeleteOrder]) -> list[DeleteOutcome]:
        """Execute all orders, each in a separate transaction; one outcome each, in their order."""
        done: dict[int, DeleteOutcome] = {}
        ready = self._look(orders, done)
        ready = self._look(orders, done, ready) if ready else {}
        operations = [transaction.operations for transaction in ready.values()]
        for at, answer in zip(ready, self._client.commit(operations) if ready else (), strict=True):
            done[at] = _outcome(orders[at].ledger, answer)
        return [done[at] for at in range(len(orders))]

    def check(self, orders: Sequence[DeleteOrder]) -> list[DeleteOutcome]:
        """The outcome of all orders without sending the transactions; one each."""
        done: dict[int, DeleteOutcome] = {}
        ready = self._look(orders, done)
        return [DeleteOutcome(order.ledger, "ready") if at in ready else done[at] for at, order in enumerate(orders)]

    def _look(
        self, orders: Sequence[DeleteOrder], done: dict[int, DeleteOutcome], before: Mapping[int, _Ready] | None = None
    ) -> dict[int, _Ready]:
        """Read owners and ledgers, settle the orders that must not be executed, and return the others. ``before``: the
        executable orders of an earlier look; only these are read again, and the same nodes must be found."""
        left = range(len(orders)) if before is None else before
        if unread := self._unread():
            done.update({at: DeleteOutcome(orders[at].ledger, "refused", unread) for at in left})
            return {}
        try:
            return self._read(orders, done) if before is None else self._same(orders, done, before)
        except (Retry, Stop) as error:
            done.update({at: _failed(orders[at].ledger, error) for at in left})
            return {}

    def _same(
        self, orders: Sequence[DeleteOrder], done: dict[int, DeleteOutcome], before: Mapping[int, _Ready]
    ) -> dict[int, _Ready]:
        ready: dict[int, _Ready] = {}
        for at, node, nodes in self._nodes(orders, before):
            order, seen = orders[at], before[at]
            if node.error == GONE:
                done[at] = DeleteOutcome(order.ledger, "gone", "the ledger does not exist", node.zxid)
            elif problem := _needed(order, nodes):
                done[at] = DeleteOutcome(order.ledger, "refused", problem)
            elif node.stat is None or (nodes[0].mzxid, node.stat.mzxid) != (seen.owner, seen.ledger):
                problem = _why("the nodes of the owner and the ledger as just read", "other nodes", "decide again")
                done[at] = DeleteOutcome(order.ledger, "refused", problem)
            else:
                ready[at] = seen
        return ready

    def _nodes(
        self, orders: Sequence[DeleteOrder], positions: Iterable[int]
    ) -> Iterator[tuple[int, Node, list[Pointers]]]:
        """The ledger of each of these orders, and the nodes of its owner, read now from an up-to-date server."""
        ats = list(positions)
        owners = owned(self._client, self._paths, {orders[at].claim.owner for at in ats}, self._now())
        ledgers = read(self._client, [self._ledger_path(orders[at].ledger) for at in ats])
        for at, node in zip(ats, [node for nodes in ledgers for node in nodes], strict=True):
            yield at, node, owners[orders[at].claim.owner]

    def _read(self, orders: Sequence[DeleteOrder], done: dict[int, DeleteOutcome]) -> dict[int, _Ready]:
        positions: list[int] = []
        for at, order in enumerate(orders):
            problem = self._ineligible(order.claim)
            if problem:
                done[at] = DeleteOutcome(order.ledger, "refused", problem)
            else:
                positions.append(at)
        ready: dict[int, _Ready] = {}
        for at, node, nodes in self._nodes(orders, positions):
            order, own = orders[at], nodes[0]
            if node.error == GONE:
                done[at] = DeleteOutcome(order.ledger, "gone", "the ledger does not exist", node.zxid)
            elif problem := self._changed(order, node) or _needed(order, nodes):
                done[at] = DeleteOutcome(order.ledger, "refused", problem)
            elif order.dropped and (error := self._unverified(order, node, own)):
                done[at] = _failed(order.ledger, error)
            else:
                operations = [check(own.path, own.version), deletion(node.path, order.version)]
                ready[at] = _Ready(own.mzxid, node.stat.mzxid if node.stat else -1, operations)
        return ready

    def _ineligible(self, claim: Claim) -> str:
        """Why no ledger with such a claim is ever deleted; empty if it may be."""
        if claim.component is not Component.DATA:
            return _why("a ledger of a managed ledger's data", claim.component.name, "others are only reported")
        try:
            places = self._paths.places(self._paths.node(claim.owner))
        except Stop as error:
            return str(error)
        if NodeLocation(NodeKind.MANAGED_LEDGER, claim.owner) not in places:
            return _why("a managed ledger as the owner", repr(claim.owner), "its ledgers are only reported")
        return ""

    def _changed(self, order: DeleteOrder, node: Node) -> str:
        """What differs from the order; empty if nothing does."""
        if node.stat is None:
            return _why(f"permission to read {node.path}", "none", "correct the ZooKeeper ACLs")
        if node.stat.version != order.version:
            return _why(f"metadata version {order.version}", str(node.stat.version), "decide again")
        record = self._decode(order.ledger, node.data, node.stat)
        state = LedgerState(record["state"])
        if state is not LedgerState.CLOSED and not (order.unclosed and state is LedgerState.OPEN):
            return _why("a closed ledger", f"{state.name} {record['error']}".strip(), "decide again")
        expected, found = (order.ctime_ms, order.claim), (record["ctime_ms"], claim_of(record["custom"]))
        return "" if found == expected else _why(_created(*expected), _created(*found), "decide again")

    def _unverified(self, order: DeleteOrder, node: Node, own: Pointers) -> TrueupError | None:
        """The problem with the offloaded copy of a ledger that its owner records as deleted; None if verified."""
        assert node.stat is not None, "changed nodes were settled before"
        record = self._decode(order.ledger, node.data, node.stat)
        copies = [copy for copy in own.copies if copy.pair.ledger == order.ledger]
        if len(copies) != 1:
            return Stop(f"one offloaded copy of ledger {order.ledger} in {own.path}", str(len(copies)), "it is kept")
        try:
            self._verify(copies[0], OffloadFacts(order.claim.owner, record["last_entry"], record["length"]))
        except TrueupError as error:
            return error
        return None


def _failed(ledger: int, error: TrueupError) -> DeleteOutcome:
    return DeleteOutcome(ledger, ended(error), str(error))


def _created(ctime_ms: int, claim: Claim) -> str:
    return f"a ledger created at {ctime_ms} as {claim.component.name} of {claim.owner or 'nobody'}"


def _needed(order: DeleteOrder, nodes: Sequence[Pointers]) -> str:
    """Why these nodes of its owner, its own first, do not permit the deletion of a ledger; empty if they do."""
    own, ledger = nodes[0], order.ledger
    if own.status is OwnerStatus.GONE:
        return _why(f"the owner's node {own.path}", "none", "nothing is deleted without its owner's metadata")
    for node in nodes:
        if node.status is not OwnerStatus.READABLE:
            return node.error
        if ledger in node.ledgers and not (order.dropped and node is own):
            return _why("no reference to the ledger", node.path, "it is in use")
    if order.dropped:
        counted = ledger in own.dropped
        return "" if counted else _why(f"{own.path} to record the ledger as deleted", "otherwise", "decide again")
    newest = own.ledgers[-1] if own.ledgers else -1
    if newest <= ledger:
        return _why(f"a ledger after {ledger} in the list of {own.path}", str(newest), "it may be listed soon")
    return ""


def _outcome(ledger: int, answer: CommittedNode | TrueupError) -> DeleteOutcome:
    if not isinstance(answer, CommittedNode):
        return _failed(ledger, answer)
    of_owner, of_ledger = answer.codes
    if of_owner is None and of_ledger is None:
        return DeleteOutcome(ledger, "deleted", "", answer.zxid)
    if of_owner in (GONE, _BAD_VERSION):
        return DeleteOutcome(ledger, "refused", _why("an unchanged owner's node", "another version", "decide again"))
    if of_ledger == GONE:
        return DeleteOutcome(ledger, "gone", "the ledger does not exist", answer.zxid)
    if of_ledger == FORBIDDEN:
        return DeleteOutcome(
            ledger, "refused", _why("permission to delete ledgers", "none", "correct the ZooKeeper ACLs")
        )
    return DeleteOutcome(ledger, "refused", _why("the version of the decision", f"error {of_ledger}", "decide again"))


def _why(expected: str, found: str, todo: str) -> str:
    return f"expected {expected}; found {found}; {todo}"
