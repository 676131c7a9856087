"""Names of topics, beside the classes of Pulsar that decide about them: TopicName and SystemTopicNames."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.topic_reader.test_topic_names import OF_USERS, OURS, PLAIN, SERVICES
from trueup.connectors.pulsar.topics import PulsarTopic
from trueup.sandbox.gateway import Gateway
from trueup.sandbox.pulsar import SandboxPulsar

pytestmark = pytest.mark.servers
PIECES = [
    "a",
    "-partition-",
    "-partition-",
    "0",
    "1",
    "01",
    "2147483647",
    "2147483648",
    "+",
    "-",
    "\u0663",
    "\U0001d7db",
    " ",
    "~",
    "*",
    "%",
    ":",
    "ü",
    "-sub-COPY",
    "__change_events",
    "__transaction_pending_ack",
    "__transaction_log_",
    "transaction_coordinator_assign",
    "__transaction_buffer_snapshot_indexes",
]


@pytest.fixture(scope="module")
def pulsars(new_root: Callable[[], Path]) -> Iterator[Any]:
    gateway = Gateway("java", new_root(), f"pulsar-{SandboxPulsar.version}")
    yield gateway.java.org.apache.pulsar
    gateway.close()


def test_namespaces_of_brokers_are_those_of_pulsar(pulsars: Any) -> None:
    service = pulsars.broker.namespace.NamespaceService.isSystemServiceNamespace
    assert {name: service(name) for name in SERVICES} == SERVICES


def test_names_mean_what_they_mean_to_pulsar(pulsars: Any) -> None:
    naming = pulsars.common.naming
    rng = random.Random(7)
    made = {rng.choice(["a", "__"]) + "".join(rng.choices(PIECES, k=rng.randint(1, 6))) for _ in range(1_000)}
    for local in sorted({*PLAIN, *OURS, *OF_USERS, *made} - {"-partition-3"}):  # Pulsar refuses its schema
        for namespace in (("t", "ns"), ("pulsar", "system")):
            ours = PulsarTopic(*namespace, local)
            theirs = naming.TopicName.get(str(ours))
            assert (ours.partition, str(ours.whole), ours.owner, ours.schema, ours.system) == (
                theirs.getPartitionIndex(),
                theirs.getPartitionedTopicName(),
                theirs.getPersistenceNamingEncoding(),
                theirs.getSchemaName(),
                naming.SystemTopicNames.isSystemTopic(theirs),
            ), local
