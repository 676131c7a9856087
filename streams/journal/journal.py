"""The journal: Kafka topics with observations, decisions and settings.

The topics are compacted, so reading one from the start returns a snapshot. Only the history is not: its rows expire.

A publish returns after the brokers have acknowledged all records, or raises `Retry` with unknown outcome. The caller
then publishes the same records again, which is safe because the newest record of a key takes effect.
"""

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from itertools import groupby, islice
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from trueup.connectors.kafka.journal.topics import FLUSH_S, TopicClient, TopicRecord, TopicSpec
from trueup.connectors.kafka.journal.transactions import Part
from trueup.state.common.errors import BadBytes, TrueupError
from trueup.state.instance.journal_topics import JournalTopicState
from trueup.state.settings.settings import JournalSettings as JournalSettings
from trueup.streams.journal.channel import Channel, client_of
from trueup.streams.journal.codec import REMOVE, checked
from trueup.streams.journal.decode import check_keys, readable
from trueup.streams.journal.encode import encode_all
from trueup.streams.journal.seals import Seals
from trueup.streams.journal.signing import Signer, keys_of
from trueup.streams.journal.topic import CONFIG, HISTORY, Put, declared, topic_of
from trueup.streams.journal.unreadable import Unreadable

log = logging.getLogger(__name__)
DAY_MS = 86_400_000
AT_ONCE = 20_000
"""Records that are decoded together."""
INSPECTED, INSPECTED_SHARE = 200, 0.1
"""Records that are inspected without a pause, and the maximum share of the time that an inspection computes: the
application itself writes most records, and has other work at that moment."""


class JournalRecord(NamedTuple):
    """One record of the journal."""

    key: bytes
    value: Any
    """The value in the form that readers of the topic use (`JournalTopic.form`); None if the key was deleted."""
    where: str
    """The topic, partition and offset, as text."""
    offset: int


Bad = Callable[[JournalRecord, TrueupError], None]
"""Receives a record that is not readable, with value None, and the error."""


