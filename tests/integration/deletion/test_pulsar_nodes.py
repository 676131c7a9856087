"""A real Pulsar: every ledger of the cluster is referenced by a node of the owner that its metadata names."""

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import chain
from pathlib import Path

import pulsar as library
import pytest

from trueup.connectors.bookkeeper.metadata.layout import BookKeeperPaths as LedgerPaths
from trueup.connectors.bookkeeper.metadata.queries import snapshot
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.pulsar.layout import PulsarPaths
from trueup.connectors.pulsar.nodes import pointers_of
from trueup.connectors.pulsar.queries import below, owned
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.sandbox.forgetting import listed, unload
from trueup.sandbox.messages import MessageClient
from trueup.sandbox.pulsar import SandboxPulsar
from trueup.state.deletion.owners import Claim, Component, OwnerStatus, Pointers, claim_of

pytestmark = pytest.mark.servers

COMPRESSED: dict[str, object] = {
    "managedLedgerInfoCompressionType": "LZ4",
    "managedCursorInfoCompressionType": "ZSTD",
    "managedLedgerInfoCompressionThresholdInBytes": 0,
    "managedCursorInfoCompressionThresholdInBytes": 0,
}
DELAYING: dict[str, object] = {
    "delayedDeliveryTrackerFactoryClassName": "org.apache.pulsar.broker.delayed.BucketDelayedDeliveryTrackerFactory",
    "delayedDeliveryMinIndexCountPerBucket": 10,
    "delayedDeliveryMaxTimeStepPerBucketSnapshotSegmentSeconds": 1,
}
PATHS = PulsarPaths()
READ, COMPACTED, DELAYED = "public/default/a:b", "public/default/compacted", "public/default/delayed"
READ_OWNER, COMPACTED_OWNER = "public/default/persistent/a%3Ab", "public/default/persistent/compacted"


@pytest.fixture(scope="module", params=[{}, COMPRESSED], ids=["plain", "compressed"])
def cluster(request: pytest.FixtureRequest, new_root: Callable[[], Path]) -> Iterator[SandboxPulsar]:
    """A topic with a cursor ledger, a compacted topic with a schema, and a topic with delayed messages."""
    with SandboxPulsar(new_root(), settings=DELAYING | request.param) as made:
        made.up()
        with MessageClient(made.service_url) as messages:
            messages.write(READ, range(120))
        client = library.Client(made.service_url, logger=library.FileLogger(library.LoggerLevel.Warn, os.devnull))
        start = library.InitialPosition.Earliest
        consumer = client.subscribe(f"persistent://{READ}", "sub/x", initial_position=start)
        for _ in range(60):
            consumer.acknowledge(consumer.receive(60_000))
        producer = client.create_producer(f"persistent://{COMPACTED}", schema=library.schema.StringSchema())
        for _ in range(3):
            producer.send("text", partition_key="key")
        producer.close()
        delay(client)
        made.ask("PUT", f"persistent/{COMPACTED}/compaction")
        wait_until(lambda: compacted_ledger(made) >= 0, 180.0, "a compacted ledger")
        yield made
        client.close()


def delay(client: library.Client) -> None:
    """Write enough delayed messages that some of their indexes are stored in ledgers."""
    client.subscribe(f"persistent://{DELAYED}", "sub/x", consumer_type=library.ConsumerType.Shared)
    producer = client.create_producer(f"persistent://{DELAYED}", batching_enabled=False)
    for _ in range(150):
        producer.send_async(b"later", lambda *_: None, deliver_after=timedelta(hours=1))
    producer.flush()


@pytest.fixture(scope="module")
def zookeeper_client(cluster: SandboxPulsar) -> Iterator[ZooKeeperClient]:
    client = ZooKeeperClient(cluster.zookeeper.address, timeout=30.0).open()
    yield client
    client.shut()


def compacted_ledger(cluster: SandboxPulsar) -> int:
    return int(cluster.ask("GET", f"persistent/{COMPACTED}/internalStats")["compactedLedger"]["ledgerId"])


