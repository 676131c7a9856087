"""The journal: Kafka topics with observations, decisions and settings.

The topics are compacted, so reading one from the start returns a snapshot. Only the history is not: its rows expire.

A publish returns after the brokers have acknowledged all records, or raises `Retry` with unknown outcome. The caller
then publishes the same records again, which is safe because the newest record of a key takes effect.
"""

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import fastavro

from trueup.connectors.kafka.journal.topics import FLUSH_S, Entry, Topic, Topics
from trueup.connectors.kafka.journal.transactions import Part
from trueup.state.bookkeeper.observations import Observation
from trueup.state.common.errors import BadBytes, TrueupError
from trueup.state.journal.topics import TopicState
from trueup.state.settings.settings import JournalSettings as JournalSettings
from trueup.streams.journal.channel import Channel, client_of
from trueup.streams.journal.codec import decode, read, schema_text
from trueup.streams.journal.encode import encode_all
from trueup.streams.journal.signing import keys_of, signed, verify
from trueup.streams.journal.topic import CONFIG, HISTORY, declared, topic_of

log = logging.getLogger(__name__)
DAY_MS = 86_400_000
UNSIGNED = 100
"""Maximum number of refused records that are reported."""


class Record(NamedTuple):
    """One record of the journal. ``value`` None: the key was deleted. ``where``: topic, partition and offset as
    text."""

    key: bytes
    value: Any
    where: str
    offset: int


Bad = Callable[[Record, TrueupError], None]
"""Receives a record that is not readable, with value None, and the error."""