class Journal:
    """The topics of one cluster. Safe to use from several threads. ``unreadable``: the records that no method returns,
    because their topic's writer did not make them, or they have no valid signature; they end nothing. ``shared``:
    whether several instances use the topics; their leader writes transactions."""

    def __init__(self, bootstrap: str, settings: JournalSettings, cluster: str, shared: bool = False) -> None:
        self.bootstrap, self.settings, self._cluster, self._shared = bootstrap, settings, cluster, shared
        self.topics = TopicClient(bootstrap, client_of(settings))
        self._seals = Seals(keys_of(settings.key_file), settings.prefix, cluster)
        self.unreadable = Unreadable()
        self._read: dict[tuple[str, int], int] = {}

    def topic(self, what: str) -> str:
        """The full name of a topic."""
        return f"{self.settings.prefix}.{self._cluster}.{what}"

    def create(self, timeout_s: float = 60.0) -> list[str]:
        """Create missing topics of those that are declared, and wait until all partitions have leaders. Returns the
        full names of the created ones."""
        expires = {"cleanup.policy": "delete", "retention.ms": str(self.settings.history_days * DAY_MS)}
        settings = self.settings
        created = self.topics.create(
            [
                TopicSpec(
                    self.topic(topic.name),
                    settings.partitions if topic.partitioned else 1,
                    settings.replication,
                    expires if topic.name == HISTORY else topic.configs,
                )
                for topic in declared()
            ],
            timeout_s,
        )
        try:  # the setting may have changed since the topic was created
            self.topics.configure(self.topic(HISTORY), expires, timeout_s)
        except TrueupError as error:
            log.warning("retention of the history not changed", extra={"problem": error.found})
        return created

    def lead(self, owner: str, fenced: Callable[[str], object], within_s: float = FLUSH_S) -> None:
        """Write as the leader of the application ``owner`` from now on: each write is a transaction, and the previous
        leader cannot write any more. ``fenced``: called, with a reason, when another one took over. Raises `Retry`, and
        `Stop` without the permission."""
        self.topics.lead(self.topic(owner), fenced, within_s)

    @property
    def transactional(self) -> bool:
        """Whether records are written in transactions, so that readers must skip those that were aborted."""
        return self._shared or self.topics.transactional

    def forget(self, topics: Iterable[str], timeout_s: float = 60.0) -> list[str]:
        """Delete these topics with all records and recreate them. Returns their full names. Blocks. Raises `Retry`, and
        `Stop` if the brokers do not permit it."""
        names = [self.topic(what) for what in topics]
        self.topics.delete(names, timeout_s)
        self.create(timeout_s)
        self.unreadable.forget({*names})
        return names

    def identity(self, topics: Iterable[str]) -> str:
        """A name for the ids of these topics; it changes if one of them is lost and recreated. Raises `Retry`."""
        names = [self.topic(what) for what in topics]
        identities = self.topics.identities(names)
        ids = "\n".join(identities.get(name, "") for name in names)
        return hashlib.sha256(ids.encode()).hexdigest()[:22]

    def states(self) -> dict[str, JournalTopicState]:
        """The declared topics that exist, by full name. Raises `Retry`."""
        identities = self.topics.identities([self.topic(topic.name) for topic in declared()])
        configs = self.topics.configs(list(identities))
        return {name: _state(identity, configs[name]) for name, identity in identities.items()}

    def begin(self, what: str) -> int:
        """The first offset of partition 0 of a topic. Raises `Retry`."""
        return self.topics.ranges(self.topic(what))[0][0]

    def span(self, what: str) -> int:
        """The number of offsets of the largest partition of a topic. Raises `Retry`."""
        return max(end - begin for begin, end in self.topics.ranges(self.topic(what)).values())

    def put(self, records: Iterable[Put], within_s: float = FLUSH_S) -> None:
        """Write these records and wait until all are acknowledged, for about ``within_s`` at most.
        Raises `Retry`, or `Stop` for a permanent error."""
        parts: list[Part] = []
        for what, some in groupby(records, key=itemgetter(0)):
            pairs = [(key, value) for _, key, value in some]
            bodies = iter(encode_all(what, [value for _, value in pairs if value is not None]))
            encoded = [None if value is None else next(bodies) for _, value in pairs]
            parts.append((what, [key for key, _ in pairs], encoded))
        self.send(parts, within_s)

    def send(self, parts: Iterable[Part], within_s: float = FLUSH_S) -> None:
        """Like `put`, for encoded records: (topic, keys, bodies). A body of None deletes its key."""
        # Signed when they are written, in that order.
        sealed = ((self.topic(what), keys, self._seals.seal(what, keys, bodies)) for what, keys, bodies in parts)
        self.topics.send(sealed, within_s)

    def read(self, what: str, bad: Bad | None = None, last: int | None = None) -> Iterator[JournalRecord]:
        """The readable records of a topic up to its present end, in the order of each partition. ``last``: the
        number of newest records of each partition to read, None for all; ``bad``: receives the unreadable records."""
        for entry in self.entries(what, last):
            if (record := self._parsed(what, entry, bad)) is not None:
                yield record

    def newest(self, what: str, problems: MutableMapping[bytes, str] | None = None) -> dict[bytes, Any]:
        """The newest readable record of each key of a topic. ``problems`` receives, by key, why the newest record is
        not readable."""
        records: dict[bytes, Any] = {}
        unread = {} if problems is None else problems
        for record in self.read(what, lambda bad, error: unread.update({bad.key: str(error)})):
            unread.pop(record.key, None)
            records.pop(record.key, None)
            if record.value is not None:
                records[record.key] = record.value
        return records

    def entries(self, what: str, last: int | None = None) -> Iterator[TopicRecord]:
        """Like `read`, without decoding: whatever was written."""
        read: dict[tuple[str, int], int] = {}
        for entry in self.topics.read(self.topic(what), last):
            read[entry.topic, entry.partition] = entry.offset + 1
            yield entry
        self._read |= read

    def columns(self, what: str) -> Iterator[tuple[Sequence[TopicRecord], Any]]:
        """The readable records of a topic with columns up to its present end, in the order of each partition, many at
        once: those with a body and their columns, or deletions and None."""
        entries = self.entries(what)
        while some := list(islice(entries, AT_ONCE)):
            yield from self._columns(what, some)

    def follow(
        self,
        what: str,
        stop: threading.Event,
        seen: Callable[[JournalRecord], None],
        bad: Bad | None = None,
        old: bool = True,
    ) -> None:
        """Call ``seen`` with every readable record of a topic of one partition until ``stop``, and ``bad`` with the
        others. ``old``: whether to start with the existing records. Blocks."""

        def parsed(entry: TopicRecord) -> None:
            if (record := self._parsed(what, entry, bad)) is not None:
                seen(record)

        self.topics.follow(self.topic(what), stop, parsed, old)

    def channel(self, what: str) -> Channel:
        """A channel that publishes to a topic."""
        client = (("bootstrap.servers", self.bootstrap), *self.settings.options.items())
        return Channel(self.topic(what), client, tuple(self.settings.security.items()), self._seals.signer(what))

    def signer(self, what: str) -> Signer | None:
        """What verifies the records of a topic in a task; None if nothing does."""
        return self._seals.signer(what)

    def ends(self, what: str) -> dict[int, int]:
        """The present end offset of each partition of a topic. Raises `Retry`."""
        return self.topics.ends(self.topic(what))

    def reachable(self, timeout_s: float = 2.0) -> bool:
        """Whether a broker responds."""
        return self.topics.reachable(self.topic(CONFIG), timeout_s)

    def inspect(self, stop: threading.Event, clock: Callable[[], float] = time.monotonic) -> None:
        """Find the records of all topics that are not readable: those that no method has read yet, and new ones until
        ``stop``. ``clock`` returns seconds. Blocks. Raises `Retry`."""
        names = {self.topic(topic.name): topic.name for topic in declared()}
        begins = dict.fromkeys(self.topics.partitions(names), 0)

        def seen(entries: Sequence[TopicRecord]) -> None:
            began_s = clock()
            for name, some in groupby(sorted(entries, key=attrgetter("topic")), attrgetter("topic")):
                self.look(names[name], list(some))
            self._read |= {(entry.topic, entry.partition): entry.offset + 1 for entry in entries}
            stop.wait((clock() - began_s) * (1 / INSPECTED_SHARE - 1))

        self.topics.follow_all({**begins, **self._read}, stop, seen, INSPECTED)

    def look(self, what: str, entries: Sequence[TopicRecord]) -> bool:
        """Whether all these records of a topic are readable. Those that are not are in ``unreadable``."""
        if not topic_of(what).columns:
            return None not in [self._parsed(what, entry) for entry in entries]
        return sum(len(some) for some, _ in self._columns(what, entries)) == len(entries)

    def write_again(self, what: str, partition: int, key: bytes, entry: TopicRecord | None) -> None:
        """Write a record that was read once more, as the newest of its key, into this partition; None deletes the key.
        Raises `Retry`, or `Stop`."""
        body = None if entry is None else self._seals.opened(what, entry)
        (sealed,) = self._seals.seal(what, [key], [body])
        self.topics.send([(self.topic(what), [key], [sealed])], partition=partition)

    def _columns(self, what: str, entries: Sequence[TopicRecord]) -> Iterator[tuple[Sequence[TopicRecord], Any]]:
        columns_of = topic_of(what).in_columns

        def keyed(some: Sequence[TopicRecord]) -> Any:
            ids, rows = columns_of([entry.body or b"" for entry in some])
            keys = [entry.key for entry in some]
            if {*map(len, keys)} != {8}:
                raise BadBytes(some[0].where, 0, "the id of the record as its key", f"{keys[0]!r:.100}", REMOVE)
            check_keys(keys, ids, some[0].where)
            return rows

        for deleted, some in groupby(entries, lambda entry: entry.body is None):
            run = list(some)
            if deleted:
                yield self._good(run), None
                continue
            for part, rows in readable(run, keyed):
                if isinstance(rows, BadBytes):
                    bad = run[part.start]
                    self.unreadable.bad(bad, BadBytes(bad.where, rows.at, rows.wanted, rows.found, REMOVE))
                else:
                    yield self._good(run[part]), rows

    def _good(self, entries: Sequence[TopicRecord]) -> Sequence[TopicRecord]:
        for entry in entries:
            self.unreadable.good(entry)
        return entries

    def _parsed(self, what: str, entry: TopicRecord, bad: Bad | None = None) -> JournalRecord | None:
        """A record, or None if it is not readable."""
        try:
            self._seals.check(what, entry)
            value = None if entry.body is None else checked(what, entry.key, entry.body, entry.where)
        except BadBytes as error:
            self.unreadable.bad(entry, error)
            if bad is not None:
                bad(JournalRecord(entry.key, None, entry.where, entry.offset), error)
            return None
        self.unreadable.good(entry)
        return JournalRecord(entry.key, value, entry.where, entry.offset)


def _state(identity: str, config: Mapping[str, str]) -> JournalTopicState:
    limits = (int(config.get(name, "-1")) for name in ("retention.ms", "retention.bytes"))
    return JournalTopicState(identity, 0, config.get("cleanup.policy", ""), *limits)
