"""Whether the topics of the journal are those of earlier runs, and keep their records.

The newest record of each key is the state, so a topic must be compacted. Records that expire, and topics that were
deleted and created again, lose settings; the values of the file would apply in their place.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

UNCONFIRMED = "none"
"""A value of journal.confirmed that is no place: the topic was missing at a start although it had existed."""
SHOWN = 3


class JournalTopicState(NamedTuple):
    """A topic as the brokers report it."""

    id: str
    begin: int = 0
    """The first offset of partition 0; 0 if it was not requested."""
    policy: str = ""
    """The cleanup.policy of the topic; empty if it may not be read."""
    retention_ms: int = -1
    """The retention.ms of the topic; -1 if there is no limit or it may not be read."""
    retention_bytes: int = -1
    """The retention.bytes of the topic; -1 if there is no limit or it may not be read."""

    @property
    def place(self) -> str:
        """The topic and its first offset. It changes if the topic is created again or loses its oldest records;
        compaction does not change it."""
        return f"{self.id}@{self.begin}"

    @property
    def expires(self) -> str:
        """The settings by which the newest record of a key is deleted; empty if it is kept."""
        if "delete" not in self.policy:
            return ""
        limits = {"retention.ms": self.retention_ms, "retention.bytes": self.retention_bytes}
        text = " and ".join(f"{name}={limit}" for name, limit in limits.items() if limit >= 0)
        return f"cleanup.policy={self.policy} with {text}" if text else ""


def expiring(topics: Mapping[str, JournalTopicState], bootstrap: str) -> list[str]:
    """A problem for each of these topics, by name, whose records expire, with the command that corrects it."""
    return [
        f"records of topic {name} expire: expected cleanup.policy=compact; found {state.expires}; run kafka-configs.sh "
        f"--bootstrap-server {bootstrap} --alter --entity-type topics --entity-name {name} "
        "--add-config cleanup.policy=compact"
        for name, state in topics.items()
        if state.expires
    ]


def unreadable(topics: Mapping[str, JournalTopicState]) -> list[str]:
    """A problem if the settings of topics may not be read, so that it is not known whether records expire."""
    if hidden := [name for name, state in topics.items() if not state.policy]:
        todo = "grant DESCRIBE_CONFIGS on these topics to the user of the journal"
        return [f"whether records of {_few(hidden)} expire is unknown: their settings may not be read; {todo}"]
    return []


def lost(config: JournalTopicState, confirmed: str, remembered: str) -> str:
    """Why settings of the topic may have been lost; empty if they were not.

    ``confirmed``: the value of journal.confirmed; ``remembered``: the place that the data directory holds, which is
    written only after the record of journal.confirmed was acknowledged. Both are empty in the first run.
    """
    if confirmed == config.place:
        return ""
    if confirmed == UNCONFIRMED:
        return "the topic was missing at an earlier start"
    place = confirmed or remembered
    if place == config.place:
        return "the record of journal.confirmed is missing"
    if place:
        replaced = place.rpartition("@")[0] != config.id
        why = "the topic was deleted and created again" if replaced else "its oldest records were deleted"
        return f"{why}: expected {place}; found {config.place}"
    return f"records before offset {config.begin} were deleted" if config.begin else ""


def replaced(before: Mapping[str, str], now: Mapping[str, JournalTopicState]) -> list[str]:
    """The topics whose id is another one than ``before``, by name."""
    return [name for name, identity in before.items() if name in now and now[name].id != identity]


def missing(before: Iterable[str], now: Iterable[str]) -> list[str]:
    """The topics that are gone."""
    topics = set(now)
    return [name for name in before if name not in topics]


def change_of(gone: list[str], new: list[str]) -> str:
    """What happened to topics, as text; empty if nothing did."""
    parts = [f"{_few(gone)} deleted"] * bool(gone) + [f"{_few(new)} deleted and created again"] * bool(new)
    return ", ".join(parts)


def _few(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"topic{'s' * (len(names) > 1)} {', '.join(names[:SHOWN])}{more}"
