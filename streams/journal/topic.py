"""The topics of the journal.

A module ``topics`` in the folder of a stream declares its topics when it is imported. Executors do not import the list
of streams: code that reads or writes a topic takes its name from that module, so that every process knows the schema.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple

from trueup.streams.rows import Row

COMPACTED: Mapping[str, str] = MappingProxyType({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"})
IN_BULK = "tasks of Spark read millions of them, and an action is executed only if ZooKeeper confirms its reason"
"""Why observations of ZooKeeper's nodes are not signed."""
_KEY = re.compile(r"[a-z_]+(\.[A-Za-z0-9_-]+)*")
_LONGEST = 200
Record = Mapping[str, Any]
"""A record of a topic; the Avro schema of the topic gives its fields and their types."""
Put = tuple[str, bytes, object]
"""What is written: the topic, the key, and a mapping or a named tuple with the fields of the record, or None to delete
the key."""
SETTING = "journal/schemas/setting.avsc"
"""A schema for several topics: a name with a value as text."""


class JournalTopic(NamedTuple):
    """A topic of the journal."""

    name: str
    schema: str | Row
    """The Avro schema of the records, or the path of its file below `streams/`."""
    partitioned: bool = False
    """Whether the topic has journal.partitions partitions instead of one."""
    observed: bool = False
    """Whether `trueup journal rebuild` empties the topic, as its records are based on observations of ZooKeeper."""
    unsigned: str = ""
    """Why the records are not signed with journal.key_file. Empty, which is the default: the records are signed."""
    configs: Mapping[str, str] = COMPACTED
    key: Callable[[Record], bytes] | None = None
    """The function that returns the key of a record; None if any key is valid. The function raises one of
    `streams.journal.codec.WRONG` for a record that the writer did not make, which is then not readable."""
    form: str = ""
    """The function, as MODULE:NAME with a module below `streams/`, that converts a record to what readers use; empty if
    readers use the record itself. The function raises like ``key``."""
    columns: str = ""
    """The function, written like ``form``, that converts many bodies to the ids of the records and to columns. The key
    of each record is its id as int64 big-endian. The function raises `BadBytes` if a body is not readable."""
    ordered: bool = True
    """Whether a signed record is refused after a newer one of its key."""

    @property
    def text(self) -> str:
        """The schema as JSON text."""
        if isinstance(self.schema, str):
            from importlib.resources import files  # slow to import, and few commands read schemas

            return (files("trueup.streams") / self.schema).read_text()
        return json.dumps(self.schema)

    @property
    def formed(self) -> Callable[[Record], object]:
        """``form`` as a function."""
        return _function(self.form)

    @property
    def in_columns(self) -> Callable[[Sequence[bytes]], tuple[Any, Any]]:
        """``columns`` as a function."""
        return _function(self.columns)

    @property
    def kind(self) -> str:
        """What a record is, in messages."""
        return self.schema.rpartition("/")[2].removesuffix(".avsc") if isinstance(self.schema, str) else self.name


@cache
def _function(place: str) -> Callable[[Any], Any]:
    """Imported when it is needed: the command line knows the topics, and needs no records."""
    module, _, name = place.partition(":")
    function: Callable[[Any], Any] = getattr(import_module(f"trueup.streams.{module}"), name)
    return function


def name_of(record: Record) -> bytes:
    """The key of records of `SETTING`."""
    return str(record["name"]).encode()


def setting_of(record: Record) -> bytes:
    """The key of records of live settings. Raises `ValueError` for a name that no key of the settings can have: no
    command could name it."""
    name = str(record["name"])
    if len(name) > _LONGEST or not _KEY.fullmatch(name):
        raise ValueError(f"expected the name of a setting; found {name[:_LONGEST]!r}")
    return name.encode()


def ledger_of(record: Record) -> bytes:
    """The key of records about one ledger: its id, 8 bytes big-endian."""
    return int(record["ledger"]).to_bytes(8, "big")


_declared: dict[str, JournalTopic] = {}


def declare(*topics: JournalTopic) -> tuple[JournalTopic, ...]:
    """Add topics to the journal, and return them. Raises `ValueError` if a topic is declared differently."""
    for topic in topics:
        if _declared.setdefault(topic.name, topic) != topic:
            raise ValueError(f"the journal's topic {topic.name} is already declared differently")
    return topics


def declared() -> list[JournalTopic]:
    """The topics of all modules that were imported."""
    return list(_declared.values())


def topic_of(name: str) -> JournalTopic:
    """The topic with this name. Raises `LookupError`."""
    if name not in _declared:
        raise LookupError(f"the journal has no topic {name}: import the module that declares it")
    return _declared[name]


TOPICS = declare(
    JournalTopic("config", "journal/schemas/config.avsc", key=setting_of),
    # A row is written once: an older one that is written again is the same row.
    JournalTopic("history", "journal/schemas/history.avsc", form="journal.history_row:history_row", ordered=False),
    JournalTopic(
        "instances", "journal/schemas/instance.avsc", configs={**COMPACTED, "segment.ms": "3600000"}, ordered=False
    ),
)
CONFIG, HISTORY, INSTANCES = (topic.name for topic in TOPICS)
