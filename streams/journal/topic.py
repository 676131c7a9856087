"""The topics of the journal.

A module ``topics`` in the folder of a stream declares its topics when it is imported. Executors do not import the list
of streams: code that reads or writes a topic takes its name from that module, so that every process knows the schema.
"""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

COMPACTED: Mapping[str, str] = MappingProxyType({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"})
SETTING = "journal/schemas/setting.avsc"
"""A schema for several topics: a name with a value as text."""


class JournalTopic(NamedTuple):
    """A topic of the journal. ``schema``: of its records in Avro, or the path of its file below `streams/`;
    ``partitioned``: whether it has journal.partitions partitions instead of one; ``observed``: whether `trueup journal
    begin-anew` empties it, as its records are based on observations of ZooKeeper; ``signed``: whether records are
    signed with journal.key_file, as settings and orders are."""

    name: str
    schema: str | Mapping[str, Any]
    partitioned: bool = False
    observed: bool = False
    signed: bool = False
    configs: Mapping[str, str] = COMPACTED

    @property
    def text(self) -> str:
        """The schema as JSON text."""
        if isinstance(self.schema, str):
            from importlib.resources import files  # slow to import, and few commands read schemas

            return (files("trueup.streams") / self.schema).read_text()
        return json.dumps(self.schema)

    @property
    def kind(self) -> str:
        """What a record is, in messages."""
        return self.schema.rpartition("/")[2].removesuffix(".avsc") if isinstance(self.schema, str) else self.name


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
    JournalTopic("config", "journal/schemas/config.avsc", signed=True),
    JournalTopic("history", "journal/schemas/history.avsc"),
)
CONFIG, HISTORY = (topic.name for topic in TOPICS)