def nodes(client: ZooKeeperClient) -> list[Pointers]:
    """All nodes that point to ledgers."""
    found = chain.from_iterable(below(client, [PATHS.ledgers, PATHS.schemas]))
    reported = (pointers_of(PATHS, node.path, node.data, node.stat, 0) for node in found if node.stat)
    return [node for node in reported if node]


def claims(client: ZooKeeperClient) -> dict[int, Claim]:
    """The owner that each ledger's metadata names."""
    batches = snapshot(client, LedgerPaths("/ledgers"), 0)
    return {record["ledger"]: claim_of(record["custom"]) for batch in batches for record in batch.records()}


def unowned(client: ZooKeeperClient) -> dict[int, Claim]:
    """Ledgers that no node of their owner references, or only a cursor other than the one in their metadata."""
    result = claims(client)
    owners = owned(client, PATHS, {claim.owner for claim in result.values() if claim.owner}, 0)
    return {
        ledger: claim
        for ledger, claim in result.items()
        if not any(ledger in n.ledgers for n in owners.get(claim.owner, []) if claim.name in ("", n.name))
    }


def test_nodes_are_in_the_form_that_was_asked_for(
    cluster: SandboxPulsar, zookeeper_client: ZooKeeperClient, request: pytest.FixtureRequest
) -> None:
    found = zookeeper_client.look(PATHS.node(READ_OWNER))
    assert found is not None
    assert found[0].startswith(b"Gx") == ("compressed" in request.node.name)


def test_every_node_can_be_read(cluster: SandboxPulsar, zookeeper_client: ZooKeeperClient) -> None:
    assert [node for node in nodes(zookeeper_client) if node.status is not OwnerStatus.READABLE] == []


def test_a_managed_ledger_lists_the_ledgers_that_the_broker_reports(
    cluster: SandboxPulsar, zookeeper_client: ZooKeeperClient
) -> None:
    own = owned(zookeeper_client, PATHS, [READ_OWNER], 0)[READ_OWNER][0]
    assert (own.ledgers, len(own.ledgers)) == (tuple(listed(cluster, READ)), 3)


def test_a_cursor_with_a_ledger_of_its_own_points_to_it(
    cluster: SandboxPulsar, zookeeper_client: ZooKeeperClient
) -> None:
    (cursor,) = owned(zookeeper_client, PATHS, [READ_OWNER], 0)[READ_OWNER][1:]
    result = claims(zookeeper_client)
    found = [result[ledger] for ledger in cursor.ledgers]
    assert (cursor.elsewhere, found) == (True, [Claim(Component.CURSOR, READ_OWNER, "sub%2Fx")])


@pytest.fixture(scope="module")
def unloaded(cluster: SandboxPulsar, zookeeper_client: ZooKeeperClient) -> tuple[int, Pointers]:
    """The compacted ledger, and its cursor's node before the topic was unloaded."""
    ledger = compacted_ledger(cluster)
    (cursor,) = owned(zookeeper_client, PATHS, [COMPACTED_OWNER], 0)[COMPACTED_OWNER][1:]
    unload(cluster, COMPACTED)
    return ledger, cursor


def test_a_compacted_ledger_is_pointed_to_only_once_its_cursor_is_closed(
    unloaded: tuple[int, Pointers], zookeeper_client: ZooKeeperClient
) -> None:
    ledger, before = unloaded
    (after,) = owned(zookeeper_client, PATHS, [COMPACTED_OWNER], 0)[COMPACTED_OWNER][1:]
    assert (before.elsewhere, ledger in before.ledgers) == (True, False)
    assert (after.elsewhere, ledger in after.ledgers) == (False, True)


@pytest.mark.usefixtures("unloaded")
def test_every_ledger_of_the_cluster_has_an_owner_that_points_to_it(zookeeper_client: ZooKeeperClient) -> None:
    def result() -> set[Component]:
        return {claim.component for claim in claims(zookeeper_client).values()}

    wait_until(lambda: Component.DELAYED in result(), 180.0, "a ledger of delayed messages")
    wait_until(lambda: not unowned(zookeeper_client), 180.0, "every ledger to be pointed to")
    assert result() == set(Component) - {Component.UNKNOWN}
