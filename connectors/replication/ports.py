"""The ports of replication: the interfaces that a log system implements to be read, written and administered by links.

As in Kafka Connect, a `Reader` is a source and a `Writer` a sink; as in MirrorMaker 2, a `ClusterAdmin` handles
topics, settings, ACLs and consumer groups. In addition their guarantees are explicit: an offset in a progress
report is acknowledged by the target, and an end may lag behind acknowledgements (`Capabilities.ends_lag_s`).

Calls block. They raise `Retry` if a cluster does not respond, `Stop` if it refuses the client, `BadSettings` if
options are invalid. Errors of a single item are in the result for that item.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from trueup.connectors.contract import Endpoint, Lease, LogId
from trueup.connectors.replication.headers import Path
from trueup.connectors.replication.tail import Bounds, Tails
from trueup.state.common.errors import TrueupError
from trueup.state.replication.config_sync import Action, ChangeKind, Right, Setting
from trueup.state.replication.settings import Start

NEVER = -1
"""No offset."""
WITHOUT_MEMBERS = ("", "empty", "dead")
"""States in which a group accepts commits from outside; empty: there is no such group."""


class GroupCommits(dict[LogId, int]):
    """The committed offsets of a group by log.

    A link translates the offset of a group from the cluster where the group runs. The translation does not show that
    the group also ran at the target. Therefore it does not replace an offset in a cluster from which it came: there, an
    operator may have set the offset of the group to an earlier record.
    """

    def __init__(self, offsets: Mapping[LogId, int] = {}, paths: Mapping[LogId, int] = {}) -> None:
        super().__init__(offsets)
        self.paths = paths
        """The bitmaps of the clusters from which links translated the offsets, by log (see
        `state.replication.provenance`). Offsets that no link committed have none."""


Answer = GroupCommits | TrueupError
"""The committed offsets of a group, or the error."""
Refusals = dict[LogId, str] | TrueupError
"""Why a commit was refused, by log; empty if it was not."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The capabilities of a system."""

    topic_ids: bool = True
    """Whether a recreated topic can be distinguished from the former one."""
    ends_lag_s: float = 0.0
    """The maximum time in seconds until an acknowledged record is below the reported end. 0: it is below the end
    immediately, or the call that reports ends waits for it."""
    configs: bool = True
    """Whether topics have settings."""
    rights: bool = True
    """Whether there are ACLs."""
    groups: bool = True
    """Whether groups commit offsets."""
    groups_s: float = 0.0
    """The minimum interval in seconds between two observations of committed offsets, for systems that only return the
    offsets of all groups together."""


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic in the metadata of its cluster."""

    name: str
    logs: tuple[LogId, ...] = ()
    id: str = ""
    """The id of the topic, which changes when the topic is recreated. Empty if the system has no ids."""
    configs: Mapping[str, Setting] = field(default_factory=dict)
    """The effective settings, if they were requested."""
    error: str = ""
    """Why the topic or its settings could not be read. Empty if there was no error."""


class Log(NamedTuple):
    """The bounds of a log."""

    start: int = -1
    """The first offset of the log. -1: unknown."""
    end: int = -1
    """The offset after the last readable record. Its accuracy is `Capabilities.ends_lag_s`. -1: unknown."""
    error: str = ""
    """Why the bounds are unknown. Empty if they are known."""


class Sample(NamedTuple):
    """Properties of the newest records of some logs."""

    per_batch: float = -1.0
    """The average number of records that a source stores together. -1 if no record was found."""
    magic: int = 2
    """The version of the oldest record format found."""
    record_bytes: float = -1.0
    """The average stored size of a record in bytes. -1 if no record was found."""


SHARE = "share"
"""The state of a group without one position per partition (KIP-932): records are acquired one by one."""


class GroupOffsets(Protocol):
    """The consumer groups of one cluster. Safe to use from several threads."""

    bit: int
    """The bit of the cluster in paths (see `state.replication.provenance`)."""

    def states(self) -> Mapping[str, str]:
        """All groups with their states in lower case (`stable`, `empty` ...; `unknown` if not reported, `share` for a
        share group)."""

    def offsets(self, groups: Sequence[str]) -> Mapping[str, Answer]:
        """The committed offsets of each group; empty for one that does not exist."""

    def ids(self, topics: Iterable[str]) -> dict[str, str]:
        """The id of each existing topic of these; empty if the system has no ids."""

    def settings(self, groups: Sequence[str]) -> Mapping[str, Mapping[str, object]]:
        """The settings of existing groups, for `create` at a cluster of the same system; empty if groups have none."""

    def create(self, groups: Mapping[str, Mapping[str, object]]) -> None:
        """Create missing groups with these settings, in systems whose groups must exist before offsets are committed.
        Existing ones are not changed. One that is refused may be an error of its `commit` instead of this call."""

    def commit(self, offsets: Mapping[str, GroupCommits]) -> Mapping[str, Refusals]:
        """Set committed offsets, with their paths. Raises `Unknown` if a response is lost, unless the result says
        so."""


class HeartbeatLog(Protocol):
    """The heartbeats' topic of one cluster."""

    error: str
    """The last error since the last success. Empty if there is none."""
    written_ms: int
    """The ``sent_ms`` of the newest `write` that was acknowledged. 0 if there is none."""

    def prepare(self) -> None:
        """Create the topic if it is missing, and start to read near its end."""

    def write(self, key: bytes, sent_ms: int) -> None:
        """Send a heartbeat without waiting; ``written_ms`` shows its acknowledgement later."""

    def read(self, key: bytes) -> list[int]:
        """The write times of received heartbeats with this key. Waits briefly for the first."""

    def close(self) -> None:
        """Close the connections; heartbeats in flight are lost."""


