"""Under-replication marks: Trueup writes them, and BookKeeper's workers repair the ledgers.

Source of the protocol: ZkLedgerUnderreplicationManager. A mark is created in one transaction with a check that the
ledger's metadata still has the version of the decision. Every order has its own result.
"""

from collections.abc import Sequence
from typing import NamedTuple

from trueup.connectors.bookkeeper.metadata import mark_codec
from trueup.connectors.bookkeeper.metadata.layout import BookKeeperPaths
from trueup.connectors.bookkeeper.placement.mark_creations import MarkOrder, creations
from trueup.connectors.zookeeper.client import CommittedNode, ZooKeeperClient, check, deletion, writing
from trueup.connectors.zookeeper.errors import FORBIDDEN, GONE, BadVersion, Forbidden, NoNode
from trueup.state.common.errors import Retry, Unknown, ended

_TOGETHER = (100, 100, 100, 25, 5, 1, 1)
"""Orders per transaction, by attempt: if other writers interfere, smaller transactions affect fewer orders."""
_LEVELS = 4


class MarkOutcome(NamedTuple):
    """The result of one order."""

    ledger: int
    result: str
    """The result of an order to mark a ledger: written; already (marked, nothing to add); refused (the ledger changed);
    gone (the ledger was deleted); unknown (the response was lost: observe before a retry); retry (nothing was written);
    failed (no permission). The result of a withdrawal: withdrawn; gone (no mark exists); refused (the mark was
    rewritten); unknown; retry; failed."""
    detail: str = ""
    version: int = -1
    """The version of the mark's znode; -1: unknown."""
    zxid: int = -1
    """The zxid of the last write to the mark, or of the read that found the ledger deleted; -1: unknown."""


class _ZnodeRead(NamedTuple):
    """A znode as read just now."""

    data: bytes
    version: int
    """The version of the znode; GONE or FORBIDDEN if it could not be read."""
    mzxid: int
    """The mzxid of the znode; the zxid of the read if the znode could not be read."""


class _MarkWrite(NamedTuple):
    """The write for one order."""

    operations: list[bytes]
    """The operations of the write."""
    version: int
    """The version of the mark after the write."""


