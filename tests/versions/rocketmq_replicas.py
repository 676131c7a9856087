"""RocketMQ clusters whose brokers are replicas of each other: DLedger before 5.0, controller mode from then on."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.conformance import test_connectors as connectors
from tests.conformance.harness import Harness, contents, numbered
from tests.conformance.memory import pump
from tests.conformance.rocketmq import MAIN, RocketMqCluster
from tests.versions import rocketmq as plain
from tests.versions.given import reached, since, version
from trueup.connectors.embedded.processes import Port, wait_until
from trueup.sandbox.servers.rocketmq import NameServer, RocketMqBroker
from trueup.state.common.errors import Retry, TrueupError

pytestmark = pytest.mark.servers
REPLICAS, LIMIT_S = 3, 180.0


class ReplicatedRocketMq(RocketMqCluster):
    """One broker name with several replicas, of which the name servers know one as master."""

    def __init__(self, name: str, new_root: Callable[[], Path], version: str) -> None:
        super().__init__(name, new_root, version=version)
        self.name_server.close()
        for broker in self.brokers:
            broker.close()
        self._peers = [Port() for _ in range(REPLICAS)]
        peers = ";".join(f"n{at}-{port}" for at, port in enumerate(self._peers))
        controller = {} if not since(5) else _controller(peers.partition(";")[0], new_root())
        self.name_server = NameServer(new_root(), f"names-{name}", version=version, settings=controller)
        self.brokers = [
            RocketMqBroker(
                new_root(),
                [self.name_server],
                MAIN,
                version=version,
                settings=_dledger(peers, at) if not since(5) else _controlled(str(self._peers[0])),
            )
            for at in range(REPLICAS)
        ]
        self.client = type(self.client)(self.endpoint())

    def close(self) -> None:
        super().close()
        for port in self._peers:
            port.release()

    @property
    def master(self) -> RocketMqBroker:
        """The replica that the name server knows as master. Raises `Retry` if there is none."""
        self.client.refresh()
        address = self.client.masters().get(MAIN)
        found = next((broker for broker in self.brokers if broker.address == address and broker.alive), None)
        if found is None:
            raise Retry("a master", str(address), "wait for the election")
        return found

    def has_master(self) -> bool:
        """Whether a living replica is master."""
        try:
            return self.master.alive
        except TrueupError:
            return False

    def replicated(self, topic: str) -> bool:
        """Whether every replica has the settings of a topic, which slaves fetch every few seconds."""
        files = [broker.root / "store" / "config" / "topics.json" for broker in self.brokers]
        return all(file.exists() and f'"{topic}"' in file.read_text() for file in files)


def _dledger(peers: str, at: int) -> dict[str, object]:
    return {"enableDLegerCommitLog": "true", "dLegerGroup": MAIN, "dLegerPeers": peers, "dLegerSelfId": f"n{at}"}


def _controller(peer: str, store: Path) -> dict[str, object]:
    return {
        "enableControllerInNamesrv": "true",
        "controllerDLegerGroup": "controllers",
        "controllerDLegerPeers": peer,
        "controllerDLegerSelfId": "n0",
        "controllerStorePath": store,
    }


def _controlled(controller: str) -> dict[str, object]:
    return {"enableControllerMode": "true", "controllerAddr": controller, "allAckInSyncStateSet": "true"}


@pytest.fixture(scope="module")
def given(new_root: Callable[[], Path]) -> Iterator[ReplicatedRocketMq]:
    with ExitStack() as stack:
        made = ReplicatedRocketMq("east", new_root, version())
        stack.callback(made.close)
        made.start()
        made.name_server.wait_ready()
        wait_until(made.has_master, LIMIT_S, "a master")
        yield made


newest = plain.newest


def test_a_link_goes_on_at_the_next_master(given: ReplicatedRocketMq, newest: RocketMqCluster) -> None:
    harness = Harness(given, newest, "records", connectors.PUMP, pump())
    topic = harness.topic()
    wait_until(lambda: given.replicated(topic), LIMIT_S, "replicas of the topic")
    with closing(harness.connector.open(harness.lease(topic))) as copier:
        harness.write("east", topic, {0: numbered(500)})
        wait_until(lambda: reached(copier, 500), LIMIT_S, "the copy")
        before = given.master
        before.kill()
        wait_until(given.has_master, LIMIT_S, "the next master")
        wait_until(lambda: written(harness, topic), LIMIT_S, "the next messages")
        wait_until(lambda: reached(copier, 1_000), LIMIT_S, "the copy from the next master")
    assert given.master is not before
    assert contents(harness.read("west", topic)) == numbered(1_000)


def written(harness: Harness, topic: str) -> bool:
    """Whether the next 500 messages are written; the master may not accept any yet."""
    if harness.side("east").end(harness.side("east").log(topic, 0)) >= 1_000:
        return True
    try:
        harness.write("east", topic, {0: numbered(500, 500)})
    except Retry:
        return False
    return True
