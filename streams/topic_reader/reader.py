"""Reads topics without a broker: their messages in order, each with the tier that served it."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any, NamedTuple, TypeVar

from trueup.connectors.bookkeeper.bookie.reader import Damage
from trueup.connectors.pulsar.layout import PulsarPaths
from trueup.connectors.pulsar.protocol.chunks import Chunks
from trueup.connectors.pulsar.protocol.entry import EntryLayout, entry_of, layout_of
from trueup.connectors.pulsar.protocol.message import Message, messages_of
from trueup.connectors.pulsar.topics import PulsarTopic, TopicLog, log_of
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.state.common.errors import BadBytes, Stop, TrueupError
from trueup.state.read_priority.positions import EntryPosition, LedgerRange, parts
from trueup.state.read_priority.tiers import LedgerInfo, ReadPriority, Tier
from trueup.streams.topic_reader import fallback
from trueup.streams.topic_reader.fallback import Fallback, LostEntries, ServedEntry
from trueup.streams.topic_reader.look_back import JoinedChunks
from trueup.streams.topic_reader.sources import LedgerSource

T = TypeVar("T")
SKEW_MS = 600_000
"""Clocks of producers may be ahead of those of brokers by this: a ledger is skipped by its time of closing only if it
was closed that much before the first time to read."""


class Range(NamedTuple):
    """What to read of each topic."""

    first: EntryPosition | None = None
    """The first position, included; None if there is no limit."""
    last: EntryPosition | None = None
    """The last position, included; None if there is no limit."""
    from_ms: int | None = None
    """The first publish time, included, in ms since the epoch; None if there is no limit."""
    to_ms: int | None = None
    """The publish time at which the range ends, excluded, in ms since the epoch; None if there is no limit."""


class TopicMessage(NamedTuple):
    """A message and where it is from."""

    topic: PulsarTopic
    message: Message
    tier: Tier


class ReadOptions(NamedTuple):
    """The options of a read."""

    priority: ReadPriority = ReadPriority.BOOKKEEPER_FIRST
    skip_missing: bool = False
    """Whether a read continues behind entries that no tier has and ledgers that are trimmed meanwhile. Otherwise
    these are an error."""
    transactions: bool = False
    """Whether messages of transactions are included, committed or not. Otherwise such a message is an error."""


@dataclass
class ReadReport:
    """What happened during reads."""

    entries: Counter[Tier] = field(default_factory=Counter)
    """The number of entries that were read from each tier."""
    messages: int = 0
    markers: int = 0
    """The number of markers: entries of brokers without a message of a user."""
    chunks: int = 0
    """The number of dropped chunks of incomplete messages."""
    fallbacks: dict[tuple[int, Tier], Fallback] = field(default_factory=dict)
    """The first fallback per ledger and per tier that could not serve an entry."""
    damages: dict[tuple[int, str], Damage] = field(default_factory=dict)
    """The first damaged or missing replica per ledger and bookie."""
    damaged_last: dict[tuple[int, str], int] = field(default_factory=dict)
    """The last entry with a damaged or missing replica, per ledger and bookie."""
    missing: Counter[int] = field(default_factory=Counter)
    """The number of entries that no tier had, by ledger."""
    trimmed: list[int] = field(default_factory=list)
    """The ledgers that left the topic during the read."""

    def fell_back(self, failure: Fallback) -> None:
        """Note a tier that could not serve an entry."""
        self.fallbacks.setdefault((failure.ledger, failure.tier), failure)

    def damaged(self, damage: Damage) -> None:
        """Note a missing or damaged replica of an entry that another bookie served."""
        replica = damage.ledger, damage.bookie
        self.damages.setdefault(replica, damage)
        self.damaged_last[replica] = max(damage.entry, self.damaged_last.get(replica, 0))


class StoredEntry(NamedTuple):
    """The bytes of an entry with a valid checksum, or without one."""

    data: bytes
    layout: EntryLayout


class TopicReader:
    """Reads topics of one cluster. ``sources``: the function that returns the tiers of a topic for the name of its
    managed ledger."""

    def __init__(
        self,
        client: ZooKeeperClient,
        paths: PulsarPaths,
        sources: Callable[[str], dict[Tier, LedgerSource]],
        options: ReadOptions,
        report: ReadReport,
    ) -> None:
        self._client, self._paths, self._sources = client, paths, sources
        self._options, self.report = options, report
        self._owners = dict[PulsarTopic, PulsarTopic]()

    def read(self, topic: PulsarTopic, range_: Range) -> Iterator[TopicMessage]:
        """The messages of a topic in this range, in order, up to the last confirmed one at the time of the read. Raises
        `Refused` if the topic does not exist, `LostEntries`, `Retry`, `BadBytes`, and `Stop` for transactions, for
        entries whose only tiers refuse access, and for ledgers that are trimmed meanwhile, unless these are skipped."""
        ledgers = self.ledgers(topic)
        ranges = parts(since(ledgers, range_.from_ms), range_.first, range_.last)
        start = EntryPosition(ranges[0].info.ledger, ranges[0].first) if ranges else EntryPosition(0, 0)
        chunks = JoinedChunks(Chunks(str(topic)), start, ledgers, partial(self.entries, topic), self.report)
        for part in ranges:
            for served in self.entries(topic, part):
                for message in served.content:
                    whole = chunks.add(message)
                    if whole is not None and within(range_, whole.publish_ms):
                        self.report.messages += 1
                        yield TopicMessage(topic, whole, served.tier)
            if part.info.ledger in self.report.trimmed and not self._options.skip_missing:
                raise was_trimmed(f"ledger {part.info.ledger} in {topic}")
        self.report.chunks += chunks.dropped

    def ledgers(self, topic: PulsarTopic) -> list[LedgerInfo]:
        """The ledgers of one topic or partition, by id. Raises `Refused` if it does not exist, `Retry`, `BadBytes`."""
        return self._log(topic).ledgers

    def _log(self, topic: PulsarTopic) -> TopicLog:
        log = log_of(self._client, self._paths, topic)
        self._owners[topic] = log.topic
        return log

    def owner(self, topic: PulsarTopic) -> PulsarTopic:
        """The topic that owns the ledgers of a topic; for a shadow topic its source. Raises as `ledgers` does."""
        return self._owners.get(topic) or self._log(topic).topic

    def entries(self, topic: PulsarTopic, part: LedgerRange) -> Iterator[ServedEntry[list[Message]]]:
        """The messages of users in each entry of a part. Ends if the ledger left the topic meanwhile. Raises as
        `read` does."""
        for served in self._entries(topic, part, lambda entry, payload: _messages(part.info.ledger, entry, payload)):
            users = self._of_users(served.content)
            yield served if users is served.content else served._replace(content=users)

    def stored(self, topic: PulsarTopic, part: LedgerRange) -> Iterator[ServedEntry[StoredEntry]]:
        """Each entry of a part, not parsed. Ends and raises as `entries` does."""
        return self._entries(topic, part, lambda entry, payload: _stored(part.info.ledger, entry, payload))

    def parsed(self, ledger: int, entry: int, stored: bytes) -> list[Message]:
        """The messages of users in an entry of `stored`. Raises `BadBytes`, and `Stop` for transactions."""
        return self._of_users(_messages(ledger, entry, memoryview(stored)))

    def _entries(
        self, topic: PulsarTopic, part: LedgerRange, decode: Callable[[int, memoryview], T]
    ) -> Iterator[ServedEntry[T]]:
        sources, at, ledger = self._sources(self.owner(topic).owner), part.first, part.info.ledger
        while part.last is None or at <= part.last:
            try:
                rest = part._replace(first=at)
                for served in fallback.read(rest, self._options.priority, sources, decode, self.report.fell_back):
                    self.report.entries[served.tier] += 1
                    yield served
                    at = served.entry + 1
                return
            except TrueupError as error:
                infos = {info.ledger: info for info in self.ledgers(topic)}
                if ledger not in infos:
                    self.report.trimmed.append(ledger)
                    return
                if infos[ledger].complete and not part.info.complete:
                    part = part._replace(info=infos[ledger])  # it was offloaded during the read
                else:
                    at += self._skipped(part, at, error)

    def _skipped(self, part: LedgerRange, at: int, error: TrueupError) -> int:
        """The number of entries to skip after an error. Raises the error if none may be skipped."""
        ledger = part.info.ledger
        if not self._options.skip_missing or not isinstance(error, LostEntries) or part.last is None:
            raise error
        count = part.last - at + 1 if error.whole else 1
        self.report.missing[ledger] += count
        return count

    def _of_users(self, messages: list[Message]) -> list[Message]:
        # All messages of an entry have the marker and the transaction of the entry.
        if not messages or (messages[0].marker is None and messages[0].txn is None):
            return messages
        users = [message for message in messages if message.marker is None]
        self.report.markers += len(messages) - len(users)
        if not self._options.transactions and any(message.txn for message in users):
            raise Stop(
                f"messages without transactions in entry {users[0].entry} of ledger {users[0].ledger}",
                "one of a transaction",
                "whether it was committed is not known; --transactions (transactions: true) includes all of them",
            )
        return users


def was_trimmed(expected: str) -> Stop:
    """The error for entries of a ledger that left its topic."""
    return Stop(
        expected, "a ledger that was trimmed", "read again, or skip what is trimmed with --missing skip (missing: skip)"
    )


def _messages(ledger: int, entry: int, payload: memoryview) -> list[Message]:
    where = f"entry {entry} of ledger {ledger}"
    return messages_of(entry_of(payload, where), ledger, entry, where)


def _stored(ledger: int, entry: int, payload: memoryview) -> StoredEntry:
    data = bytes(payload)
    try:
        return StoredEntry(data, layout_of(data, ""))
    except BadBytes:
        return StoredEntry(data, layout_of(data, f"entry {entry} of ledger {ledger}"))


def since(ledgers: list[LedgerInfo], from_ms: int | None) -> list[LedgerInfo]:
    """Without the ledgers that were closed long before a publish time."""
    return [info for info in ledgers if from_ms is None or not info.closed_ms or info.closed_ms >= from_ms - SKEW_MS]


def within(range_: Range, publish_ms: Any) -> Any:
    """Whether a publish time is in this range, or which of an array of times are."""
    low = -inf if range_.from_ms is None else range_.from_ms
    high = inf if range_.to_ms is None else range_.to_ms
    return (low <= publish_ms) & (publish_ms < high)
