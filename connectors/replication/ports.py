"""The ports of replication: what a log system implements so that links can read it, write it and look after it.

As Kafka Connect divides it, a `Reader` is a source and a `Writer` a sink; as in MirrorMaker 2, a `ClusterAdmin` knows
topics, settings, rights and consumer groups. Beyond both, each says what its answers are worth: an offset in a progress
report is one that the target acknowledged, and an end may lag what was acknowledged (`Capabilities.ends_lag_s`).

Calls block. They raise `Retry` when a cluster does not answer, `Stop` when it refuses who we are, `BadSettings` when
options cannot be used. What concerns one thing alone is the answer for that thing.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from trueup.connectors.contract import Endpoint, Lease, LogId
from trueup.connectors.replication.tail import Bounds, Tails
from trueup.state.common.errors import TrueupError
from trueup.state.replication.config_sync import Action, Kind, Right, Setting
from trueup.state.replication.settings import Start

NEVER = -1
"""No offset."""
WITHOUT_MEMBERS = ("", "empty", "dead")
"""States in which a group takes offsets from outside; empty: there is no such group."""
Answer = dict[LogId, int] | TrueupError
"""What a group committed in each log, or why that is not known."""
Refusals = dict[LogId, str] | TrueupError
"""Why a log was refused, by log; empty for those that were set."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a system can do. ``topic_ids``: a topic that was made anew is told from the former one. ``ends_lag_s``: an
    acknowledged record stands below the end that the system tells after so many seconds at the latest; 0: at once.
    ``configs``, ``rights``, ``groups``: topics have settings, there are access rules, groups commit offsets."""

    topic_ids: bool = True
    ends_lag_s: float = 0.0
    configs: bool = True
    rights: bool = True
    groups: bool = True


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as its cluster tells it. ``id`` changes when it is deleted and made anew (empty: the system has none).
    ``configs`` are those in force, when they were asked for. ``error``: why nothing else is known."""

    name: str
    logs: tuple[LogId, ...] = ()
    id: str = ""
    configs: Mapping[str, Setting] = field(default_factory=dict)
    error: str = ""


class Log(NamedTuple):
    """First offset of a log and the one after its last readable record; -1 and ``error`` when not known. How far the
    end may be trusted is told by `Capabilities.ends_lag_s`."""

    start: int = -1
    end: int = -1
    error: str = ""


class Sample(NamedTuple):
    """``per_batch``: records that a source stores together on average, ``record_bytes``: of one of them as it is
    stored; -1 when none was found. ``magic``: version of the oldest record format seen."""

    per_batch: float = -1.0
    magic: int = 2
    record_bytes: float = -1.0


class GroupOffsets(Protocol):
    """The consumer groups of one cluster. Safe to use from several threads."""

    def states(self) -> Mapping[str, str]:
        """All groups with their states in small letters (`stable`, `empty` ...; `unknown` where it is not told)."""

    def offsets(self, groups: Sequence[str]) -> Mapping[str, Answer]:
        """What each group committed; nothing for one that does not exist."""

    def ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Id of each of these topics that the cluster has; empty where there are no ids."""

    def commit(self, offsets: Mapping[str, Mapping[LogId, int]]) -> Mapping[str, Refusals]:
        """Set what groups committed. Raises `Unknown` when there is no answer to one of them."""


class HeartbeatLog(Protocol):
    """The heartbeats' topic of one cluster. Errors are kept in ``error`` and forgotten when it does well again.

    ``written_ms``: the newest `write` that was acknowledged.
    """

    error: str
    written_ms: int

    def prepare(self) -> None:
        """Make the topic if it is missing, and begin to read near its end."""

    def write(self, key: bytes, sent_ms: int) -> None:
        """Send one; whether it was acknowledged is told by ``written_ms`` later."""

    def read(self, key: bytes) -> list[int]:
        """When those of this key that came were written. Waits a moment for the first."""

    def close(self) -> None:
        """Let go of connections; what is under way is lost."""


class ClusterAdmin(Protocol):
    """Everything of one cluster but its records. Safe to use from several threads; not across forks."""

    endpoint: Endpoint
    can: Capabilities

    def close(self) -> None:
        """Let go of all connections."""

    def cluster_id(self) -> str:
        """What tells the cluster from every other, also from one that takes its place without its data."""

    def names(self) -> list[str]:
        """Names of all topics that we may see, internal ones too, sorted. The list to match patterns against."""

    def topics(self, names: Iterable[str], configs: bool = True) -> Mapping[str, TopicState]:
        """Those of ``names`` that exist, with all settings in force unless ``configs`` is false."""

    def logs(self, logs: Iterable[LogId], committed_only: bool = True) -> Mapping[LogId, Log]:
        """Where each log starts and ends. ``committed_only``: as for readers of committed records; else where the next
        record will stand."""

    def starts(self, logs: Iterable[LogId], start: Start) -> Mapping[LogId, int | TrueupError]:
        """The first offset to copy of each log: `earliest`, `latest`, the first record at or after a `time` (the end
        if there is none), or what a `group` committed (earliest where it never did)."""

    def sizes(self, logs: Iterable[LogId]) -> Mapping[LogId, int]:
        """Bytes of logs; of those that are known."""

    def known_settings(self) -> frozenset[str]:
        """Settings of topics that the cluster's version knows; empty when that cannot be told."""

    def rights(self) -> list[Right]:
        """Rights on topics and groups, sorted. Raises `Stop` where nothing checks rights."""

    def apply(self, kind: Kind, actions: Sequence[Action]) -> Sequence[object]:
        """Do actions of one kind; for each an error of ours, or anything else when it is done. Done twice they change
        nothing."""

    def groups(self) -> GroupOffsets:
        """Its consumer groups."""

    def heartbeats(self, topic: str) -> HeartbeatLog:
        """Its topic of heartbeats. Raises `BadSettings`."""

    def sample(self, logs: Sequence[LogId]) -> Sample:
        """What the newest records of some of these logs are like."""

    def unfit(self) -> Sequence[str]:
        """Options that the path of whole batches cannot honour, one line for each."""

    def problems(self) -> Sequence[str]:
        """What makes the options useless, one line for each; nothing is connected to."""


