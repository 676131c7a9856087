"""A simulated cluster: policies as raw JSON, copies of ledgers, and a broker that decides by the record alone."""

from collections.abc import Mapping
from random import Random
from typing import Any

from trueup.state.deletion.offloads import ObjectPair, OffloadedCopy
from trueup.state.read_priority.tiers import LedgerInfo

FIELD = "managedLedgerOffloadedReadPriority"
BK, TS = "BOOKKEEPER_FIRST", "TIERED_STORAGE_FIRST"
VALUES = {BK: "bookkeeper-first", TS: "tiered-storage-first"}
NAME_OF = {value: name for name, value in VALUES.items()}
NAMESPACES = ("t/a", "t/b")
TOPICS = ("t/a/one", "t/a/two", "t/a/own", "t/b/one", "t/b/loose")
DECLARED = {"t/b/loose": "unmanaged", "t/a/own": VALUES[BK], "t/a": VALUES[TS], "t/b": VALUES[BK]}
LEVEL_OF_TOPIC = {"t/a/own"}
SECRET = "simulated-secret"
BROKER = {"managedLedgerOffloadDriver": "S3", "managedLedgerOffloadBucket": "b", "maxThreads": 2}
Raw = dict[str, Any]


class Copies:
    """The true state of one ledger. ``hidden``: tiers of which nothing can be learned at present."""

    def __init__(self, number: int, complete: bool, dropped: bool) -> None:
        copy = OffloadedCopy(ObjectPair("u", number), True) if complete else None
        self.info = LedgerInfo(number, 10, 100, 1_000, copy, dropped, 1_000)
        self.well = {"bookkeeper": not dropped, "tiered": complete}
        self.hidden = set[str]()

    def opened(self, value: str) -> str:
        """The tier that a broker opens (ManagedLedgerImpl.getLedgerHandle)."""
        if not self.info.complete:
            return "bookkeeper"
        return "tiered" if value == TS or self.info.dropped else "bookkeeper"

    def bad(self, value: str) -> bool:
        """Whether it can be seen that a broker opens a copy that it cannot read."""
        tier = self.opened(value)
        return tier not in self.hidden and not self.well[tier]

    def clear(self, value: str) -> bool:
        """Whether it can be seen that a broker opens a whole copy, or that there is none."""
        lost = not self.hidden and not any(self.well.values())
        return lost or (self.opened(value) not in self.hidden and self.well[self.opened(value)])


class World:
    """Everything that servers store. Time in ms."""

    def __init__(self, random: Random) -> None:
        self.random, self.now_ms = random, 1_000_000
        self.broker_value = random.choice((BK, TS))
        self.policies: dict[str, Raw] = {}
        self.replaced: dict[str, Any] = {}
        """The values that Trueup replaced last. Setting one again cannot be told from a write without effect."""
        numbers = iter(range(1, 100))
        self.ledgers = {
            topic: [
                Copies(next(numbers), random.random() < 0.8, random.random() < 0.1) for _ in range(random.randint(1, 4))
            ]
            for topic in TOPICS
        }
        for copies in (one for some in self.ledgers.values() for one in some):
            if not copies.info.complete:
                copies.info = copies.info._replace(dropped=False)
                copies.well = {"bookkeeper": True, "tiered": False}
        for name in (*NAMESPACES, *TOPICS):
            if random.random() < (0.6 if name in NAMESPACES else 0.2):
                self.policies[name] = self.made()

    def made(self) -> Raw:
        """A policy of another client."""
        found: Raw = {**BROKER, "s3ManagedLedgerOffloadCredentialSecret": SECRET, "unknown": self.random.randrange(9)}
        if self.random.random() < 0.7:
            found[FIELD] = self.random.choice((BK, TS, None))
        return found

    def value(self, topic: str) -> tuple[str, str]:
        """The priority in force for a topic, and the level that sets it."""
        for level, name in (("topic", topic), ("namespace", topic.rpartition("/")[0])):
            found = self.policies.get(name, {}).get(FIELD)
            if found is not None:
                return str(found), level
        return self.broker_value, "broker"

    def merged(self, topic: str) -> Raw:
        """What `applied=true` returns."""
        found: Raw = {**BROKER, FIELD: self.broker_value}
        for name in (topic.rpartition("/")[0], topic):
            found |= {field: value for field, value in self.policies.get(name, {}).items() if value is not None}
        return found

    def bad(self, topic: str, value: str) -> bool:
        """Whether it can be seen that a broker stalls."""
        return any(one.bad(value) for one in self.ledgers[topic])

    def clear(self, topic: str, value: str) -> bool:
        """Whether it can be seen that a broker reads all that any tier has."""
        return all(one.clear(value) for one in self.ledgers[topic])

    def meanwhile(self) -> None:
        """Something happens: a copy breaks or returns, a tier cannot be seen, another client changes a policy."""
        random = self.random
        for copies in (one for some in self.ledgers.values() for one in some):
            tiers = [tier for tier in ("bookkeeper", "tiered") if tier == "bookkeeper" or copies.info.complete]
            if random.random() < 0.03:
                tier = random.choice(tiers)
                if tier != "bookkeeper" or not copies.info.dropped:
                    copies.well[tier] = not copies.well[tier]
            copies.hidden = {tier for tier in tiers if random.random() < 0.03}
        if random.random() < 0.05:
            self.interfere(random.choice((*NAMESPACES, *TOPICS)))

    def interfere(self, name: str) -> None:
        """Another client changes a policy."""
        chosen, found = self.random.random(), self.policies.get(name)
        if found is None or chosen < 0.2:
            self.policies[name] = self.made()
        elif chosen < 0.4:
            del self.policies[name]
        elif chosen < 0.7:
            self.policies[name] = {**found, "unknown": self.random.randrange(1_000)}
        else:
            values = [value for value in (BK, TS, None) if value != self.replaced.get(name, BK)]
            self.policies[name] = {**found, FIELD: self.random.choice(values)}

    def calm(self) -> None:
        """Everything is whole and visible."""
        for copies in (one for some in self.ledgers.values() for one in some):
            copies.hidden = set()
            copies.well = {"bookkeeper": not copies.info.dropped, "tiered": copies.info.complete}


def fields_of(raw: Mapping[str, Any] | None) -> Raw:
    """All fields with a value but the priority."""
    return {name: value for name, value in (raw or {}).items() if name != FIELD and value is not None}
