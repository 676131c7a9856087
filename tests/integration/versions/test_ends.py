"""The oldest and the newest version of each system that `make versions` tries: some behaviour of each. The sandbox has
the newest version of some systems, so all other tests are about that one."""

import pytest

from tests.versions.__main__ import tried
from tests.versions.matrix import MATRIX
from trueup.sandbox.pulsar import SandboxPulsar
from trueup.sandbox.servers.rocketmq import VERSION as ROCKETMQ

pytestmark = [pytest.mark.servers, pytest.mark.timeout(900)]
TRIED = {
    "kafka-2.8.2": "all_codecs or lost_log_is_refilled or partitions_are_placed",
    "kafka-4.4.0": "all_codecs or lost_log_is_refilled or partitions_are_placed",
    "bookkeeper-4.14.7": "one_rack or lost_bookie_is_replaced or read_as_they_were_written",
    "bookkeeper-4.18.2": "one_rack or lost_bookie_is_replaced or read_as_they_were_written",
    "pulsar-3.0.7": "test_pulsar_nodes and plain",
    "zookeeper-3.6.4": "followed or lost_connection or votes_again",
    "zookeeper-3.9.5": "followed or lost_connection or votes_again",
    "rocketmq-4.9.7": "come_back or lost_log_is_refilled or doctor",
}


@pytest.mark.parametrize("name", TRIED)
def test_the_oldest_and_the_newest_version_work(name: str) -> None:
    found = tried(name, TRIED[name])
    assert [test for test, result in found.items() if result["failed"]] == ([] if found else ["none was run"])


def test_none_is_left_out() -> None:
    ends = {f"{system}-{version}" for system, versions in MATRIX.items() for version in (versions[0], versions[-1])}
    assert ends - {*TRIED} == {f"pulsar-{SandboxPulsar.version}", f"rocketmq-{ROCKETMQ}"}
