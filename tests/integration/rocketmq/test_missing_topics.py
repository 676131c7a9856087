"""Messages to topics that do not exist, on a broker that creates topics for messages, which is its default."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.rocketmq import administration
from tests.integration.rocketmq.clusters import BORN_MS, Cluster, running
from trueup.connectors.rocketmq.client import messages, topics
from trueup.connectors.rocketmq.client.codes import NoRoute
from trueup.connectors.rocketmq.protocol import batch

pytestmark = pytest.mark.servers


@pytest.fixture(scope="module")
def cluster(new_root: Callable[[], Path]) -> Iterator[Cluster]:
    with running(new_root, settings={"autoCreateTopicEnable": "true"}) as started:
        yield started


@pytest.mark.parametrize("several", [False, True])
def test_a_message_does_not_bring_a_deleted_topic_back(cluster: Cluster, several: bool) -> None:
    [log] = cluster.new_topic(f"deleted-{several:d}")
    body = batch.encode([b"x"], [b""], [0]) if several else b"x"
    request = (messages.send_batch if several else messages.send)(log, body, BORN_MS)
    cluster.client.ask(log.place, request)
    administration.drop_topic(cluster.client, log.topic)
    with pytest.raises(NoRoute):
        cluster.client.ask(log.place, request)
    assert topics.topic(cluster.client, log.place, log.topic) is None
