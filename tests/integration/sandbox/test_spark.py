import json
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import urllib3

from trueup.connectors.embedded.processes import wait_until
from trueup.sandbox.servers.spark import StandaloneSpark

pytestmark = pytest.mark.servers


@pytest.fixture(scope="module")
def spark(new_root: Callable[[], Path]) -> Iterator[StandaloneSpark]:
    with StandaloneSpark(new_root(), workers=2, memory="512m") as made:
        made.up()
        yield made


def live_workers(spark: StandaloneSpark) -> int:
    answer = urllib3.request("GET", f"{spark.ui}/json/", retries=False, timeout=10.0)
    return int(json.loads(answer.data)["aliveworkers"])


def test_workers_register(spark: StandaloneSpark) -> None:
    assert live_workers(spark) == 2


def test_a_killed_worker_is_missed_and_comes_back(spark: StandaloneSpark) -> None:
    spark.workers[1].kill()
    wait_until(lambda: live_workers(spark) == 1, 180.0, "the master to miss it")
    spark.workers[1].up()
    assert live_workers(spark) == 2


def test_only_the_two_ports_of_each_daemon_listen_and_only_on_loopback(spark: StandaloneSpark) -> None:
    daemons = [spark.master, *spark.workers.values()]
    found = {
        (connection.laddr.ip.removeprefix("::ffff:"), connection.laddr.port)
        for daemon in daemons
        for connection in psutil.Process(daemon.process.pid).net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    assert found == {("127.0.0.1", port.number) for daemon in daemons for port in (daemon.port, daemon.web)}
