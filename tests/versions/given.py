"""The version that a suite runs against, as `tests.versions.__main__` gives it to the process, and its servers."""

import os
from collections.abc import Mapping
from pathlib import Path

from tests.replication.old_kafka import OldKafka
from tests.replication.pair import QUICK
from trueup.connectors.embedded.kafka import Kafka

VARIABLE = "TRUEUP_VERSION"
KRAFT = (3, 3)
"""The first version of Kafka whose brokers are run without ZooKeeper."""


def version() -> str:
    """The version, as in 2.8.2."""
    return os.environ[VARIABLE]


def since(*first: int) -> bool:
    """Whether the version is this one or a later one."""
    return tuple(map(int, version().split("."))) >= first


def kafka(root: Path, settings: Mapping[str, object] | None = None) -> Kafka | OldKafka:
    """A broker of the version, not started. It retains old records."""
    quick = {**QUICK, **(settings or {})}
    return Kafka(root, settings=quick, version=version()) if since(*KRAFT) else OldKafka(root, quick, version())
