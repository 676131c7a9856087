import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from trueup.connectors.embedded.server import LocalServer
from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.servers.bookkeeper import rack_script
from trueup.state.common.errors import Stop


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SandboxCluster]:
    """A sandbox that is not started."""
    with SandboxCluster(tmp_path / "one", {"/a": 2, "/b": 1}, autorecovery=1) as made:
        yield made


def ports(cluster: SandboxCluster) -> set[str]:
    ids = [bookie.id for bookie in cluster.bookies.values()]
    return {cluster.zookeeper.address, *ids, *cluster.autorecovery_urls, *(b.url for b in cluster.bookies.values())}


def test_bookies_are_numbered_through_the_racks(cluster: SandboxCluster) -> None:
    assert {n: cluster.rack_of(n) for n in cluster.bookies} == {1: "/a", 2: "/a", 3: "/b"}


def test_servers_start_zookeeper_first_and_daemons_last(cluster: SandboxCluster) -> None:
    assert list(cluster.servers) == ["zookeeper", "bookie1", "bookie2", "bookie3", "autorecovery1"]


def test_a_start_tells_which_server_it_waits_for(cluster: SandboxCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    module = "trueup.sandbox.cluster"
    monkeypatch.setattr(f"{module}.jars", lambda *_: [])
    monkeypatch.setattr(SandboxCluster, "format", lambda _: None)
    for name in ("start", "wait_ready"):
        monkeypatch.setattr(LocalServer, name, lambda _: None)
    lines: list[tuple[str, int, int]] = []
    cluster.up(lambda *line: lines.append(line))
    waits = ["zookeeper", "the format of the cluster", "bookie1", "bookie2", "bookie3", "autorecovery1"]
    assert lines == [
        (f"waiting for {name}; servers ready", at, 5) for name, at in zip(waits, (0, 1, 1, 2, 3, 4), strict=True)
    ]


def test_two_sandboxes_share_no_port(cluster: SandboxCluster, tmp_path: Path) -> None:
    with SandboxCluster(tmp_path / "two", {"/a": 3}) as other:
        assert not ports(cluster) & ports(other)


def test_a_directory_used_again_keeps_its_ports(tmp_path: Path) -> None:
    with SandboxCluster(tmp_path, {"/a": 2}, kafka=True) as first:
        before = ports(first) | {first.kafka.bootstrap}
    with SandboxCluster(tmp_path, {"/a": 2}, kafka=True) as again:
        assert ports(again) | {again.kafka.bootstrap} == before


def test_kafka_is_there_only_when_asked_for(cluster: SandboxCluster) -> None:
    with pytest.raises(Stop, match="kafka=True"):
        _ = cluster.kafka


def test_the_rack_script_answers_once_for_each_address(tmp_path: Path) -> None:
    script = rack_script(tmp_path / "racks.sh", {"127.0.0.1": "/a", "127.0.0.2": "/b"})
    done = subprocess.run([script, "127.0.0.2", "192.0.2.7", "127.0.0.1"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["/b", "/a", "/a"]


def test_the_rack_script_answers_nothing_when_asked_nothing(tmp_path: Path) -> None:
    done = subprocess.run([rack_script(tmp_path / "racks.sh", {})], capture_output=True, text=True, check=True)
    assert done.stdout == ""


def test_rocketmq_clusters_start_before_the_daemons_and_stay_at_their_addresses(tmp_path: Path) -> None:
    with SandboxCluster(tmp_path, {"/a": 1}, autorecovery=1, rocketmq=True) as first:
        names, before = list(first.servers), {name: each.address for name, each in first.rocketmq.items()}
    with SandboxCluster(tmp_path, {"/a": 1}, autorecovery=1, rocketmq=True) as again:
        assert {name: each.address for name, each in again.rocketmq.items()} == before
    servers = [f"{cluster}-{server}" for cluster in ("hangzhou", "shanghai") for server in ("names", "broker")]
    assert names == ["zookeeper", "bookie1", *servers, "autorecovery1"]