class Marks:
    """Writes and withdraws marks through one session."""

    def __init__(self, client: ZooKeeperClient, paths: BookKeeperPaths) -> None:
        self._client, self._paths = client, paths

    def mark(self, items: Sequence[MarkOrder]) -> list[MarkOutcome]:
        """Execute all orders, 100 per transaction; one outcome each, in their order.

        The decisions were based on a read, so the first attempt does not read again: a transaction checks all
        requirements. If an order cannot be executed, all orders of its transaction are read, and the failing one is
        left out. Workers can delete empty parents and marks at any time, which also only costs another read.
        """
        done: dict[int, MarkOutcome] = {}
        left = list(range(len(items)))
        problem = "the tree of marks kept changing; retry the order"
        for attempt, together in enumerate(_TOGETHER):
            if not left:
                break
            try:
                ready = self._look(items, left, done) if attempt else self._guess(items)
            except Retry as error:
                problem = str(error)
                break
            left = self._commit(items, ready, done, together, guessed=not attempt)
        done.update({at: MarkOutcome(items[at].ledger, "retry", problem) for at in left if at not in done})
        return [done[at] for at in range(len(items))]

    def look(self, ledgers: Sequence[int]) -> dict[int, mark_codec.Mark | None]:
        """The current marks of these ledgers, read from an up-to-date server; None: it exists and may not be read.
        Raises `Retry`."""
        self._client.settle(self._paths.root)
        seen = self._read([self._paths.mark(ledger) for ledger in ledgers])
        there = {ledger: mark for ledger, mark in zip(ledgers, seen, strict=True) if mark.version != GONE}
        return {i: None if mark.version == FORBIDDEN else mark_codec.decode(mark.data) for i, mark in there.items()}

    def holders(self, ledgers: Sequence[int]) -> dict[int, str]:
        """The worker that holds the lock of each of these ledgers, "?" if it is not known; unlocked ledgers are
        omitted."""
        seen = zip(ledgers, self._read([self._paths.lock(ledger) for ledger in ledgers]), strict=True)
        return {i: mark_codec.holder(lock.data) or "?" for i, lock in seen if lock.version != GONE}

    def withdraw(self, items: Sequence[tuple[int, int]]) -> list[MarkOutcome]:
        """Delete the marks of these ledgers that still have this version, 100 per transaction; one outcome each.

        A worker that holds the lock is not affected. Empty parents are also deleted, as by a worker after a repair:
        nothing else would remove them. Marks that cannot be deleted together are deleted one by one.
        """
        paths = [self._paths.mark(ledger) for ledger, _ in items]
        places = [range(at, min(at + _TOGETHER[0], len(items))) for at in range(0, len(items), _TOGETHER[0])]
        removals = ([op for at in some for op in _removal(paths[at], items[at][1])] for some in places)
        outcomes: list[MarkOutcome] = []
        for some, answer in zip(places, self._client.commit(removals), strict=True):
            if isinstance(answer, CommittedNode) and not any(answer.codes):
                outcomes += [MarkOutcome(items[at][0], "withdrawn", "", items[at][1], answer.zxid) for at in some]
            elif isinstance(answer, CommittedNode):
                outcomes += [self._withdraw(*items[at], paths[at]) for at in some]
            else:
                outcomes += [
                    MarkOutcome(items[at][0], ended(answer, "failed"), str(answer), items[at][1]) for at in some
                ]
        self._prune([path for path, outcome in zip(paths, outcomes, strict=True) if outcome.result == "withdrawn"])
        return outcomes

    def _withdraw(self, ledger: int, mark_version: int, path: str) -> MarkOutcome:
        try:
            self._client.drop(path, mark_version)
        except NoNode:
            return MarkOutcome(ledger, "gone", "no mark exists")
        except BadVersion:
            return MarkOutcome(ledger, "refused", f"the mark no longer has version {mark_version}")
        except (Unknown, Retry, Forbidden) as error:
            return MarkOutcome(ledger, ended(error, "failed"), str(error), mark_version)
        zxid = self._client.last_zxid
        for _ in self._client.commit([[deletion(path.rpartition("/")[0], -1)]]):
            pass
        return MarkOutcome(ledger, "withdrawn", "", mark_version, zxid)

    def _prune(self, paths: Sequence[str]) -> None:
        """Remove the levels that these marks shared with others, lowest first, if they are empty."""
        directories = {path.rsplit("/", 2)[0] for path in paths}
        for up in range(_LEVELS - 1):
            levels = sorted({directory.rsplit("/", up)[0] for directory in directories})
            for _ in self._client.commit([deletion(level, -1)] for level in levels):
                pass  # a level that is not empty remains, which is harmless

    def _guess(self, items: Sequence[MarkOrder]) -> dict[int, _MarkWrite]:
        """The writes if no ledger has a mark, and so no parent of its own: reads only the shared levels."""
        firsts: dict[int, int] = {}  # of each group whose marks share all levels except the lowest
        for at, item in enumerate(items):
            firsts.setdefault(item.ledger >> 16, at)
        above = {at: self._above(self._paths.mark(items[at].ledger))[:-1] for at in firsts.values()}
        shared = sorted({level for levels in above.values() for level in levels})
        seen = self._read(shared)
        missing = {path for path, parent in zip(shared, seen, strict=True) if parent.version == GONE}
        encoded = creations(self._paths, self._client.creation, items)
        ready = {at: _MarkWrite([operations], 0) for at, operations in enumerate(encoded)}
        for at, levels in above.items():
            ready[at].operations[:0] = map(self._client.creation, _lacking(levels, missing))
        return ready

    def _look(self, items: Sequence[MarkOrder], left: list[int], done: dict[int, MarkOutcome]) -> dict[int, _MarkWrite]:
        """Read ledgers, marks and parents; settle orders that need no write; return the writes for the others."""
        # The decisions may be based on the state of another server, which this one must not lag behind.
        self._client.settle(self._paths.root)
        paths = [self._paths.mark(items[at].ledger) for at in left]
        above = sorted({parent for path in paths for parent in self._above(path)})
        ledgers = [self._paths.ledger(items[at].ledger) for at in left]
        seen = self._read([*ledgers, *paths, *above])
        missing = {path for path, parent in zip(above, seen[2 * len(left) :], strict=True) if parent.version == GONE}
        ready: dict[int, _MarkWrite] = {}
        for row, (at, path) in enumerate(zip(left, paths, strict=True)):
            mark = seen[len(left) + row]
            outcome = _settled(items[at], seen[row], mark)
            if outcome:
                done[at] = outcome
            else:
                ready[at] = self._write(items[at], path, mark, missing)
        return ready

    def _write(self, order: MarkOrder, path: str, mark: _ZnodeRead, missing: set[str]) -> _MarkWrite:
        """The operations that create or extend a mark."""
        if mark.version == GONE:
            new = mark_codec.encode(order.replicas, order.ctime_ms)
            parents = map(self._client.creation, _lacking(self._above(path), missing))
            return _MarkWrite([self._guard(order), *parents, self._client.creation(path, new)], 0)
        content = mark_codec.decode(mark.data)
        replicas = tuple(dict.fromkeys(content.replicas + order.replicas))
        text = mark_codec.encode(replicas, order.ctime_ms)
        return _MarkWrite([self._guard(order), writing(path, text, mark.version)], mark.version + 1)

    def _guard(self, order: MarkOrder) -> bytes:
        return check(self._paths.ledger(order.ledger), order.version)

    def _above(self, path: str) -> list[str]:
        """The four levels above a mark, and the roots, which are absent if no daemon ever ran; highest first."""
        levels = [path.rsplit("/", levels)[0] for levels in range(_LEVELS, 0, -1)]
        return [self._paths.replication, self._paths.marks, *levels]

    def _commit(
        self,
        items: Sequence[MarkOrder],
        ready: dict[int, _MarkWrite],
        done: dict[int, MarkOutcome],
        together: int,
        guessed: bool = False,
    ) -> list[int]:
        """Write, ``together`` orders per transaction; returns the orders to read again. One that lacks permission ends,
        and not the others of its transaction."""
        every = list(ready)
        batches = [every[start : start + together] for start in range(0, len(every), together)]
        answers = self._client.commit([op for at in batch for op in ready[at].operations] for batch in batches)
        again: list[int] = []
        for batch, answer in zip(batches, answers, strict=True):
            if not isinstance(answer, CommittedNode):
                done.update({at: MarkOutcome(items[at].ledger, ended(answer, "failed"), str(answer)) for at in batch})
            elif FORBIDDEN in answer.codes and not guessed:
                at = _at([(at, ready[at]) for at in batch], answer.codes.index(FORBIDDEN))
                detail = f"no permission to write {self._paths.mark(items[at].ledger)}"
                done[at] = MarkOutcome(items[at].ledger, "failed", detail)
                again += [other for other in batch if other != at]
            elif any(answer.codes):
                again += batch
            else:
                for at in batch:
                    done[at] = MarkOutcome(items[at].ledger, "written", "", ready[at].version, answer.zxid)
        return again

    def _read(self, paths: Sequence[str]) -> list[_ZnodeRead]:
        names = [path[len(self._paths.root) + 1 :].encode() for path in paths]
        reads: list[_ZnodeRead] = []
        for part in self._client.multi_read(self._paths.root, names):
            for row, size in enumerate(part.size.tolist()):
                if size < 0:
                    reads.append(_ZnodeRead(b"", size, part.zxid))
                else:
                    stat = part.stat(row)
                    reads.append(_ZnodeRead(part.data(row), stat.version, stat.mzxid))
        return reads


