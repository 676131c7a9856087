"""The version that a suite runs against, as `tests.versions.__main__` gives it to the process, and its servers."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

from tests.replication.old_kafka import OldKafka
from tests.replication.pair import QUICK
from tests.versions.matrix import WITH_ZOOKEEPER
from trueup.connectors.contract import Copier
from trueup.connectors.embedded.kafka import VERSION, Kafka
from trueup.state.common.errors import Retry

VARIABLE = "TRUEUP_VERSION"
KRAFT = (3, 3)
"""The first version of Kafka whose brokers are run without ZooKeeper, unless the name says otherwise."""
LAST_WITH_ZOOKEEPER = "3.9.1"


def version() -> str:
    """The version, as in 2.8.2."""
    return os.environ[VARIABLE].removesuffix(WITH_ZOOKEEPER)


def since(*first: int) -> bool:
    """Whether the version is this one or a later one."""
    return numbers(version()) >= first


def kafka(root: Path, settings: Mapping[str, object] | None = None) -> Kafka | OldKafka:
    """A broker of the version, not started. It retains old records."""
    quick = {**QUICK, **(settings or {})}
    if since(*KRAFT) and not os.environ[VARIABLE].endswith(WITH_ZOOKEEPER):
        return Kafka(root, settings=quick, version=version())
    return OldKafka(root, quick, version())


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


def reached(copier: Copier, offset: int) -> bool:
    """Whether the only log is at this offset, after another attempt to copy."""
    try:
        copier.copy(time.monotonic() + 0.2)
    except Retry:
        return False
    return copier.progress()[0].position.offset == offset