class Columns(NamedTuple):
    """Records of one log in order, a column each; timestamps in ms since 1970 (-1: none)."""

    offsets: Sequence[int] = ()
    keys: Sequence[bytes | None] = ()
    values: Sequence[bytes | None] = ()
    stamps: Sequence[int] = ()
    headers: Sequence[Sequence[tuple[str, bytes | None]]] = ()

    def cut(self, start: int, stop: int | None = None) -> "Columns":
        """Some of the rows."""
        at = slice(start, stop)
        return Columns(self.offsets[at], self.keys[at], self.values[at], self.stamps[at], self.headers[at])


class Read(NamedTuple):
    """What one poll brought of a log. ``next``: the offset to read on at, all before it is in ``records`` or no record;
    ``idle``: there was nothing more; ``error``: why it cannot be read on."""

    records: Columns
    next: int
    idle: bool = False
    error: TrueupError | None = None


class Written(NamedTuple):
    """What became of records that were to be written to a log. ``offsets``: of those that were acknowledged, which are
    the first ones. Of the others: ``refused`` says why the target will not take the first of them, or one of those that
    it takes together, as things are; ``error`` says why it is not known what became of them. Neither: all are there."""

    offsets: Sequence[int]
    refused: str = ""
    error: TrueupError | None = None


class End(Protocol):
    """One end of the records' way. Calls raise `Retry` and `Stop` for the whole cluster. Used by one thread."""

    lag_s: float
    """See `Capabilities.ends_lag_s`. A reader sees no record from the end on."""

    def cluster_id(self) -> str:
        """See `ClusterAdmin.cluster_id`."""

    def bounds(self, logs: Iterable[LogId]) -> Mapping[LogId, Bounds | TrueupError]:
        """Where logs start and end, once all is shown that the cluster's servers have."""

    def unsure(self, logs: Iterable[LogId]) -> Mapping[LogId, TrueupError]:
        """Logs that must not be copied from or to at this moment: `Stop` where the topic is not the one that is meant,
        else that this cannot be told. Always empty where topics have no ids."""

    def close(self) -> None:
        """Let go of connections; nothing acknowledged is lost."""


class Reader(End, Protocol):
    """Reads logs of one cluster."""

    def seek(self, places: Mapping[LogId, int]) -> None:
        """Read these logs, and no others, from these offsets on."""

    def poll(self, most: int, wait_s: float) -> Mapping[LogId, Read]:
        """The next records, about ``most`` of all logs together; waits so long for the first."""


class Writer(End, Protocol):
    """Writes logs of one cluster. The records of a log are written in order and without a gap: when one stands there,
    all before it do. Only what is acknowledged as the system's safest setting says counts as written."""

    def write(self, batches: Mapping[LogId, Columns]) -> Mapping[LogId, Written]:
        """Write to logs at once, and wait for what becomes of it."""

    def tails(self) -> Tails:
        """Reads what stands last of ours. Closed with the writer."""

    def logs_of(self, topic: str) -> Sequence[LogId]:
        """Logs of a topic, in order; none when there is no such topic."""


@dataclass(frozen=True, slots=True)
class Medium:
    """How records of one system are read and written. Each of ``reader`` and ``writer`` makes one for a lease, whose
    ``source_id`` and ``target_id`` tell the topics that are meant."""

    reader: Callable[[Lease], Reader]
    writer: Callable[[Lease], Writer]
