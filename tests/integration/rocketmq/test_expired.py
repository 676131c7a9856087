"""Messages that a broker deleted before they were copied."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conformance.memory import MemoryCluster, pump
from tests.integration.rocketmq import administration
from tests.integration.rocketmq.clusters import BORN_MS, Cluster, running, wait_for_figures
from tests.replication.pair import Copy
from trueup.connectors.contract import Assignment, Lease, LogId, Position
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.rocketmq.client import messages
from trueup.connectors.rocketmq.client.connection import RocketMqRequest
from trueup.connectors.rocketmq.client.dispatch import wait_dispatched
from trueup.connectors.rocketmq.protocol import batch

pytestmark = [pytest.mark.servers, pytest.mark.release]
BROKER, COUNT, SIZE = "broker-a", 48, 1 << 20
DELETE_EXPIRED = 329
"""RequestCode.DELETE_EXPIRED_COMMITLOG, which only operators send."""


@pytest.fixture(scope="module")
def cluster(new_root: Callable[[], Path]) -> Iterator[Cluster]:
    with running(new_root) as started:
        wait_for_figures(started.client, BROKER)
        yield started


def filled(cluster: Cluster) -> LogId:
    """A queue with messages in several files of the commit log. All files but the newest are deleted then."""
    [first], [log] = cluster.new_topic("first"), cluster.new_topic("expired")
    # If the message at the start of the commit log is gone, a broker answers with bytes of another one.
    for to, number in ((first, 0), *((log, number) for number in range(COUNT))):
        body = batch.encode([b"%d " % number + bytes(SIZE)], [b""], [0])
        cluster.client.ask(BROKER, messages.send_batch(to, body, BORN_MS))
    wait_dispatched(cluster.client, BROKER)
    administration.put_settings(cluster.client, BROKER, {"fileReservedTime": 0})
    cluster.client.ask(BROKER, RocketMqRequest(DELETE_EXPIRED, "delete expired files", {}, changes=True))  # type: ignore[arg-type]
    return log


def gone(cluster: Cluster, log: LogId) -> bool:
    """Whether the first message is gone. A broker deletes a file before it moves the start of the queue."""
    pulled = messages.pulled(cluster.client.ask(BROKER, messages.pull(log, 0, 1)))
    return pulled.start > 0 or (pulled.messages is not None and pulled.messages.offsets[0] > 0)


def test_messages_that_expired_are_counted_and_the_others_are_copied(cluster: Cluster) -> None:
    log, there = filled(cluster), MemoryCluster("west")
    wait_until(lambda: gone(cluster, log), 180.0, "the first file to be deleted")  # brokers begin after a minute
    there.create(log.topic, 1)
    held = Assignment(log, there.log(log.topic, 0), Position(0), 0)
    lease = Lease("east-west", cluster.endpoint(), there.endpoint(), 7, "records", (held,))
    copy = Copy(pump(), lease, lambda _: COUNT).to_the_end()
    found = [int((record.value or b"").partition(b" ")[0]) for _, record in there.read(log.topic, 0)]
    there.kill()
    assert 0 < copy.totals["lost"] < COUNT
    assert (found, copy.totals["copied"]) == ([*range(copy.totals["lost"], COUNT)], len(found))
