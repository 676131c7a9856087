"""A broker version without support for cordons."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.configuration import parse
from trueup.connectors.contract import Endpoint
from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.kafka.logdirs.client import CORDON, LogDirsClient, ReplicaLocation
from trueup.state.common.errors import Stop
from trueup.state.logdirs.settings import PARTITION, SIZE
from trueup.state.logdirs.settings import LogDirsSettings as Policy
from trueup.streams.config.live import LiveSection
from trueup.streams.logdirs.checks import all_of
from trueup.streams.logdirs.executor import DirectoryBalancer
from trueup.streams.logdirs.reconciler import LogDirsReconciler

pytestmark = pytest.mark.servers
NODE = 1


@pytest.fixture(scope="module")
def paths(new_root: Callable[[], Path]) -> list[str]:
    root = new_root()
    return [str(root / name) for name in ("one", "two", "three")]


@pytest.fixture(scope="module")
def broker(paths: list[str], new_root: Callable[[], Path]) -> Iterator[Kafka]:
    with Kafka(new_root(), settings={"log.dirs": ",".join(paths)}, version="4.1.1") as made:
        made.up()
        yield made


@pytest.fixture(scope="module")
def disks(broker: Kafka) -> Iterator[LogDirsClient]:
    with LogDirsClient(Endpoint("old", broker.bootstrap, 0)) as made:
        yield made


def test_a_cordon_is_refused_before_the_broker_accepts_what_it_does_not_heed(
    disks: LogDirsClient, paths: list[str]
) -> None:
    with pytest.raises(Stop, match="a broker before"):
        disks.cordon(NODE, paths[:1])
    assert not disks._settings([NODE], CORDON)[NODE]


def test_the_fallback_of_strategy_size_is_reported(disks: LogDirsClient) -> None:
    result: list[tuple[object, ...]] = []
    balancer = DirectoryBalancer(
        {}, lambda *kept: result.append(kept), lambda *reported: result.append(reported), lambda *_: None
    )
    policy = LiveSection(lambda: Policy(mode="enforce", strategy=SIZE))
    dirs = LogDirsReconciler("old", policy, balancer, lambda: disks, lambda: 1, balancer._say)
    dirs.reconcile()
    decision = dirs.known[NODE].decision
    assert decision is not None
    assert (decision.strategy, decision.cordon, decision.rule, result) == (PARTITION, None, "logdirs.cannot-cordon", [])


def test_directories_are_chosen_for_a_topic_on_any_version(disks: LogDirsClient, paths: list[str]) -> None:
    disks.place([ReplicaLocation(NODE, "chosen", number, paths[2]) for number in range(3)])
    disks.create_topic("chosen", {number: [NODE] for number in range(3)}, {})

    def homes() -> list[str]:
        found = disks.look()[0].broker
        assert found is not None
        return [found.dirs[home].path for home in found.replicas.home.tolist()]

    wait_until(lambda: len(homes()) == 3, 180.0, "the partitions")
    assert set(homes()) == {paths[2]}


def test_the_doctor_warns(broker: Kafka) -> None:
    kafka = {"old": {"bootstrap": broker.bootstrap, "bit": 0}}
    (check,) = all_of(parse({"kafka": kafka, "logdirs": {"old": {}}}))
    assert (check.status, "it does not support cordons" in check.found) == ("warn", True)
