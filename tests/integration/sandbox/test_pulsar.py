from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import urllib3
from kazoo.client import KazooClient

from trueup.connectors.embedded.processes import wait_until
from trueup.sandbox.forgetting import data_of, forget, listed, path, plant, truncate, unload
from trueup.sandbox.messages import MessageClient
from trueup.sandbox.pulsar import SandboxPulsar
from trueup.state.common.errors import Stop

pytestmark = [pytest.mark.servers, pytest.mark.release]

ENTRIES = 40


@pytest.fixture(scope="module")
def pulsar(new_root: Callable[[], Path]) -> Iterator[SandboxPulsar]:
    with SandboxPulsar(new_root(), settings={"managedLedgerMaxEntriesPerLedger": ENTRIES}) as made:
        made.up()
        yield made


@pytest.fixture
def messages(pulsar: SandboxPulsar) -> Iterator[MessageClient]:
    with MessageClient(pulsar.service_url) as client:
        yield client


@pytest.fixture
def zookeeper(pulsar: SandboxPulsar) -> Iterator[KazooClient]:
    client = KazooClient(pulsar.zookeeper.address)
    client.start(timeout=60.0)
    yield client
    client.stop()
    client.close()


def test_a_topic_is_read_back_through_the_death_of_the_broker(pulsar: SandboxPulsar, messages: MessageClient) -> None:
    messages.write("public/default/kept", range(200))
    with messages.writer("public/default/live") as writer:
        wait_until(lambda: len(writer.acknowledged) > 20, 180.0, "some messages")
        pulsar.kill("broker")
        before = writer.acknowledged
        pulsar.start("broker")
        wait_until(lambda: len(writer.acknowledged) > len(before) + 20, 180.0, "more messages")
        acknowledged = writer.stop()
    assert messages.read("public/default/kept") == (tuple(range(200)), 0)
    assert messages.read("public/default/live").missing(acknowledged) == []


def test_forgotten_ledgers_are_left_and_not_listed(
    pulsar: SandboxPulsar, messages: MessageClient, zookeeper: KazooClient
) -> None:
    topic = "public/default/forgets"
    messages.write(topic, range(4 * ENTRIES + 1))
    messages.write("public/default/remembers", range(100))
    forgotten = forget(pulsar, [topic])[topic]
    assert len(forgotten) == 4
    messages.write(topic, range(4 * ENTRIES + 1, 300))
    assert not set(forgotten) & set(listed(pulsar, topic))
    assert all(zookeeper.exists(path(ledger)) for ledger in forgotten)
    assert messages.read(topic).numbers == tuple(range(4 * ENTRIES, 300))
    assert messages.read("public/default/remembers").numbers == tuple(range(100))


def test_what_is_truncated_otherwise_is_deleted(
    pulsar: SandboxPulsar, messages: MessageClient, zookeeper: KazooClient
) -> None:
    messages.write("public/default/truncated", range(2 * ENTRIES + 1))
    dropped = truncate(pulsar, "public/default/truncated")
    wait_until(lambda: not any(zookeeper.exists(path(ledger)) for ledger in dropped), 180.0, "their deletion")
    assert len(dropped) == 2


def test_a_topic_loaded_again_has_another_open_ledger(pulsar: SandboxPulsar, messages: MessageClient) -> None:
    messages.write("public/default/unloaded", range(10))
    before = listed(pulsar, "public/default/unloaded")
    unload(pulsar, "public/default/unloaded")
    assert listed(pulsar, "public/default/unloaded")[:-1] == before


def test_a_planted_ledger_is_one_for_bookkeeper_too(pulsar: SandboxPulsar) -> None:
    owner = "public/default/persistent/never"
    ledger = plant(pulsar, data_of(owner))
    answer = urllib3.request("GET", f"{pulsar.bookies[1].url}/api/v1/ledger/metadata?ledger_id={ledger}").json()
    assert (answer[str(ledger)]["state"], answer[str(ledger)]["lastEntryId"]) == ("CLOSED", -1)


def test_ledgers_made_after_a_planted_one_have_higher_ids(pulsar: SandboxPulsar, messages: MessageClient) -> None:
    planted = plant(pulsar, data_of("public/default/persistent/later"))
    messages.write("public/default/later", range(1))
    assert min(listed(pulsar, "public/default/later")) > planted


def test_a_refusal_of_the_broker_is_reported(pulsar: SandboxPulsar) -> None:
    with pytest.raises(Stop, match="404"):
        pulsar.ask("GET", "persistent/public/default/never/internalStats")


def test_the_cluster_ends_in_order_and_comes_up_with_its_topics(pulsar: SandboxPulsar) -> None:
    with MessageClient(pulsar.service_url) as client:
        client.write("public/default/outlasts", range(60))
    pulsar.down(60.0)
    codes = {name: server.process.exit_code for name, server in pulsar.servers.items()}
    pulsar.up()
    with MessageClient(pulsar.service_url) as client:
        assert client.read("public/default/outlasts").numbers == tuple(range(60))
    assert -9 not in codes.values()
