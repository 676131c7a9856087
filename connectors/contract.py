"""The contract of a replication connector, in words that hold for any log-storage system.

A **lease** is the right to copy some partitions for a while. A worker opens a `Copier` with it, lets it copy until the
lease ends, and hands back what was **acknowledged**: never what was only sent. Positions are the source's own offsets.
All that travels between driver and worker is plain data (mappings, tuples, numbers, texts), so it can be pickled,
journaled and compared. Every connector runs the conformance suite in `tests/conformance`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from trueup.state.replication.provenance import Refill

Carry = Mapping[str, int]
"""What a copy path must remember beside the offset to resume exactly: its own names and numbers, opaque to others."""


AT = "@"
"""Between topic and place. No system allows it in either."""


class LogId(NamedTuple):
    """One ordered log of a topic: a partition of Kafka, a queue of RocketMQ.

    ``number`` tells the logs of a topic apart that stand at one ``place``; numbers need not begin at 0 nor follow each
    other. ``place``: the server that a log belongs to, where that is a part of its name; empty where it may move.
    """

    topic: str
    number: int
    place: str = ""

    def __str__(self) -> str:
        return f"{self.topic}-{self.place}-{self.number}" if self.place else f"{self.topic}-{self.number}"

    @property
    def path(self) -> str:
        """Topic and place in one text, as the journal holds them beside the number. `log_of` reads it."""
        return f"{self.topic}{AT}{self.place}" if self.place else self.topic

    @property
    def local(self) -> tuple[str, int]:
        """What tells it from the other logs of its topic."""
        return self.place, self.number


def log_of(path: str, number: int) -> LogId:
    """The log that was written down as `LogId.path` and number."""
    topic, _, place = path.partition(AT)
    return LogId(topic, number, place)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A cluster as one side of a link. ``bit`` (0 to 31) is its place in the path of a record, for all links alike.

    ``bootstrap``: where it is reached, as its system writes that. ``options`` are the client's settings; they may hold
    secrets and are never shown. ``system``: its kind, by which links find what reads and writes it.
    """

    name: str
    bootstrap: str
    bit: int
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    system: str = ""


@dataclass(frozen=True, slots=True)
class Position:
    """Where a copy stands: all source records before ``offset`` are acknowledged by the target, dropped or dismissed.

    ``offset`` -1: nothing was ever copied; begin where the link says. ``chosen``: a person set the offset; begin there
    whatever the target has, and take its records of ours as counted.
    """

    offset: int = -1
    carry: Carry = field(default_factory=dict)
    chosen: bool = False


class Assignment(NamedTuple):
    """One source partition, the partition it goes to, and where its copy stands. ``start`` is the first offset to
    take when nothing was ever copied. ``source_id`` and ``target_id``: of the topics that are meant. A topic with
    another id is neither read nor written to, whatever its name (empty: whichever has the name when a lease opens).
    ``refill``: the target lost its records, and gets them again."""

    source: LogId
    target: LogId
    position: Position
    start: int
    source_id: str = ""
    target_id: str = ""
    refill: Refill | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """At most this much a second, over all partitions of the lease; 0: no limit. Sizes of one request in bytes."""

    records_per_s: float = 0.0
    bytes_per_s: float = 0.0
    fetch_bytes: int = 1 << 20
    in_flight: int = 4


@dataclass(frozen=True, slots=True)
class Lease:
    """What a worker may copy. ``flow`` (0 to 65535) tells the links that write to one cluster apart.

    ``forward``: records that came from a third cluster go on (ring, chain, tree); without it only records born at
    the source do (full mesh: every pair has its own link). ``failures``: what becomes of a record that the target
    refuses: stop, dead-letter or hook. ``clusters``: the bit of every cluster that is configured, by name; paths that
    are written as names are understood through it.
    """

    link: str
    source: Endpoint
    target: Endpoint
    flow: int
    path: str
    assignments: tuple[Assignment, ...]
    forward: bool = True
    limits: Limits = Limits()
    failures: str = "stop"
    dead_letters: str = ""
    hook: str = ""
    transform: str = ""
    clusters: Mapping[str, int] = field(default_factory=dict)


class Run(NamedTuple):
    """``records`` from offset ``source`` on stand at the target from ``target`` on, without a gap on either side."""

    source: int
    target: int
    records: int


@dataclass(frozen=True, slots=True)
class Progress:
    """What was acknowledged for one partition since it was last asked.

    ``dropped``: records not copied because the target, or whoever it came from, has them (loops prevented).
    ``skipped``: found to be at the target already, on resuming. ``dismissed``: refused by the target and handled.
    ``filtered``: left out by the transform. ``lost``: offsets that the source deleted before they were copied.
    ``repeated``: written a second time, as far as the path can know. ``foreign``: offsets of the target partition
    between ours that this copy did not write: other writers, other links, control records. ``source_start``,
    ``source_end`` and ``target_end`` are offsets as last seen (-1: not known),
    ``lag_ms`` the age of the oldest record not copied (0: none; -1: not known).
    ``error`` with ``stopped``: a person must change something; without: it will be tried again.
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
    source_start: int = -1
    source_end: int = -1
    target_end: int = -1
    lag_ms: int = -1
    path: str = ""
    error: str = ""
    stopped: bool = False


class Failure(NamedTuple):
    """A record, or a batch of them, that the target refused. ``key`` and ``value`` are None for a whole batch."""

    link: str
    source: LogId
    target: LogId
    offset: int
    records: int
    key: bytes | None
    value: bytes | None
    reason: str


class Hook(Protocol):
    """`custom_failed_messages` of RIP-45: what becomes of refused records, decided by the operator's own code."""

    def __call__(self, failures: Sequence[Failure]) -> Sequence[bool]:
        """For each failure whether it was handled. What was not stops its partition."""


class Copier(Protocol):
    """One open lease. Not thread-safe; a worker may let it copy several times before it closes it.

    A second copier of the same partitions, in this or another process, at any moment, costs time and never doubles
    or loses a record on paths that promise so.
    """

    def copy(self, until_s: float, pulse: Callable[[], bool] = lambda: True) -> None:
        """Tail the source until ``time.monotonic()`` reaches ``until_s``, everything sent acknowledged or known not
        to be. Errors of a partition end that partition and are told by `progress`; Retry and Stop of the whole
        link are raised. ``pulse`` is called at least twice a second meanwhile, and may ask for `progress`: nothing
        waits for acknowledgements because of it. False ends the copying as ``until_s`` does."""

    def progress(self) -> list[Progress]:
        """What was acknowledged since the last call, one for each partition of the lease. While records are on their
        way, none of theirs stands at the target before ``target_end``."""

    def close(self) -> None:
        """Let go of connections; nothing acknowledged is lost."""


class Connector(Protocol):
    """Opens leases of one system."""

    def open(self, lease: Lease) -> Copier:
        """Connect both ends and ask the target where each partition stands. Raises our errors.

        What `Copier.progress` says right after this may be journaled before anything is copied. For a chosen position
        it ought to be: the target's own state then counts, and a lease that dies repeats nothing.
        """
