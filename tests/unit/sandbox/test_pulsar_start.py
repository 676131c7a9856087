"""A Pulsar broker that ends while it starts."""

from pathlib import Path

import pytest

from trueup.connectors.embedded.processes import Port, Process
from trueup.sandbox.pulsar import PulsarBroker
from trueup.state.common.errors import Stop

LEADER = "KeeperErrorCode = NoNode for /loadbalance/leader"


class Ending(PulsarBroker):
    """Its first process prints a reason and ends; the next one runs."""

    def __init__(self, root: Path, reason: str) -> None:
        super().__init__(root, "127.0.0.1:1", Port(), Port(), "", {})
        self._reason = reason

    def make(self) -> Process:
        script = f"test -e again && touch running && exec sleep 60; touch again; echo '{self._reason}'; exit 1"
        return Process("broker", ["sh", "-c", f"cd {self.root}; {script}"], self.root / "server.log")

    def is_ready(self) -> bool:
        return self.alive and (self.root / "running").exists()


def start(root: Path, reason: str) -> bool:
    broker = Ending(root, reason)
    try:
        broker.up()
        return broker.alive
    finally:
        broker.close()


def test_a_broker_that_ends_because_its_predecessors_node_expired_is_started_again(tmp_path: Path) -> None:
    assert start(tmp_path, LEADER)


def test_a_broker_that_ends_for_another_reason_is_not_started_again(tmp_path: Path) -> None:
    with pytest.raises(Stop, match="exit code 1"):
        start(tmp_path, "another reason")
