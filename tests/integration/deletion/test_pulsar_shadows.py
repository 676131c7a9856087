"""Shadow topics (PIP-180), and topics that someone made one: nothing is deleted on their word."""

import pytest

from tests.integration.deletion.owners import TOPIC, Owners
from trueup.connectors.pulsar import messages
from trueup.connectors.pulsar.guarded_delete import DeleteOrder, Deleter
from trueup.connectors.pulsar.metadata import SHADOW
from trueup.connectors.pulsar.namespaces import ledgers
from trueup.connectors.pulsar.topics import PulsarTopic, topic_of
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.state.deletion.owners import Claim, Component

pytestmark = pytest.mark.servers


def make(owners: Owners, name: str, source: bytes, *ledgers: int) -> PulsarTopic:
    """A topic that lists these ledgers; a shadow topic, if it has a source."""
    message = messages.ManagedLedger(ledgerInfo=[{"ledgerId": ledger} for ledger in ledgers])
    if source:
        message.properties.add(key=SHADOW, value=source)
    topic = topic_of(f"t/ns/{name}")
    owners.make(owners.paths.node(topic.owner), message.SerializeToString())
    return topic


def test_the_ledgers_of_a_shadow_topic_are_those_of_its_source_and_a_bad_source_is_only_its_own_problem(
    client: ZooKeeperClient, own_root: str
) -> None:
    owners, bad = Owners(client, own_root), dict[PulsarTopic, str]()
    source = make(owners, "source", b"", 3, 4)
    good = make(owners, "good", b"persistent://t/ns/source", 3)
    odd, alone = make(owners, "odd", b"../..", 8), make(owners, "alone", b"t/ns/gone", 9)
    found = ledgers(
        client, owners.paths, [odd, alone, good, source], lambda topic, error: bad.update({topic: error.expected})
    )
    assert {topic: (log.topic, [info.ledger for info in log.ledgers]) for topic, log in found} == {
        source: (source, [3, 4]),
        good: (source, [3, 4]),
    }
    assert bad.keys() == {odd, alone}
    assert "shadow topic's source" in bad[alone]


def test_a_ledger_of_a_topic_that_was_made_a_shadow_is_not_deleted(client: ZooKeeperClient, own_root: str) -> None:
    owners = Owners(client, own_root)
    owners.ledger(5)
    make(owners, "a", b"persistent://t/ns/source", 8, 9)
    deleter = Deleter(
        client,
        owners.paths,
        owners.ledgers.ledger,
        owners.decode,
        lambda: 1,
        lambda *_: pytest.fail("no copy"),
        lambda: "",
    )
    (outcome,) = deleter.delete([DeleteOrder(5, 0, 7, Claim(Component.DATA, TOPIC))])
    assert (outcome.result, "shadow topic of persistent://t/ns/source" in outcome.detail) == ("refused", True)
