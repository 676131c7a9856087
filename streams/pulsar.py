"""The owners of one BookKeeper cluster's ledgers, which Pulsar keeps beside them: capture into the journal, fresh
reads, guarded deletion, and the bookies' word that a ledger is gone."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from connectors.bookkeeper import reading
from connectors.bookkeeper.addresses import Addresses
from connectors.bookkeeper.layout import Paths as LedgerPaths
from connectors.bookkeeper.metadata import Where
from connectors.bookkeeper.presence import Answer, presence
from connectors.pulsar.capture import Capture
from connectors.pulsar.deleting import DeleteOrder, Deleter
from connectors.pulsar.paths import Paths
from connectors.zookeeper.requests import Stat
from state.deleting import Deletion
from state.ledgers import Ledgers
from state.markers import Marker
from state.observations import LedgerRecord
from state.owners import Claim, Component, Pointers, Status
from streams.bookkeeper import BookKeeper
from streams.journal import Journal
from streams.markers import Result

ASK_S = 5.0


class Pulsar:
    """Implements `streams.markers.Cluster` and `streams.unreferenced.Owners`. Safe to use from several threads."""

    def __init__(
        self, ledgers: BookKeeper, journal: Journal, policy: Callable[[], Deletion], clock: Callable[[], int]
    ) -> None:
        self._ledgers, self._journal, self._policy, self._clock = ledgers, journal, policy, clock
        self._paths = Paths(policy().root)
        self._capture = Capture(ledgers.connect, self._paths, self._publish, known(journal), clock)

    def start(self) -> None:
        """Begin to observe."""
        self._capture.start()

    def close(self) -> None:
        """Observe nothing more, and so delete nothing more."""
        self._capture.close()

    def _publish(self, news: Iterable[Pointers]) -> None:
        self._journal.put([("owners", node.path.encode(), record_of(node)) for node in news])

    def read(self, ledgers: Sequence[int]) -> Ledgers:
        """Fresh rows of these ledgers; those that are gone are left out."""
        return self._ledgers.read(ledgers)

    def nodes(self, owner: str) -> list[Pointers]:
        """All nodes of an owner as they are now. Raises `Retry`."""
        return self._capture.read(owner)

    def health(self) -> tuple[bool, int, str]:
        """Whether everything was read and is followed, when last (ms since the epoch), and what is wrong."""
        found = self._capture.health()
        return found.synced, found.complete_ms, found.problem

    def obstacle(self) -> str:
        """Why nothing may be deleted now; empty if it may."""
        health, now_ms = self._capture.health(), self._clock()
        if not health.connected or not health.synced:
            return f"owners of ledgers: {health.problem or 'not in step yet'}"
        if self._ledgers.blind(now_ms):
            return "ZooKeeper: what was observed is too old"
        policy = self._policy()
        if policy.mode != "observe" and not policy.exclusive:
            return "expected deletion.exclusive to be true; found false; set it if no other Pulsar uses this BookKeeper"
        if policy.mode == "observe" or policy.instance == (found := self._ledgers.instance()):
            return ""
        wanted = policy.instance or "as the key deletion.instance, which is empty"
        return f"expected INSTANCEID {wanted}; found {found or 'none'}; set deletion.instance if that is the cluster"

    def delete(self, markers: Sequence[Marker]) -> list[Result]:
        """Delete these ledgers, each if nothing that its marker rests on has changed."""
        client, paths = self._ledgers.session(), self._ledgers.paths
        deleter = Deleter(client, self._paths, paths.ledger, _decoder(paths, self._clock), self._clock)
        orders = [
            DeleteOrder(m.ledger, m.version, m.ctime_ms, Claim(Component.DATA, m.owner), unclosed=True) for m in markers
        ]
        return [Result(o.ledger, o.result, o.detail) for o in deleter.delete(orders)]

    def held(self, asked: Mapping[int, Sequence[str]]) -> dict[int, dict[str, str]]:
        """Which of these bookies do not say that they have no such ledger, and what they say."""
        reasons: dict[tuple[int, str], str] = {}
        client, paths = self._ledgers.session(), self._ledgers.paths
        found = presence(asked, Addresses(client, paths), ASK_S, reasons=reasons)
        silent = {bookie for said in found.values() for bookie, answer in said.items() if answer is Answer.SILENT}
        # One without a cookie was decommissioned: it comes back empty or not at all.
        retired = {bookie for bookie in silent if client.look(f"{paths.cookies}/{bookie}") is None}
        return {
            ledger: {
                bookie: "still serves it" if answer is Answer.HELD else reasons.get((ledger, bookie), "no answer")
                for bookie, answer in said.items() if answer is not Answer.GONE and bookie not in retired
            }
            for ledger, said in found.items()
        }  # fmt: skip


def _decoder(paths: LedgerPaths, clock: Callable[[], int]) -> Callable[[int, bytes, Stat], LedgerRecord]:
    def decode(ledger: int, data: bytes, stat: Stat) -> LedgerRecord:
        where = Where(ledger, paths.ledger(ledger), stat.mzxid, stat.version, stat.ctime, clock())
        return reading.decoded(data, where)

    return decode


def record_of(node: Pointers) -> dict[str, object]:
    """A node as a record of the topic ``owners``."""
    lists = {"ledgers": list(node.ledgers), "dropped": list(node.dropped)}
    return {**node._asdict(), **lists, "status": int(node.status)}


def known(journal: Journal) -> dict[str, int]:
    """What the journal holds, for the capture to compare with: the mzxid of readable nodes, -1 of others."""
    found: dict[str, int] = {}
    for record in journal.read("owners"):
        value, path = record.value, record.key.decode()
        if value is None or value["status"] == Status.GONE:
            found.pop(path, None)
        else:
            found[path] = value["mzxid"] if value["status"] == Status.READABLE else -1
    return found