class ClusterAdmin(Protocol):
    """The administration of one cluster. Safe to use from several threads; not across forks."""

    endpoint: Endpoint
    can: Capabilities

    def close(self) -> None:
        """Close all connections."""

    def cluster_id(self) -> str:
        """The unique id of the cluster, which also differs for a replacement without its data."""

    def names(self) -> list[str]:
        """Names of all visible topics, sorted. Patterns are matched against this list. Internal ones are included,
        except those that `state.common.systems.internal` cannot know."""

    def topics(self, names: Iterable[str], configs: bool = True) -> Mapping[str, TopicState]:
        """Those of ``names`` that exist, with all effective settings unless ``configs`` is false."""

    def logs(self, logs: Iterable[LogId], committed_only: bool = True) -> Mapping[LogId, Log]:
        """Start and end of each log. ``committed_only``: the end is the one for readers of committed records; otherwise
        it is the offset of the next record."""

    def starts(self, logs: Iterable[LogId], start: Start) -> Mapping[LogId, int | TrueupError]:
        """The first offset to copy of each log: `earliest`, `latest`, the first record at or after a `time` (the end
        if there is none), or the committed offset of a `group` (earliest if there is none)."""

    def sizes(self, logs: Iterable[LogId]) -> Mapping[LogId, int]:
        """Bytes of logs, as far as known."""

    def known_settings(self) -> frozenset[str]:
        """Topic settings that the cluster's version supports; empty if unknown."""

    def rights(self) -> list[Right]:
        """ACLs on topics and groups, sorted. Raises `Stop` if there is no authorizer."""

    def group_configs(self, groups: Collection[str]) -> Mapping[str, Sequence[Mapping[str, str]]]:
        """The settings that copies of existing groups must have, on each server in order; empty if groups have none."""

    def apply(self, kind: ChangeKind, actions: Sequence[Action]) -> Sequence[object]:
        """Execute actions of one kind; for each a `TrueupError`, or any other value if it is done. Repeated actions
        change nothing."""

    def groups(self) -> GroupOffsets:
        """Its consumer groups."""

    def heartbeats(self, topic: str) -> HeartbeatLog:
        """Its heartbeats' topic. Raises `BadSettings`."""

    def sample(self, logs: Sequence[LogId]) -> Sample:
        """Properties of the newest records of some of these logs."""

    def notes(self, heartbeat_topic: str) -> Sequence[str]:
        """What `trueup doctor` says about the cluster besides its id, a few words for each."""

    def problems(self) -> Sequence[str]:
        """Problems of the options, one line for each; nothing is connected."""


class Columns(NamedTuple):
    """Records of one log in order, as columns.

    A reader gives the header `provenance.HEADER` only to a record that a link wrote to this log: it is the record's
    path. It gives the header `headers.MARK` to no record, whatever the record itself has.
    """

    offsets: Sequence[int] = ()
    keys: Sequence[bytes | None] = ()
    values: Sequence[bytes | None] = ()
    stamps: Sequence[int] = ()
    """The timestamps in ms since 1970. A timestamp before 1970 is negative."""
    headers: Sequence[Sequence[tuple[str, bytes | None]]] = ()

    def cut(self, start: int, stop: int | None = None) -> "Columns":
        """A range of the rows."""
        at = slice(start, stop)
        return Columns(self.offsets[at], self.keys[at], self.values[at], self.stamps[at], self.headers[at])

    @property
    def size(self) -> int:
        """Bytes of keys and values."""
        return sum(map(len, filter(None, self.keys))) + sum(map(len, filter(None, self.values)))

    def columns(self) -> "Columns":
        """The rows as columns."""
        return self


class Native(Columns):
    """Records that the reader gives in another form: that of their system, for the writer of the same system, or
    `packed.Packed`, for any writer. Only their offsets and timestamps are columns; `columns` converts the others."""

    def tagged(self, path: Path, prefix: bytes) -> "Native":
        """The records with the headers that the pump adds (`replication.headers`), without those that passed the
        target."""
        raise NotImplementedError


