"""The BookKeeper cluster of one application: capture into the journal, current reads, guarded deletions."""

import logging
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

from trueup.connectors.bookkeeper.bookie import replica_check
from trueup.connectors.bookkeeper.bookie.admin_calls import Calls
from trueup.connectors.bookkeeper.bookie.bulk_reads import ReadConnection
from trueup.connectors.bookkeeper.bookie.ledger_access import readable
from trueup.connectors.bookkeeper.bookie.security import bookie_tls
from trueup.connectors.bookkeeper.deletion.presence import PresenceAnswer, presence
from trueup.connectors.bookkeeper.deletion.remove import RemovalOrder, Removed, remove
from trueup.connectors.bookkeeper.metadata import bulk, queries
from trueup.connectors.bookkeeper.metadata.addresses import Addresses
from trueup.connectors.bookkeeper.metadata.capture import BookKeeperCapture, CaptureHealth
from trueup.connectors.bookkeeper.metadata.layout import BookKeeperPaths
from trueup.connectors.bookkeeper.metadata.namespaces import namespaces
from trueup.connectors.bookkeeper.metadata.rack_source import RackHealth, RackSource
from trueup.connectors.bookkeeper.metadata.racks import PulsarRacks, RackMap, Script, StaticRacks, Unmapped
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.connectors.zookeeper.fence import Fence
from trueup.connectors.zookeeper.session import client_of
from trueup.state.bookkeeper.ledgers import EMPTY, Column, Ledgers, concat
from trueup.state.bookkeeper.marks import MarkRows
from trueup.state.bookkeeper.observations import LedgerRecord, Observation
from trueup.state.common.errors import Refused, Retry, TrueupError
from trueup.state.placement.damage import ReplicaRange, ReplicaRead
from trueup.state.placement.settings import PlacementSettings
from trueup.state.settings import settings
from trueup.streams.bookkeeper import selection
from trueup.streams.bookkeeper.codec import ledger_bodies
from trueup.streams.bookkeeper.keeper import TopologyKeeper
from trueup.streams.bookkeeper.metrics import ZooKeeperMetrics
from trueup.streams.bookkeeper.reached import ReachedWriter, known
from trueup.streams.bookkeeper.selection import LedgerSelection
from trueup.streams.bookkeeper.topics import LEDGERS
from trueup.streams.config.live import Live, LiveSection
from trueup.streams.journal.journal import Journal
from trueup.streams.runtime.context import Context
from trueup.streams.runtime.supervisor import Supervisor

log = logging.getLogger(__name__)
Published = bulk.LedgerBatch | Iterable[Observation]
ASK_S = 5.0  # timeout of a request to a bookie
TICK_S, RACKS_S, NAMESPACES_S = 0.2, 0.5, 10.0
SHOWN = 200


