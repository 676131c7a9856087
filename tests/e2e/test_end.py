"""The application with every stream and ten links: suspension of its machine, and shutdown."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer

from tests.e2e.trueup import Trueup
from tests.replication.audit import ends
from tests.replication.pair import Pair
from tests.replication.writers import Site
from trueup.sandbox.cluster import SandboxCluster

pytestmark = [pytest.mark.servers, pytest.mark.release]
EACH, RECORDS = 5, 200
NETWORK_S = 12
SLEEP_S = 2.0 * NETWORK_S
AWAKE_S, END_S = 110.0, 20.0
"""Limits of one minute and of ten seconds, for a machine with twice the load that it can handle."""


@pytest.fixture(scope="module")
def pair(new_root: Callable[[], Path]) -> Iterator[Pair]:
    with Pair(new_root) as made:
        yield made


@pytest.fixture(scope="module")
def copies(pair: Pair) -> dict[str, tuple[Site, Site]]:
    """Source and target of each link, by link name. Half of the links copy in each direction."""
    made = {}
    for here, there in (("east", "west"), ("west", "east")):
        for number in range(EACH):
            topic = pair.topic()
            made[f"{here}-{there}-{number}"] = pair.site(here, topic), pair.site(there, topic)
    return made


@pytest.fixture(scope="module")
def trueup(
    start_cluster: Callable[..., SandboxCluster],
    pair: Pair,
    copies: dict[str, tuple[Site, Site]],
    new_root: Callable[[], Path],
) -> Iterator[Trueup]:
    links = {
        name: {"source": here.name, "target": there.name, "topics": [here.topic], "mode": "enforce"}
        for name, (here, there) in copies.items()
    }
    kafka = {
        name: {"bootstrap": getattr(pair, name).bootstrap, "bit": bit} for bit, name in enumerate(("east", "west"))
    }
    # By default, Spark ends after two minutes without a heartbeat. After a suspension, overdue heartbeats may arrive
    # before the timeout check. Heartbeats with the metrics of all processes arrive later.
    conf = {
        "spark.executor.heartbeatInterval": "4s",
        "spark.network.timeout": f"{NETWORK_S}s",
        "spark.network.timeoutInterval": "1s",
        "spark.executor.processTreeMetrics.enabled": "true",
    }
    cluster = start_cluster(racks={"/rack1": 1}, daemons=False)
    with Trueup(
        cluster,
        new_root(),
        kafka=kafka,
        links=links,
        logdirs={"east": {}, "west": {}},
        deletion={"owners": "pulsar"},
        placement={"mode": "enforce"},
        spark={"conf": conf},
    ) as made:
        made.start()
        yield made


def written(copies: dict[str, tuple[Site, Site]]) -> None:
    """Write records for every link."""
    for here, _ in copies.values():
        producer = Producer({"bootstrap.servers": here.bootstrap})
        for number in range(RECORDS):
            producer.produce(here.topic, b"%d" % number, partition=0)
        assert producer.flush(60) == 0


def arrived(copies: dict[str, tuple[Site, Site]]) -> bool:
    return all(ends(here) == ends(there) for here, there in copies.values())


def logged(trueup: Trueup, text: str) -> int:
    """Number of log lines with this text."""
    return trueup.process.output().count(text)


def signalled(processes: list[psutil.Process], number: int) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def test_it_outlives_the_sleep_of_its_machine(trueup: Trueup, copies: dict[str, tuple[Site, Site]]) -> None:
    asleep, jvm = trueup.processes(), trueup.jvm().pid
    signalled(asleep, signal.SIGSTOP)
    time.sleep(SLEEP_S)
    signalled(asleep, signal.SIGCONT)
    trueup.until("another session", lambda: logged(trueup, "Spark session replaced"), AWAKE_S)
    trueup.wait("readiness", lambda status: status["ready"], AWAKE_S)
    written(copies)
    trueup.until("the records to arrive", lambda: arrived(copies))
    found = trueup.jvm().pid != jvm, logged(trueup, "Spark session replaced"), logged(trueup, "Traceback")
    assert found == (True, 1, 0), trueup.diagnostics()


def test_it_ends_in_time_with_everything_it_does(trueup: Trueup, copies: dict[str, tuple[Site, Site]]) -> None:
    written(copies)
    trueup.until("the records to arrive", lambda: arrived(copies))
    begun = time.monotonic()
    code = trueup.end()
    took = time.monotonic() - begun
    assert (code, took < END_S, arrived(copies)) == (0, True, True), trueup.diagnostics()
