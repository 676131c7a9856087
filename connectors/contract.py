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
    """One ordered log of a topic: a partition of Kafka, a queue of RocketMQ.

    ``number`` identifies a log among those of a topic at one ``place``; numbers need not start at 0 or be dense.
    ``place``: the server of a log, if it is part of its name; empty if the log can move between servers.
    """

    topic: str
    number: int
    place: str = ""

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
    """A cluster as one end of a link. ``bit`` (0 to 31): its position in the path of a record, for all links.

    ``address``: in the syntax of its system. ``options`` are client settings; they may contain
    secrets and are never shown. ``system``: selects the reader and the writer. ``security``: login and encryption, in
    the vocabulary of its system; secrets may be references.
    """

    name: str
    address: str
    bit: int
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    system: str = ""
    security: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a copy: all source records before ``offset`` are acknowledged, dropped or dismissed.

    ``offset`` -1: nothing was ever copied; start as the link declares. ``chosen``: an operator set the offset; start
    there whatever the target contains, and count the records already copied as copied.
    """

    offset: int = -1
    resume_state: ResumeState = field(default_factory=dict)
    chosen: bool = False


class Assignment(NamedTuple):
    """One source partition, its target partition, and the position of its copy. ``start`` is the first offset to
    copy if nothing was ever copied. ``source_id`` and ``target_id``: ids of the intended topics. A topic with
    another id is neither read nor written, whatever its name (empty: the topic that has the name when a lease opens).
    ``refill``: the target lost its records, and they are copied again."""

    source: LogId
    target: LogId
    position: Position
    start: int
    source_id: str = ""
    target_id: str = ""
    refill: Refill | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """Maximum rates per second over all partitions of the lease (0: no limit), and sizes of one request in bytes."""

    records_per_s: float = 0.0
    bytes_per_s: float = 0.0
    fetch_bytes: int = 1 << 20
    in_flight: int = 4


@dataclass(frozen=True, slots=True)
class Lease:
    """The work of a copier. ``writer_id`` (0 to 65535) distinguishes the links that write to one cluster.

    ``forward``: records from a third cluster are copied, too (ring, chain, tree); without it only records produced at
    the source are (full mesh: every pair has its own link). ``failures``: handling of records that the target
    refuses: stop, dead-letter or hook. ``clusters``: bits of all configured clusters by name, for the names in paths.
    """

    link: str
    source: Endpoint
    target: Endpoint
    writer_id: int
    path: str
    assignments: tuple[Assignment, ...]
    forward: bool = True
    limits: Limits = Limits()
    failures: str = "stop"
    dead_letters: str = ""
    hook: str = ""
    transform: str = ""
    clusters: Mapping[str, int] = field(default_factory=dict)

    @property
    def bits(self) -> dict[str, int]:
        """``clusters``, with both ends."""
        return {**self.clusters, **{end.name: end.bit for end in (self.source, self.target)}}


class Run(NamedTuple):
    """``records`` records from offset ``source`` are at the target from offset ``target``, without gaps."""

    source: int
    target: int
    records: int


@dataclass(frozen=True, slots=True)
class Progress:
    """The records acknowledged for one partition since the last call.

    ``dropped``: records not copied because the target, or the cluster they came from, has them (loop prevention).
    ``skipped``: found at the target when resuming. ``dismissed``: refused by the target and handled.
    ``filtered``: dropped by the transform. ``lost``: offsets that the source deleted before they were copied.
    ``repeated``: written a second time, as far as the path can know. ``foreign``: offsets of the target partition
    between the copied ones that this copy did not write: other writers, other links, control records.
    ``foreign_tags``: source records with headers or properties of a link that no link wrote: an application passed them
    on. They are copied like other records.
    ``source_start``, ``source_end`` and ``target_end`` are the last observed offsets (-1: unknown),
    ``lag_ms`` the age of the oldest record not copied (0: none; -1: unknown).
    ``error`` with ``stopped``: an operator must change something; without: the copy is retried.
    """

    source: LogId
    target: LogId
    position: Position
    runs: tuple[Run, ...] = ()
    copied: int = 0
    bytes: int = 0
    dropped: int = 0
    skipped: int = 0
    dismissed: int = 0
    filtered: int = 0
    lost: int = 0
    repeated: int = 0
    foreign: int = 0
    foreign_tags: int = 0
    source_start: int = -1
    source_end: int = -1
    target_end: int = -1
    lag_ms: int = -1
    path: str = ""
    error: str = ""
    stopped: bool = False


class Failure(NamedTuple):
    """A record or batch that the target refused. ``key`` and ``value`` are None for a batch."""

    link: str
    source: LogId
    target: LogId
    offset: int
    records: int
    key: bytes | None
    value: bytes | None
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