def _at(writes: Sequence[tuple[int, _MarkWrite]], operation: int) -> int:
    """The order that has this operation of a transaction."""
    return [at for at, write in writes for _ in write.operations][operation]


def _lacking(above: Sequence[str], missing: set[str]) -> list[str]:
    """Levels above a mark that must be created; later orders no longer find them in ``missing``."""
    parents = [parent for parent in above if parent in missing]
    missing.difference_update(parents)
    return parents


def _removal(path: str, version: int) -> tuple[bytes, bytes]:
    """Operations that delete a mark and its parent level, which no other mark shares."""
    return deletion(path, version), deletion(path.rpartition("/")[0], -1)


def _settled(order: MarkOrder, ledger: _ZnodeRead, mark: _ZnodeRead) -> MarkOutcome | None:
    """The outcome of an order that needs no write."""
    if ledger.version == GONE:
        return MarkOutcome(order.ledger, "gone", "the ledger was deleted", zxid=ledger.mzxid)
    if FORBIDDEN in (ledger.version, mark.version):
        return MarkOutcome(order.ledger, "failed", "no permission to read the ledger and its mark")
    if ledger.version != order.version:
        reason = f"expected metadata version {order.version}; found {ledger.version}; decide again"
        return MarkOutcome(order.ledger, "refused", reason)
    if mark.version == GONE:
        return None
    content = mark_codec.decode(mark.data)
    if content.whole and not set(order.replicas) <= set(content.replicas):
        return None
    detail = "it is marked" if content.whole else "it is marked with an unreadable text"
    return MarkOutcome(order.ledger, "already", detail, mark.version, mark.mzxid)