class Read(NamedTuple):
    """The result of one poll of a log."""

    records: Columns
    next: int
    """The next offset to read. All records before it that were not given earlier are in ``records``."""
    idle: bool = False
    """Whether the log had no further records."""
    error: TrueupError | None = None
    """Why the log cannot be read further. None if it can."""
    lost: int = 0
    """The number of offsets up to ``next`` that the source deleted before they were read. A result with such offsets
    has no records, so that the offsets are counted once."""
    place: int = -1
    """A number that distinguishes the record before ``next`` from another record with the same offset. It is not
    negative; -1: there is no such number. The next reader of the log finds it in the position (`track.PLACE`)."""
    refused: str = ""
    """Why the last of the records cannot be copied. The value of this record in ``records`` is the value that the
    source has. Empty if the record can be copied."""
    bounds: Bounds = Bounds(-1, -1)
    """The bounds of the log, if the source reported them with the records; otherwise -1 for both."""
    foreign_tags: int = 0
    """The number of records whose tag is not believed, because no link wrote the record to this log. The tag is not
    among the headers of the record."""


class Written(NamedTuple):
    """The result of a write to a log. Without a refusal and without an error, all records are acknowledged."""

    offsets: Sequence[int]
    """The target offsets of the acknowledged records, which are the first records of the write."""
    refused: str = ""
    """Why the target refuses a record: the first record that is not acknowledged if ``alone``, otherwise one of the
    records that the target accepts or refuses together. Empty if it refuses none."""
    error: TrueupError | None = None
    """Why the fate of the records that are not acknowledged is unknown. None if it is known."""
    alone: bool = False
    """Whether the refusal concerns only the first record that is not acknowledged."""


def following(offsets: Sequence[int], first: int, count: int) -> Sequence[int]:
    """Offsets and those of the next batch: a range if there is no gap."""
    added = range(first, first + count)
    if not offsets:
        return added
    if isinstance(offsets, range) and offsets.stop == first:
        return range(offsets.start, added.stop)
    return [*offsets, *added]


class Write(Protocol):
    """Records that are ready to be sent. The results are asked for before the writer sends anything else."""

    def send(self) -> None:
        """Send the records, without waiting for the results where the system permits this."""

    def written(self) -> Mapping[LogId, Written]:
        """Wait for the results. Records that did not fit into one request are also sent here."""


class CopyEnd(Protocol):
    """One end of a copy. Calls raise `Retry` and `Stop` for the whole cluster. Used by one thread."""

    lag_s: float
    """See `Capabilities.ends_lag_s`. A reader returns no record from the end on."""

    def cluster_id(self) -> str:
        """See `ClusterAdmin.cluster_id`."""

    def bounds(self, logs: Iterable[LogId]) -> Mapping[LogId, Bounds | TrueupError]:
        """Start and end of logs, after everything that the cluster's servers have is visible."""

    def unsure(self, logs: Iterable[LogId]) -> Mapping[LogId, TrueupError]:
        """Logs that must not be copied from or to now: `Stop` if the topic is not the intended one,
        otherwise an error that this is unknown. Always empty for systems without topic ids."""

    def close(self) -> None:
        """Close the connections; nothing acknowledged is lost."""


class Reader(CopyEnd, Protocol):
    """Reads logs of one cluster."""

    def seek(self, places: Mapping[LogId, int]) -> None:
        """Read exactly these logs from these offsets on."""

    def poll(self, most: int, wait_s: float) -> Mapping[LogId, Read]:
        """The next records, about ``most`` of all logs together; waits up to ``wait_s`` for the first."""


class Writer(CopyEnd, Protocol):
    """Writes logs of one cluster. The records of a log are written in order and without gaps: if a record exists,
    all earlier ones do. Only records acknowledged under the system's safest setting count as written."""

    def write(self, batches: Mapping[LogId, Columns]) -> Mapping[LogId, Written]:
        """Write to several logs, and wait for the results. `Columns.columns` gives rows of any form as columns."""

    def prepare(self, batches: Mapping[LogId, Columns]) -> Write:
        """The same in steps. Nothing is sent yet, so this may be called while another write is in flight."""

    def tails(self) -> Tails:
        """The reader of the last records that Trueup wrote. Closed with the writer."""

    def logs_of(self, topic: str) -> Sequence[LogId]:
        """Logs of a topic, in order; empty if the topic does not exist."""


@dataclass(frozen=True, slots=True)
class SystemPorts:
    """The reader and the writer of one system."""

    reader: Callable[[Lease], Reader]
    """Creates a reader for a lease. The ``source_id`` of each assignment is the id of the intended topic."""
    writer: Callable[[Lease], Writer]
    """Creates a writer for a lease. The ``target_id`` of each assignment is the id of the intended topic."""
