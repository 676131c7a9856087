"""trueup sandbox up --rocketmq: two clusters, by name, and the configuration that declares them."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.configuration import load
from trueup.connectors.contract import Endpoint
from trueup.connectors.rocketmq.client.cluster import RocketMqClient
from trueup.state.replication.settings import LinkSettings
from trueup.state.settings.rocketmq import RocketMqCluster
from trueup.streams.cli.main import invoke

pytestmark = [pytest.mark.servers, pytest.mark.release]
Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def root(new_root: Callable[[], Path]) -> Iterator[Path]:
    place = new_root() / "sandbox"
    words = ["--racks", "1", "--autorecovery", "0", "--rocketmq", "--detach"]
    assert invoke(["sandbox", "up", "--dir", str(place), *words]) == 0
    yield place
    invoke(["sandbox", "down", "--dir", str(place)])


def down(answer: dict[str, Any]) -> set[str]:
    return {name for name, server in answer["servers"].items() if not server["alive"]}


def test_its_configuration_declares_both_clusters_and_a_link_that_only_observes(root: Path, ask: Ask) -> None:
    settings = load(root / "trueup.yaml", {}, {})
    wanted = {name: ask("status")["rocketmq"][f"{name}-names"] for name in ("hangzhou", "shanghai")}
    link = settings.table(LinkSettings)["hangzhou-shanghai"]
    assert {name: cluster.namesrv for name, cluster in settings.table(RocketMqCluster).items()} == wanted
    assert (link.source, link.target, link.mode) == ("hangzhou", "shanghai", "observe")


def test_doctor_finds_nothing_wrong_with_them(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    invoke(["doctor", "-c", str(root / "trueup.yaml"), "--skip-spark", "--set", "http.port=0", "-o", "json"])
    found = {row["name"]: row["status"] for row in json.loads(capsys.readouterr().out)}
    assert {name: found[name] for name in ("rocketmq.hangzhou", "rocketmq.shanghai")} == {
        "rocketmq.hangzhou": "ok",
        "rocketmq.shanghai": "ok",
    }


def test_the_table_names_their_addresses(root: Path, ask: Ask, capsys: pytest.CaptureFixture[str]) -> None:
    addresses = ask("status")["rocketmq"]
    invoke(["sandbox", "status", "--dir", str(root)])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    found = {line[0]: line[3] for line in lines if line and line[0] in addresses}
    assert (len(addresses), found) == (4, addresses)


def test_a_broker_is_killed_and_comes_back_to_its_cluster(ask: Ask) -> None:
    killed, started = down(ask("kill", "hangzhou-broker")), down(ask("start", "hangzhou"))
    address = ask("status")["rocketmq"]["hangzhou-names"]
    with RocketMqClient(Endpoint("hangzhou", address, 0, system="rocketmq")) as client:
        assert (killed, started, [*client.masters()]) == ({"hangzhou-broker"}, set(), ["hangzhou-broker"])


def test_a_cluster_is_killed_as_one(ask: Ask) -> None:
    killed, started = down(ask("kill", "shanghai")), down(ask("start", "shanghai"))
    assert (killed, started) == ({"shanghai-names", "shanghai-broker"}, set())
