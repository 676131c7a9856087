"""Marks: what this project writes so that BookKeeper's own workers repair a ledger.

Source of the protocol: ZkLedgerUnderreplicationManager. A mark is created in one transaction with a check that the
ledger's metadata still has the version on which the repair was decided. Every order is answered by itself.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from connectors.bookkeeper import marks
from connectors.bookkeeper.layout import Paths
from connectors.zookeeper.client import Client, Committed, check, writing
from connectors.zookeeper.errors import FORBIDDEN, GONE, BadVersion, NoNode
from state.errors import Retry, TrueupError, Unknown

_TOGETHER = (100, 100, 25, 5, 1, 1)
"""Orders in a transaction, look after look: where others keep interfering, fewer suffer together."""
_LEVELS = 4


class MarkOrder(NamedTuple):
    """Mark a ledger, if its znode still has this version. ``replicas``: lost bookies, none for placement alone."""

    ledger: int
    version: int
    replicas: tuple[str, ...] = ()
    ctime_ms: int = -1


class Outcome(NamedTuple):
    """What became of one order.

    ``result`` of a mark: written; already (marked, and nothing to add); refused (the ledger changed); gone (the ledger
    was deleted); unknown (the answer was lost: look before trying again); retry (nothing was written); failed (we may
    not). Of a withdrawal: withdrawn, gone (there is no mark), refused (it was written since), unknown, retry.
    ``version`` of the mark's znode and ``zxid`` of the write are -1 where they are not known.
    """

    ledger: int
    result: str
    detail: str = ""
    version: int = -1
    zxid: int = -1


class _Seen(NamedTuple):
    """A znode as just read. ``version`` is GONE or FORBIDDEN where it could not be."""

    data: bytes
    version: int
    mzxid: int


class _Write(NamedTuple):
    """The operations for one order, and the version its mark will have."""

    operations: list[Any]
    version: int


class Marks:
    """Writes and withdraws marks through one session."""

    def __init__(self, client: Client, paths: Paths) -> None:
        self._client, self._paths = client, paths

    def mark(self, items: Sequence[MarkOrder]) -> list[Outcome]:
        """Carry out all orders, 100 in a transaction; one outcome each, in their order.

        An order that cannot be carried out does not keep the others of its transaction: after another look at all of
        them it is left out. Workers delete empty parents and marks at any time; that too only costs another look.
        """
        done: dict[int, Outcome] = {}
        left = list(range(len(items)))
        problem = "the tree of marks kept changing; order it again"
        for together in _TOGETHER:
            if not left:
                break
            try:
                # The orders may have been decided on what another server said, which this one must not lag behind.
                self._client.settle(self._paths.root)
                ready = self._look(items, left, done)
            except Retry as error:
                problem = str(error)
                break
            left = self._commit(items, ready, done, together)
        done.update({at: Outcome(items[at].ledger, "retry", problem) for at in left if at not in done})
        return [done[at] for at in range(len(items))]

    def withdraw(self, ledger: int, mark_version: int) -> Outcome:
        """Delete a mark that still has this version. A worker that holds the lock does not mind.

        Empty parents go too, as after a repair by a worker: nothing else would ever remove them.
        """
        path = self._paths.mark(ledger)
        try:
            self._client.drop(path, mark_version)
        except NoNode:
            return Outcome(ledger, "gone", "there is no mark")
        except BadVersion:
            return Outcome(ledger, "refused", f"the mark no longer has version {mark_version}")
        except Unknown as error:
            return Outcome(ledger, "unknown", str(error), mark_version)
        except Retry as error:
            return Outcome(ledger, "retry", str(error), mark_version)
        zxid = self._client.last_zxid
        self._prune(path)
        return Outcome(ledger, "withdrawn", "", mark_version, zxid)

    def _prune(self, path: str) -> None:
        """Remove empty parents, lowest first. One that stays does no harm."""
        for _ in range(_LEVELS):
            path = path.rpartition("/")[0]
            try:
                self._client.drop(path, -1)
            except TrueupError:
                return

    def _look(self, items: Sequence[MarkOrder], left: list[int], done: dict[int, Outcome]) -> dict[int, _Write]:
        """Read ledgers, marks and parents; settle what needs no write; what to write for the others."""
        paths = [self._paths.mark(items[at].ledger) for at in left]
        above = sorted({parent for path in paths for parent in self._above(path)})
        ledgers = [self._paths.ledger(items[at].ledger) for at in left]
        seen = self._read([*ledgers, *paths, *above])
        missing = {path for path, parent in zip(above, seen[2 * len(left) :], strict=True) if parent.version == GONE}
        ready: dict[int, _Write] = {}
        for row, (at, path) in enumerate(zip(left, paths, strict=True)):
            mark = seen[len(left) + row]
            outcome = _settled(items[at], seen[row], mark)
            if outcome:
                done[at] = outcome
            else:
                ready[at] = self._write(items[at], path, mark, missing)
        return ready

    def _write(self, order: MarkOrder, path: str, mark: _Seen, missing: set[str]) -> _Write:
        """Create or extend a mark. Parents created on the way are no longer ``missing`` for the orders after it."""
        guard = check(self._paths.ledger(order.ledger), order.version)
        if mark.version != GONE:
            known = marks.decode(mark.data)
            replicas = tuple(dict.fromkeys(known.replicas + order.replicas))
            text = marks.encode(replicas, order.ctime_ms)
            return _Write([guard, writing(path, text, mark.version)], mark.version + 1)
        parents = [parent for parent in self._above(path) if parent in missing]
        missing.difference_update(parents)
        new = self._client.creation(path, marks.encode(order.replicas, order.ctime_ms))
        return _Write([guard, *map(self._client.creation, parents), new], 0)

    def _above(self, path: str) -> list[str]:
        """The four levels above a mark and the roots, which no daemon has made where none ever ran; highest first."""
        levels = [path.rsplit("/", levels)[0] for levels in range(_LEVELS, 0, -1)]
        return [self._paths.replication, self._paths.marks, *levels]

    def _commit(
        self, items: Sequence[MarkOrder], ready: dict[int, _Write], done: dict[int, Outcome], together: int
    ) -> list[int]:
        """Write, so many ``together``; the orders that deserve another look."""
        every = list(ready)
        batches = [every[start : start + together] for start in range(0, len(every), together)]
        answers = self._client.commit([op for at in batch for op in ready[at].operations] for batch in batches)
        again: list[int] = []
        for batch, answer in zip(batches, answers, strict=True):
            if not isinstance(answer, Committed):
                result = next((name for kind, name in _LOST if isinstance(answer, kind)), "failed")
                done.update({at: Outcome(items[at].ledger, result, str(answer)) for at in batch})
            elif FORBIDDEN in answer.codes:
                done.update({at: Outcome(items[at].ledger, "failed", "no permission to write marks") for at in batch})
            elif any(answer.codes):
                again += batch
            else:
                for at in batch:
                    done[at] = Outcome(items[at].ledger, "written", "", ready[at].version, answer.zxid)
        return again

    def _read(self, paths: Sequence[str]) -> list[_Seen]:
        names = [path[len(self._paths.root) + 1 :].encode() for path in paths]
        found: list[_Seen] = []
        for part in self._client.multi_read(self._paths.root, names):
            for row, size in enumerate(part.size.tolist()):
                if size < 0:
                    found.append(_Seen(b"", size, part.zxid))
                else:
                    stat = part.stat(row)
                    found.append(_Seen(part.data(row), stat.version, stat.mzxid))
        return found


_LOST: tuple[tuple[type[TrueupError], str], ...] = ((Unknown, "unknown"), (Retry, "retry"))


def _settled(order: MarkOrder, ledger: _Seen, mark: _Seen) -> Outcome | None:
    """The outcome of an order that needs no write any more."""
    if ledger.version == GONE:
        return Outcome(order.ledger, "gone", "the ledger was deleted", zxid=ledger.mzxid)
    if FORBIDDEN in (ledger.version, mark.version):
        return Outcome(order.ledger, "failed", "no permission to read the ledger and its mark")
    if ledger.version != order.version:
        found = f"expected metadata version {order.version}; found {ledger.version}; decide afresh"
        return Outcome(order.ledger, "refused", found)
    if mark.version == GONE:
        return None
    known = marks.decode(mark.data)
    if known.whole and not set(order.replicas) <= set(known.replicas):
        return None
    detail = "it is marked" if known.whole else "it is marked, in a text that cannot be read"
    return Outcome(order.ledger, "already", detail, mark.version, mark.mzxid)
