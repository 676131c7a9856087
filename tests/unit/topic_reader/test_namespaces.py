"""Ledgers of many topics, read together."""

from collections.abc import Iterator, Sequence

from trueup.connectors.pulsar.layout import PulsarPaths
from trueup.connectors.pulsar.messages import ManagedLedger
from trueup.connectors.pulsar.metadata import SHADOW
from trueup.connectors.pulsar.namespaces import ledgers
from trueup.connectors.pulsar.topics import PulsarTopic
from trueup.connectors.zookeeper.requests import Stat
from trueup.state.common.errors import Stop

STAT = Stat(*[0] * len(Stat._fields))


class FakePart(list[bytes]):
    """A response with these nodes."""

    zxid = 1

    @property
    def size(self) -> "FakePart":
        return self

    def tolist(self) -> list[int]:
        return [len(data) for data in self]

    def data(self, row: int) -> bytes:
        return self[row]

    def stat(self, row: int) -> Stat:
        return STAT


class FakeNodes:
    """A ZooKeeper client that has these nodes, by path."""

    def __init__(self, nodes: dict[str, bytes]) -> None:
        self.nodes = nodes

    def multi_read(self, _: str, names: Sequence[bytes], pace: object) -> Iterator[FakePart]:
        yield FakePart(self.nodes[f"/{name.decode()}"] for name in names)


def shadow_of(source: str) -> bytes:
    message = ManagedLedger()
    message.properties.add(key=SHADOW, value=source.encode())
    data: bytes = message.SerializeToString()
    return data


def test_a_source_that_is_no_path_is_an_error_of_its_shadow_topic_only() -> None:
    paths, good, bad = PulsarPaths(), PulsarTopic("t", "ns", "a"), PulsarTopic("t", "ns", "b")
    one = ManagedLedger()
    one.ledgerInfo.add(ledgerId=7)
    nodes = {paths.node(good.owner): one.SerializeToString(), paths.node(bad.owner): shadow_of("persistent://t/ns/..")}
    refused = list[PulsarTopic]()

    def note(topic: PulsarTopic, _: Stop) -> None:
        refused.append(topic)

    found = [topic for topic, _ in ledgers(FakeNodes(nodes), paths, [bad, good], note)]  # type: ignore[arg-type]
    assert (found, refused) == ([good], [bad])
