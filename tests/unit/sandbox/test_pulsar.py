from collections.abc import Iterator
from pathlib import Path

import pytest

from trueup.sandbox.pulsar import SandboxPulsar


@pytest.fixture
def pulsar(tmp_path: Path) -> Iterator[SandboxPulsar]:
    """A sandbox that is not started."""
    with SandboxPulsar(tmp_path, bookies=3) as made:
        yield made


def test_the_broker_starts_last(pulsar: SandboxPulsar) -> None:
    assert list(pulsar.servers) == ["zookeeper", "bookie1", "bookie2", "bookie3", "broker"]


def test_a_directory_used_again_keeps_the_addresses_of_the_broker(tmp_path: Path) -> None:
    with SandboxPulsar(tmp_path) as first:
        before = first.service_url, first.admin_url
    with SandboxPulsar(tmp_path) as again:
        assert (again.service_url, again.admin_url) == before


@pytest.mark.parametrize(("bookies", "replicas"), [(1, 1), (2, 2), (3, 2)])
def test_a_ledger_has_two_replicas_where_there_are_two_bookies(tmp_path: Path, bookies: int, replicas: int) -> None:
    with SandboxPulsar(tmp_path, bookies) as made:
        assert made.replicas == replicas
