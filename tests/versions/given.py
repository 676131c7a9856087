"""The version that a suite runs against, as `tests.versions.__main__` gives it to the process, and its servers."""

import os
from collections.abc import Mapping
from pathlib import Path

from tests.replication.old_kafka import VERSION as LAST_WITH_ZOOKEEPER
from tests.replication.old_kafka import OldKafka
from tests.replication.pair import QUICK
from trueup.connectors.embedded.kafka import VERSION, Kafka

VARIABLE = "TRUEUP_VERSION"
KRAFT = (3, 3)
"""The first version of Kafka whose brokers are run without ZooKeeper."""


def version() -> str:
    """The version, as in 2.8.2."""
    return os.environ[VARIABLE]


def since(*first: int) -> bool:
    """Whether the version is this one or a later one."""
    return numbers(version()) >= first


def kafka(root: Path, settings: Mapping[str, object] | None = None) -> Kafka | OldKafka:
    """A broker of the version, not started. It retains old records."""
    quick = {**QUICK, **(settings or {})}
    return Kafka(root, settings=quick, version=version()) if since(*KRAFT) else OldKafka(root, quick, version())


def upgrade(broker: Kafka | OldKafka) -> None:
    """Stop a broker of the version and start it on its data with the newest one that can use them."""
    newest = VERSION if isinstance(broker, Kafka) else LAST_WITH_ZOOKEEPER
    broker.stop()
    broker._set = f"kafka-{version() if since(*numbers(newest)) else newest}"
    broker._process = None
    broker.up()


def numbers(text: str) -> tuple[int, ...]:
    """A version as numbers."""
    return tuple(map(int, text.split(".")))
