"""The contract of a replication connector, independent of the log-storage system.

A **lease** is the permission to copy some partitions for a limited time. A worker opens a `Copier` with it, lets it
copy until the lease ends, and returns what was **acknowledged**: never what was only sent. Positions are offsets of
the source. All values that pass between driver and worker are plain data (mappings, tuples, numbers, texts), so that
they can be pickled, journaled and compared. Every connector runs the conformance suite in `tests/conformance`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from trueup.state.replication.provenance import Refill

ResumeState = Mapping[str, int]
"""State that a copy path needs besides the offset to resume exactly; its names and numbers are opaque to others."""


AT = "@"
"""Separates topic and place. No system permits it in either."""


class LogId(NamedTuple):
    """One ordered log of a topic: a partition of Kafka, a queue of RocketMQ."""

    topic: str
    number: int
    """Identifies the log among those of the topic at one ``place``. Numbers need not start at 0 or be dense."""
    place: str = ""
    """The server of the log, if it is part of the log's name; empty if the log can move between servers."""

    def __str__(self) -> str:
        return f"{self.path}-{self.number}"

    @property
    def path(self) -> str:
        """Topic and place as one text, which no other pair of them has. `log_of` parses it."""
        return f"{self.topic}{AT}{self.place}" if self.place else self.topic

    @property
    def local(self) -> tuple[str, int]:
        """The identity among the logs of its topic."""
        return self.place, self.number


def log_of(path: str, number: int) -> LogId:
    """The log with this `LogId.path` and number."""
    topic, _, place = path.partition(AT)
    return LogId(topic, number, place)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A cluster as one end of a link."""

    name: str
    address: str
    """The address of the cluster, in the syntax of its system."""
    bit: int
    """The position of the cluster in the path of a record, 0 to 31; the same for all links."""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The settings of clients. They may contain secrets and are never shown."""
    system: str = ""
    """The log-storage system of the cluster, which selects the reader and the writer."""
    security: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The settings of login and encryption, in the vocabulary of the system. Secrets may be references."""


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a copy."""

    offset: int = -1
    """All source records before this offset are acknowledged, dropped, filtered, dismissed or lost, see `Progress`.
    -1: nothing was ever copied; the copy starts as the link declares."""
    resume_state: ResumeState = field(default_factory=dict)
    chosen: bool = False
    """Whether an operator set the offset. The copy then starts there whatever the target contains, and counts the
    records already copied as copied."""


class Assignment(NamedTuple):
    """One source partition, its target partition, and the position of its copy."""

    source: LogId
    target: LogId
    position: Position
    start: int
    """The first offset to copy if nothing was ever copied."""
    source_id: str = ""
    """The id of the intended source topic. A topic with another id is not read, whatever its name. Empty: the topic
    that has the name when a lease opens."""
    target_id: str = ""
    """The id of the intended target topic. A topic with another id is not written, whatever its name. Empty: the topic
    that has the name when a lease opens."""
    refill: Refill | None = None
    """Set if the target lost its records and they are copied again; otherwise None."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one lease. The rates are maximum rates over all its partitions; 0: no limit."""

    records_per_s: float = 0.0
    bytes_per_s: float = 0.0
    fetch_bytes: int = 1 << 20
    """Maximum bytes per fetch of a partition."""
    in_flight: int = 4
    """Maximum number of unacknowledged requests per broker, on paths that permit several."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The work of a copier."""

    link: str
    source: Endpoint
    target: Endpoint
    writer_id: int
    """A number, 0 to 65535, that distinguishes the links that write to one cluster."""
    path: str
    assignments: tuple[Assignment, ...]
    forward: bool = True
    """Whether records from a third cluster are also copied (ring, chain, tree). Otherwise only records produced at the
    source are copied (full mesh: every pair has its own link)."""
    limits: Limits = Limits()
    failures: str = "stop"
    """The handling of records that the target refuses: stop, dead-letter or hook."""
    dead_letters: str = ""
    hook: str = ""
    transform: str = ""
    clusters: Mapping[str, int] = field(default_factory=dict)
    """The `Endpoint.bit` of every configured cluster, by name, for the names in the paths of records."""

    @property
    def bits(self) -> dict[str, int]:
        """The bits in ``clusters``, and those of both ends of the link."""
        return {**self.clusters, **{end.name: end.bit for end in (self.source, self.target)}}


