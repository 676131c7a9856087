"""The versions of each system that are tried."""

from collections.abc import Mapping, Sequence

WITH_ZOOKEEPER = "-zookeeper"
"""The end of the names of brokers of Kafka that are run with ZooKeeper although they need not be."""
MATRIX: Mapping[str, Sequence[str]] = {
    "kafka": (
        "2.8.2",
        "3.0.2",
        "3.3.2",
        "3.6.2",
        f"3.9.1{WITH_ZOOKEEPER}",
        "3.9.1",
        "4.0.2",
        "4.1.1",
        "4.2.2",
        "4.3.1",
        "4.4.0",
    ),
    "bookkeeper": ("4.14.7", "4.15.4", "4.16.6", "4.17.3", "4.18.0", "4.18.2"),
    "pulsar": ("3.0.7", "4.0.7", "4.2.4"),
    "zookeeper": ("3.6.4", "3.8.6", "3.9.5"),
    "rocketmq": ("4.9.7", "5.1.4", "5.3.3", "5.5.0"),
}
"""Oldest first. Each has a suite of the same name in this folder, and each version a lock. Brokers of Kafka before 3.3
are run with ZooKeeper."""

SUITES: Mapping[str, Sequence[str]] = {
    "pulsar": (
        "tests/integration/deletion/test_pulsar_nodes.py",
        "tests/integration/topic_reader/test_topics.py",
        "tests/e2e/test_deletion.py",
        "tests/e2e/test_tiered.py",
        "tests/e2e/test_reads.py",
    )
}
"""Instead of the tests in the file of the system: suites that run as they are. The file is a plugin of pytest then."""

WITHOUT_OFFLOADER: Mapping[str, Sequence[str]] = {
    "pulsar-3.0.7": (
        "tests/integration/deletion/test_pulsar_nodes.py",
        "tests/versions/untiered.py",
        "tests/e2e/test_deletion.py",
    )
}
"""The suites of a version of Pulsar of which no offloader is served, and which loads no other one."""


def suites(name: str) -> Sequence[str]:
    """The suites of a version that run as they are; none if its system has a file with tests."""
    return WITHOUT_OFFLOADER.get(name) or SUITES.get(split(name)[0], ())


def names() -> list[str]:
    """All of them, as in kafka-2.8.2."""
    return [f"{system}-{version}" for system, versions in MATRIX.items() for version in versions]


def split(name: str) -> tuple[str, str]:
    """The system and the version of a name."""
    system, _, version = name.partition("-")
    return system, version