class Journal:
    """The topics of one cluster. Safe to use from several threads. ``unsigned``: problems of records without a
    valid signature, by place; such records are not read. ``shared``: by several instances, of which the leader writes
    transactions."""

    def __init__(self, bootstrap: str, settings: JournalSettings, cluster: str, shared: bool = False) -> None:
        self.bootstrap, self.settings, self._cluster, self._shared = bootstrap, settings, cluster, shared
        self.topics = Topics(bootstrap, client_of(settings))
        self._keys = keys_of(settings.key_file)
        self.unsigned: dict[str, str] = {}

    def topic(self, what: str) -> str:
        """The full name of a topic."""
        return f"{self.settings.prefix}.{self._cluster}.{what}"

    def create(self, timeout_s: float = 60.0) -> list[str]:
        """Create missing topics of those that are declared, and wait until all partitions have leaders. Returns the
        full names of the created ones."""
        expires = {"cleanup.policy": "delete", "retention.ms": str(self.settings.history_days * DAY_MS)}
        chosen = self.settings
        created = self.topics.create([
            Topic(self.topic(each.name), chosen.partitions if each.partitioned else 1, chosen.replication,
                  expires if each.name == HISTORY else each.configs)
            for each in declared()
        ], timeout_s)  # fmt: skip
        try:  # the setting may have changed since the topic was created
            self.topics.configure(self.topic(HISTORY), expires, timeout_s)
        except TrueupError as error:
            log.warning("the retention of the history was not changed", extra={"problem": error.found})
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
        return names

    def identity(self, topics: Iterable[str]) -> str:
        """A name for the ids of these topics; it changes if one of them is lost and recreated. Raises `Retry`."""
        names = [self.topic(what) for what in topics]
        found = self.topics.identities(names)
        ids = "\n".join(found.get(name, "") for name in names)
        return hashlib.sha256(ids.encode()).hexdigest()[:22]

    def states(self) -> dict[str, TopicState]:
        """The declared topics that exist, by full name. Raises `Retry`."""
        found = self.topics.identities([self.topic(each.name) for each in declared()])
        configs = self.topics.configs(list(found))
        return {name: _state(identity, configs[name]) for name, identity in found.items()}

    def begin(self, what: str) -> int:
        """The first offset of partition 0 of a topic. Raises `Retry`."""
        return self.topics.ranges(self.topic(what))[0][0]

    def publish(self, observations: Iterable[Observation]) -> None:
        """Write observations and wait until they are acknowledged. Raises `Retry`, or `Stop` for a permanent error."""
        self.put((o.topic, o.key, o.value) for o in observations)

    def put(self, records: Iterable[tuple[str, bytes, Any]], within_s: float = FLUSH_S) -> None:
        """Write (topic, key, record or None) and wait until all are acknowledged, for about ``within_s`` at most."""
        parts: list[Part] = []
        for what, some in groupby(records, key=itemgetter(0)):
            pairs = [(key, value) for _, key, value in some]
            bodies = iter(encode_all(what, [value for _, value in pairs if value is not None]))
            parts.append((what, [key for key, _ in pairs], [
                value if value is None else self._signed(what, key, next(bodies)) for key, value in pairs
            ]))  # fmt: skip
        self.send(parts, within_s)

    def send(self, parts: Iterable[Part], within_s: float = FLUSH_S) -> None:
        """Like `put`, for encoded records: (topic, keys, bodies). A body of None deletes its key."""
        self.topics.send(((self.topic(what), keys, bodies) for what, keys, bodies in parts), within_s)

    def read(
        self, what: str, head: int | None = None, bad: Bad | None = None, last: int | None = None
    ) -> Iterator[Record]:
        """Every record of a topic up to its present end, in the order of each partition. ``head``: decode only this
        number of leading fields; ``last``: only this number of newest records of each partition; ``bad``: receives
        records that are not readable; without it they raise `BadBytes`."""
        parse = _head(what, head) if head else None
        for entry in self.topics.read(self.topic(what), last):
            if parse and entry.body is not None:
                yield Record(entry.key, parse(entry.body, _place(entry)), _place(entry), entry.offset)
            elif (record := self._parsed(what, entry, bad)) is not None:
                yield record

    def follow(
        self, what: str, stop: threading.Event, seen: Callable[[Record], None], bad: Bad, old: bool = True
    ) -> None:
        """Call ``seen`` with every record of a topic of one partition until ``stop``, and ``bad`` with records that are
        not readable. ``old``: start with existing records. Blocks."""

        def parsed(entry: Entry) -> None:
            if (record := self._parsed(what, entry, bad)) is not None:
                seen(record)

        self.topics.follow(self.topic(what), stop, parsed, old)

    def channel(self, what: str) -> Channel:
        """A channel that publishes to a topic."""
        client = (("bootstrap.servers", self.bootstrap), *self.settings.options.items())
        return Channel(self.topic(what), client, tuple(self.settings.security.items()))

    def ends(self, what: str) -> dict[int, int]:
        """The present end offset of each partition of a topic. Raises `Retry`."""
        return self.topics.ends(self.topic(what))

    def reachable(self, timeout_s: float = 2.0) -> bool:
        """Whether a broker responds."""
        return self.topics.reachable(self.topic(CONFIG), timeout_s)

    def _signed(self, what: str, key: bytes, body: bytes) -> bytes:
        return signed(self._keys, what, key, body) if self._keys and topic_of(what).signed else body

    def _parsed(self, what: str, entry: Entry, bad: Bad | None) -> Record | None:
        where = _place(entry)
        record = Record(entry.key, None, where, entry.offset)
        if self._keys and topic_of(what).signed and entry.body is not None:
            try:
                verify(self._keys, what, entry.key, entry.body, where)
            except BadBytes as error:
                self._refuse(record, error, bad)
                return None
        try:
            return record._replace(value=None if entry.body is None else decode(what, entry.body, where))
        except TrueupError as error:
            if bad is None:
                raise
            bad(record, error)
            return None

    def _refuse(self, record: Record, error: BadBytes, bad: Bad | None) -> None:
        """Report a record without a valid signature. It does not end a start, which any writer could prevent then."""
        if bad is not None:
            bad(record, error)
        elif len(self.unsigned) < UNSIGNED:
            self.unsigned[record.where] = f"record refused: {error}"
            log.warning("record refused", extra={"where": record.where, "problem": str(error)})


def _state(identity: str, config: Mapping[str, str]) -> TopicState:
    limits = (int(config.get(name, "-1")) for name in ("retention.ms", "retention.bytes"))
    return TopicState(identity, 0, config.get("cleanup.policy", ""), *limits)


def _place(entry: Entry) -> str:
    return f"topic {entry.topic} partition {entry.partition} offset {entry.offset}"


def _head(what: str, fields: int) -> Callable[[bytes, str], Any]:
    whole = json.loads(schema_text(what))
    front = fastavro.parse_schema({**whole, "name": whole["name"] + "Head", "fields": whole["fields"][:fields]})
    return lambda body, where: read(body, front, where, f"the beginning of an Avro {topic_of(what).kind}")