class Run(NamedTuple):
    """Consecutive records of the source that are at the target, without gaps."""

    source: int
    """The source offset of the first record."""
    target: int
    """The target offset of the first record."""
    records: int


@dataclass(frozen=True, slots=True)
class Progress:
    """The records acknowledged for one partition since the last call."""

    source: LogId
    target: LogId
    position: Position
    runs: tuple[Run, ...] = ()
    copied: int = 0
    bytes: int = 0
    dropped: int = 0
    """Records not copied because the target, or the cluster that they came from, has them (loop prevention)."""
    skipped: int = 0
    """Records found at the target when the copy resumed."""
    dismissed: int = 0
    """Records that the target refused and that were handled."""
    filtered: int = 0
    """Records dropped by the transform."""
    lost: int = 0
    """Offsets that the source deleted before they were copied."""
    repeated: int = 0
    """Records written a second time, as far as the path can know."""
    foreign: int = 0
    """Offsets of the target partition between the copied ones that this copy did not write: those of other writers,
    other links and control records."""
    foreign_tags: int = 0
    """Source records with headers or properties of a link that no link wrote: an application passed them on. They are
    copied like other records."""
    source_start: int = -1
    """The first offset of the source partition, as last observed; -1: unknown."""
    source_end: int = -1
    """The offset after the last record of the source partition, as last observed; -1: unknown."""
    target_end: int = -1
    """No source record from the position on is at the target before this offset; -1: unknown."""
    lag_ms: int = -1
    """The age of the oldest record not copied; 0: there is none; -1: unknown."""
    path: str = ""
    error: str = ""
    """The error of the partition, empty if there is none. The copy is retried unless it is stopped."""
    stopped: bool = False
    """Whether an operator must change something before the copy can continue."""


class Failure(NamedTuple):
    """A record or batch that the target refused."""

    link: str
    source: LogId
    target: LogId
    offset: int
    records: int
    key: bytes | None
    """The key of the record. None if it has no key, and for a batch."""
    value: bytes | None
    """The value of the record. None if it has no value, and for a batch."""
    reason: str


class Hook(Protocol):
    """`custom_failed_messages` of RIP-45: the operator's code that handles refused records."""

    def __call__(self, failures: Sequence[Failure]) -> Sequence[bool]:
        """Whether each failure was handled. A failure that was not handled stops its partition."""


class Copier(Protocol):
    """One open lease. Not thread-safe; a worker may call `copy` several times before `close`.

    A second copier of the same partitions, in this or another process at any time, may cost time but never duplicates
    or loses a record on paths that guarantee this.
    """

    def copy(self, until_s: float, keep_going: Callable[[], bool] = lambda: True) -> None:
        """Copy until ``time.monotonic()`` reaches ``until_s`` and every sent record is acknowledged or known not to
        be. An error of a partition ends that partition and is reported by `progress`; Retry and Stop of the whole
        link are raised. ``keep_going`` is called at least twice a second meanwhile, and may call `progress`, which does
        not wait for acknowledgements. A result of False ends the copying like ``until_s``."""

    def progress(self) -> list[Progress]:
        """The progress since the last call, one entry for each partition of the lease. Records in flight are never at
        the target before ``target_end``."""

    def close(self) -> None:
        """Close the connections; nothing acknowledged is lost."""


class Connector(Protocol):
    """Opens leases of one system."""

    def open(self, lease: Lease) -> Copier:
        """Connect to both ends and read the position of each partition from the target. Raises `TrueupError`.

        The result of `Copier.progress` right after this may be journaled before anything is copied. For a chosen
        position it should be: the target's own state counts from then on, and a lease that dies repeats nothing.
        """
