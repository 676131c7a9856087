"""ZooKeeper sessions for each module, and a separate part of the tree for each test."""

import itertools
from collections.abc import Iterator

import pytest

from tests.integration.bookkeeper.tree import Tree
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.sandbox.servers.zookeeper import ZooKeeper

_roots = itertools.count(1)


@pytest.fixture(scope="module")
def client(zookeeper: ZooKeeper) -> Iterator[ZooKeeperClient]:
    made = ZooKeeperClient(zookeeper.address, timeout=30.0).open(60.0)
    yield made
    made.shut()


@pytest.fixture
def own_root(request: pytest.FixtureRequest) -> str:
    """A path that no other test uses."""
    return "/" + "".join(c if c.isalnum() else "-" for c in f"{request.node.name} {next(_roots)}")


@pytest.fixture
def tree(client: ZooKeeperClient, own_root: str) -> Tree:
    return Tree(client, own_root)
