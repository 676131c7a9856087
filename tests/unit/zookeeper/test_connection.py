"""A server that responds with something other than ZooKeeper's protocol."""

from collections.abc import Iterator

import pytest

from tests.peer import Peer
from trueup.connectors.zookeeper.client import ZooKeeperClient

OPENING_BYTES = 49
"""Size of a session request. It must be read completely: otherwise a reset of the connection discards the response."""
SESSION = f"00000000{10_000:08x}{7:016x}{16:08x}{'00' * 17}"


@pytest.fixture
def peer() -> Iterator[Peer]:
    made = Peer()
    yield made
    made.close()


@pytest.mark.parametrize(
    "answer", ["", "00", "ff" * 15, "00000007" + "00" * 12, f"ffffffff{'00' * 12}0000000300000003"]
)
def test_the_client_connects_again_after_bytes_that_are_no_answer(peer: Peer, answer: str) -> None:
    client = ZooKeeperClient("{}:{}".format(*peer.address))
    peer.answers(OPENING_BYTES, SESSION, answer)
    client.start_async()
    try:
        peer.received()
        peer.answers(4)
        assert peer.received()
    finally:
        client.shut()
