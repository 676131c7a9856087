"""Shadow topics (PIP-180), and topics that someone made one: nothing is deleted on their word."""

import pytest

from tests.integration.deletion.owners import TOPIC, Owners
from trueup.connectors.pulsar import messages
from trueup.connectors.pulsar.guarded_delete import DeleteOrder, Deleter
from trueup.connectors.pulsar.metadata import SHADOW
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.state.deletion.owners import Claim, Component

pytestmark = pytest.mark.servers


def test_a_ledger_of_a_topic_that_was_made_a_shadow_is_not_deleted(client: ZooKeeperClient, own_root: str) -> None:
    owners = Owners(client, own_root)
    owners.ledger(5)
    message = messages.ManagedLedger(ledgerInfo=[{"ledgerId": 8}, {"ledgerId": 9}])
    message.properties.add(key=SHADOW, value=b"persistent://t/ns/source")
    owners.make(owners.paths.node(TOPIC), message.SerializeToString())
    deleter = Deleter(
        client, owners.paths, owners.ledgers.ledger, owners.decode, lambda: 1, lambda *_: pytest.fail("no copy")
    )
    (outcome,) = deleter.delete([DeleteOrder(5, 0, 7, Claim(Component.DATA, TOPIC))])
    assert (outcome.result, "shadow topic of persistent://t/ns/source" in outcome.detail) == ("refused", True)