class BookKeeper:
    """A resource of the streams; `bookkeeper` makes it. Safe to use from several threads after `start`. ``root``: the
    znode above all ledgers; ``reached``: the highest zxid that earlier runs observed; ``fence``: guards all changes but
    the Auditor's vote; ``published``: the functions to call with each group of observations that the journal has
    acknowledged."""

    def __init__(
        self,
        live: Live,
        journal: Journal,
        keeper: TopologyKeeper,
        metrics: ZooKeeperMetrics,
        clock: Callable[[], int],
        supervisor: Supervisor,
        fence: Fence | None = None,
    ) -> None:
        self._supervisor, self._fence = supervisor, fence
        self._live, self.keeper, self._metrics, self._clock = live, keeper, metrics, clock
        self._policy = LiveSection.of(live, PlacementSettings)
        self.root = live.now.cluster.ledgers_root
        self._journal, self.published = journal, list[Callable[[Published], None]]()
        self._racks = self._rack_map(live.now.racks)
        held = known(journal, clock())
        self.reached, self._reached = held.zxid, ReachedWriter(journal, clock)
        self._capture = BookKeeperCapture(self.connect, self.root, self._racks, self._publish, keeper.seen, held, clock)
        self._tls()  # an unusable certificate ends the start
        self._lock = threading.Lock()
        self._client: ZooKeeperClient | None = None

    def _publish(self, observations: Published) -> None:
        """Write observations to the journal, then tell the streams."""
        if isinstance(observations, bulk.LedgerBatch):
            ids = bulk.keys(observations.ledgers.ledger)
            self._journal.send([(LEDGERS, ids, ledger_bodies(observations))])
        else:
            observations = list(observations)
            self._journal.put(observations)
        for published in self.published:
            published(observations)

    def _rack_map(self, racks: settings.RackSettings) -> RackMap:
        mapping = rack_map(racks)
        if not isinstance(mapping, Script):
            return mapping
        return RackSource(mapping, racks.refresh_s * 1000, lambda: self._capture.racks_changed(), self._clock)

    def connect(self) -> ZooKeeperClient:
        """A client of the cluster's ZooKeeper, not opened yet."""
        client = client_of(self._live.now.cluster)
        client.add_listener(self._metrics.session())
        return client

    def session(self) -> ZooKeeperClient:
        """A session for changes and queries, separate from the session of the capture. Raises `Retry`."""
        with self._lock:
            if self._client is None or self._client.ended:
                self._client = self.connect().open()
                self._client.fence = self._fence
            return self._client

    def start(self) -> None:
        """Start observing ZooKeeper and the rack map."""
        racks = self._racks
        if isinstance(racks, RackSource):
            self._supervisor.loop("racks", lambda: racks.ask(RACKS_S))
        self._supervisor.loop("bookkeeper", self._tick, TICK_S)
        self._capture.start(self._supervisor.run)
        self._supervisor.loop("namespaces", self._read_namespaces, NAMESPACES_S)

    def end(self) -> None:
        """Stop observing, and therefore changing the cluster."""
        self._capture.close()

    def close(self) -> None:
        """Close all sessions."""
        self._capture.close()
        with self._lock:
            if self._client is not None:
                self._client.shut()

    def _tick(self) -> None:
        """Settle the bookies whose time has come, and write down how far the cluster was observed."""
        self._reached.observe(self._capture.health())
        self.keeper.tick()

    def _read_namespaces(self) -> None:
        """Read the isolation groups of namespaces, which send no event to this session. Raises `Retry`, `Forbidden`."""
        if self._policy.current.policy == "isolation":
            self.keeper.group(namespaces(self.session()))

    @property
    def paths(self) -> BookKeeperPaths:
        """Paths of this cluster's znodes."""
        return self._capture.paths

    def unlike(self, instance: str) -> str:
        """Why this is not the cluster with this INSTANCEID; empty if it is."""
        found = queries.instance(self.session(), self.root)
        if found == instance != "":
            return ""
        wanted = instance or "as the key deletion.instance, which is empty"
        return (
            f"expected INSTANCEID {wanted}; found {found or 'none'}; set deletion.instance if this is the right cluster"
        )

    @property
    def racks(self) -> RackHealth | None:
        """Health of a rack map that runs a script; None for other rack maps."""
        return self._racks.health() if isinstance(self._racks, RackSource) else None

    def health(self) -> CaptureHealth:
        """Health of the capture."""
        return self._capture.health()

    def marks(self) -> MarkRows | None:
        """All marks and locks as observed; None until they were read."""
        return self._capture.marks

    def blind(self, now_ms: int) -> bool:
        """Whether the view is too old for verdicts."""
        age_ms = self._capture.health().age_ms(now_ms)
        return age_ms is None or age_ms > self._policy.current.stale_s * 1000

    def problems(self) -> list[str]:
        """Invalid znodes of BookKeeper, which are skipped, and those that may not be read."""
        health = self._capture.health()
        problems = [
            f"expected the id of a ledger or mark, below 2^63; found {path[:SHOWN]}; delete this znode"
            for path in health.invalid_paths
        ]
        return problems + hidden(health)

    def unseen(self) -> str:
        """Why the view of the cluster is not current; empty if it is."""
        health = self._capture.health()
        if not health.connected or not health.synced:
            return f"ZooKeeper: {health.problem or 'not synchronized yet'}"
        if self.blind(self._clock()):
            return "ZooKeeper: the last observation is too old"
        return f"changes in ZooKeeper cannot be followed: {self._capture.defect}" if self._capture.defect else ""

    def read(self, ledgers: Sequence[int]) -> Ledgers:
        """Current rows of these ledgers, without those that do not exist. Raises `Forbidden`."""
        return self._capture.read(ledgers) if len(ledgers) else EMPTY

    def readable(self, ledgers: Sequence[int]) -> Ledgers:
        """Current rows of these ledgers, without those that do not exist or may not be read."""
        return self._capture.readable(ledgers) if len(ledgers) else EMPTY

    def outdated(self) -> Column:
        """The ids of ledgers that were read earlier and may not be read now: int64."""
        return self._capture.outdated

    def absent(self, ledgers: Sequence[int]) -> set[int]:
        """Those of these ledgers that do not exist according to an up-to-date server. Raises `Retry`."""
        return queries.absent(self.session(), self._capture.paths, ledgers)

    def first(self, limit: int) -> Ledgers:
        """Current rows of the first ``limit`` ledgers of the cluster."""
        client, paths, left, parts = self.session(), self._capture.paths, limit, []
        for listing in queries.ledgers_of(client, paths):
            for ids, nodes in queries.read(client, paths, listing.ids[:left], listing.names[:left]):
                parts.append(bulk.decode(ids, nodes, paths.ledger, self._clock()).ledgers)
            left -= len(listing.ids)
            if left <= 0:
                break
        return concat(parts)

    def search(self, limit: int, where: LedgerSelection) -> tuple[Ledgers, int]:
        """Current rows of the first ``limit`` ledgers of the cluster that match, and the number of all that do. Raises
        `Refused` if the cluster has too many ledgers to read."""
        selection.not_too_many(self.health().ledgers)
        return selection.search(self.session(), self._capture.paths, limit, where)

    def select(self, ledgers: Column, where: LedgerSelection) -> Column:
        """Those of these ledgers that match, from current reads, in ascending order. Raises `Refused` for too many."""
        selection.not_too_many(len(ledgers))
        return selection.select(self.session(), self._capture.paths, ledgers, where)

    def remove(self, orders: Sequence[RemovalOrder]) -> list[Removed]:
        """Delete these ledgers, each if it has not changed since its order. Raises `Retry` if none was tried."""
        return remove(self.session(), self._capture.paths, orders, self._clock())

    def _tls(self) -> ssl.SSLContext | None:
        """TLS of bookies. Certificates are read anew, as they may have been replaced. Raises `BadSettings`."""
        return bookie_tls(self._live.now.cluster.bookies)

    def held(self, asked: Mapping[int, Sequence[str]]) -> dict[int, dict[str, str]]:
        """Bookies that have not confirmed that they do not have the ledger, each with its response."""
        reasons: dict[tuple[int, str], str] = {}
        client, paths = self.session(), self._capture.paths
        addresses = Addresses(client, paths)
        by_ledger = presence(asked, addresses, ASK_S, reasons=reasons, tls=self._tls())
        silent = {
            bookie
            for answers in by_ledger.values()
            for bookie, answer in answers.items()
            if answer is PresenceAnswer.SILENT
        }
        # A bookie without a cookie was decommissioned: if it returns, it is empty.
        retired = {bookie for bookie in silent - addresses.hidden if not client.present(f"{paths.cookies}/{bookie}")}
        return {
            ledger: {
                bookie: "still has it"
                if answer is PresenceAnswer.HELD
                else reasons.get((ledger, bookie), "no response")
                for bookie, answer in answers.items()
                if answer is not PresenceAnswer.GONE and bookie not in retired
            }
            for ledger, answers in by_ledger.items()
        }

    def replica(self, replica: ReplicaRange) -> ReplicaRead:
        """Read entries of a ledger from one bookie. Raises `Refused` if it should not hold them, `Retry` if it does not
        respond, `Stop`."""
        client = self.session()
        paths = queries.paths_of(client, self.root)  # the capture may not know the layout yet
        record, digest = readable(client, paths, replica.ledger)
        address = Addresses(client, paths)(replica.bookie)
        if address is None:
            raise Retry(f"bookie {replica.bookie} to be registered", "no registration", "it is read again later")
        with ReadConnection(replica.bookie, address, ASK_S, self._tls()) as reads:
            return replica_check.check(record, digest, reads, replica)

    def record(self, ledger: int) -> LedgerRecord | None:
        """Current metadata of one ledger; None if it does not exist."""
        described = self._capture.read_one(ledger)
        return None if described is None else described[0]

    def used(self) -> dict[str, float]:
        """The share of their disks that the writable bookies use, without those that do not respond. Raises `Retry`."""
        client, shares = self.session(), dict[str, float]()
        addresses, tls = Addresses(client, self.paths), self._tls()
        for bookie in queries.registered(client, self.paths).writable:
            try:
                address = addresses(bookie)
                if address is not None:
                    with Calls(bookie, address, ASK_S, tls) as calls:
                        room = calls.room()
                    shares[bookie] = 1 - room.free / room.total if room.total > 0 else 1.0
            except TrueupError as error:
                log.warning("usage not read", extra={"bookie": bookie, "problem": str(error)})
        return shares

    def describe(self, ledger: int) -> tuple[LedgerRecord, Ledgers]:
        """Current metadata of one ledger, as record and as row. Raises `Refused` if it does not exist."""
        record = self.record(ledger)
        if record is None:
            raise Refused(f"ledger {ledger}", "no such ledger", "see `trueup get ledgers --all`")
        return record, self.read([ledger])


def bookkeeper(context: Context) -> BookKeeper:
    """The cluster that the settings name, with its bookies as the journal has them. Raises `Retry`, `BadSettings`."""
    live, journal, clock = context.live, context.journal, context.clock
    keeper = TopologyKeeper(journal, live, clock)
    keeper.load()
    fence = context.fence() if context.fence else None
    return BookKeeper(live, journal, keeper, context.metrics.of(ZooKeeperMetrics), clock, context.supervisor, fence)


def hidden(health: CaptureHealth) -> list[str]:
    """The problem of marks, locks and registrations that may not be read; none if there are none."""
    if not health.hidden_nodes:
        return []
    found = f"none for {health.hidden_nodes}, such as {health.hidden_node}"
    todo = (
        "grant READ to this identity in their ACLs; these marks and locks count, and these bookies have no known host"
    )
    return [f"expected permission to read all marks, locks and registrations; found {found}; {todo}"]


def rack_map(racks: settings.RackSettings) -> RackMap:
    """The rack map that the settings name."""
    if racks.source == "script":
        return Script(racks.script)
    if racks.source == "static":
        return StaticRacks(racks.table)
    return PulsarRacks() if racks.source == "pulsar" else Unmapped()
