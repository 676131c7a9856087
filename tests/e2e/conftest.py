"""Fixtures for each module: clients that write to the cluster, and clients that check it independently of Trueup."""

from collections.abc import Iterator

import pytest

from tests.e2e.trueup import Witness
from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.demo.truth import Truth
from trueup.sandbox.messages import MessageClient
from trueup.sandbox.pulsar import SandboxPulsar
from trueup.sandbox.writer import LedgerWriter


@pytest.fixture(scope="module")
def writer(cluster: SandboxCluster) -> Iterator[LedgerWriter]:
    with LedgerWriter(cluster) as made:
        yield made


@pytest.fixture(scope="module")
def witness(cluster: SandboxCluster) -> Iterator[Witness]:
    made = Witness(cluster)
    yield made
    made.close()


@pytest.fixture(scope="module")
def truth(cluster: SandboxCluster) -> Iterator[Truth]:
    with Truth(cluster) as made:
        yield made


@pytest.fixture(scope="module")
def messages(cluster: SandboxPulsar) -> Iterator[MessageClient]:
    with MessageClient(cluster.service_url) as made:
        yield made
