"""The administrative port: cluster operations that links need besides records, for each pair of systems."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.conformance.harness import CLUSTERS, Cluster, Written, numbered
from tests.conformance.kafka import KafkaCluster
from tests.conformance.memory import SYSTEM, MemoryAdmin, MemoryCluster
from tests.integration.rocketmq.clusters import Cluster as RocketMqCluster
from tests.integration.rocketmq.clusters import running
from tests.replication.pair import Pair
from trueup.connectors.contract import Endpoint, LogId
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.replication.config_sync import Alignment
from trueup.connectors.replication.group_sync import GroupSync, OffsetMapping
from trueup.connectors.replication.heartbeat import Heartbeat
from trueup.connectors.replication.ports import ClusterAdmin, GroupCommits, Log
from trueup.connectors.rocketmq.client import messages
from trueup.connectors.rocketmq.protocol import batch
from trueup.state.common.errors import Stop
from trueup.state.replication.config_sync import AlignmentPolicy, diff
from trueup.state.replication.offset_map import OffsetMap
from trueup.state.replication.settings import Start
from trueup.streams.replication.clusters import admin_of
from trueup.streams.replication.links.snapshot import pairs

pytestmark = pytest.mark.servers

PAIRS = ["memory>memory", "memory>kafka", "kafka>memory", "rocketmq>rocketmq", "rocketmq>kafka", "kafka>rocketmq"]
USER = ("admin", "adminsecret12")


class RocketMqSide:
    """The operations of `tests.conformance.harness.Cluster` that these tests need, on a cluster of one broker."""

    def __init__(self, name: str, cluster: RocketMqCluster) -> None:
        self._name, self._cluster = name, cluster

    def endpoint(self) -> Endpoint:
        return self._cluster.endpoint(self._name, CLUSTERS[self._name])

    def log(self, topic: str, index: int) -> LogId:
        return LogId(topic, index, *self._cluster.brokers)

    def create(self, topic: str, logs: int) -> None:
        self._cluster.new_topic(topic, logs)

    def write(self, topic: str, records: Mapping[int, Sequence[Written]]) -> None:
        for index, some in records.items():
            log, bodies = self.log(topic, index), [record.value or b"" for record in some]
            body = batch.encode(bodies, [b""] * len(bodies), [0] * len(bodies))
            self._cluster.client.ask(log.place, messages.send_batch(log, body, some[0].timestamp))


Side = Cluster | RocketMqSide


class Sides:
    """Two clusters and their admins, with a topic of three logs at east."""

    def __init__(self, east: Side, west: Side, stack: ExitStack) -> None:
        self.east, self.west = east, west
        self.here, self.there = (stack.enter_context(closing(_admin(cluster))) for cluster in (east, west))
        self.topic = f"admin{time.monotonic_ns()}"
        east.create(self.topic, 3)
        east.write(self.topic, {0: numbered(10)})
        self.log = east.log(self.topic, 0)


def _admin(cluster: Side) -> ClusterAdmin:
    endpoint = cluster.endpoint()
    return MemoryAdmin(endpoint) if endpoint.system == SYSTEM else admin_of(endpoint)


@pytest.fixture(scope="module")
def clusters(pair: Pair, new_root: Callable[[], Path]) -> Iterator[Mapping[str, Mapping[str, Side]]]:
    """East of RocketMQ has ACL 2.0, west has none."""
    memory = {name: MemoryCluster(name) for name in CLUSTERS}
    name, secret = USER
    with running(new_root, user=USER, access_key=name, secret_key=secret) as east, running(new_root) as west:
        yield {
            "memory": memory,
            "kafka": {name: KafkaCluster(name, getattr(pair, name)) for name in CLUSTERS},
            "rocketmq": {"east": RocketMqSide("east", east), "west": RocketMqSide("west", west)},
        }
    for cluster in memory.values():
        cluster.kill()


@pytest.fixture(params=PAIRS)
def sides(clusters: Mapping[str, Mapping[str, Side]], request: pytest.FixtureRequest) -> Iterator[Sides]:
    east, west = (clusters[system][side] for side, system in zip(CLUSTERS, request.param.split(">"), strict=True))
    with ExitStack() as stack:
        yield Sides(east, west, stack)


def test_clusters_are_distinguished(sides: Sides) -> None:
    assert sides.here.cluster_id() != sides.there.cluster_id()


def test_a_topic_is_listed_with_its_logs_and_an_id_where_there_are_ids(sides: Sides) -> None:
    found = sides.here.topics([sides.topic, "nowhere"])
    logs = tuple(sides.east.log(sides.topic, index) for index in range(3))
    assert (list(found), found[sides.topic].logs) == ([sides.topic], logs)
    assert bool(found[sides.topic].id) == sides.here.can.topic_ids


def test_an_end_holds_what_was_acknowledged_after_the_time_it_may_lag(sides: Sides) -> None:
    time.sleep(sides.here.can.ends_lag_s)
    assert sides.here.logs([sides.log]) == {sides.log: Log(0, 10)}


@pytest.mark.parametrize(("kind", "expected"), [("earliest", 0), ("latest", 10)])
def test_a_copy_begins_at_the_configured_start(sides: Sides, kind: str, expected: int) -> None:
    time.sleep(sides.here.can.ends_lag_s)
    assert sides.here.starts([sides.log], Start(kind)) == {sides.log: expected}


def test_a_topic_is_made_at_the_target_and_its_logs_are_paired(sides: Sides) -> None:
    alignment, called = Alignment(sides.here, sides.there), {sides.topic: sides.topic}
    seen = alignment.look(called)
    outcomes = alignment.apply(diff(seen.source, seen.target, AlignmentPolicy(called, known=alignment.known())))
    assert [outcome.result for outcome in outcomes] == ["done"]
    wait_until(lambda: sides.topic in sides.there.topics([sides.topic], configs=False), 180.0, "the topic")
    logs = [admin.topics([sides.topic], configs=False)[sides.topic].logs for admin in (sides.here, sides.there)]
    assert pairs(logs[0], sides.topic, logs[1], {}) == dict(zip(*logs, strict=True))


def test_what_a_system_has_not_is_refused(sides: Sides) -> None:
    rights = [admin.rights for admin in (sides.here, sides.there) if not admin.can.rights]
    for ask in rights:
        with pytest.raises(Stop, match="rights"):
            ask()


@pytest.mark.parametrize("sides", ["rocketmq>rocketmq"], indirect=True)
def test_a_cluster_without_acl_says_so(sides: Sides) -> None:
    with pytest.raises(Stop, match="nothing is to be done if it has no ACL"):
        sides.there.rights()
    assert sides.here.rights() == []


@pytest.mark.parametrize("sides", ["memory>memory", "rocketmq>rocketmq"], indirect=True)
def test_a_group_goes_on_at_the_target(sides: Sides) -> None:
    sides.west.create(sides.topic, 3)
    to = sides.west.log(sides.topic, 0)
    here, there = sides.here.groups(), sides.there.groups()
    here.create({sides.topic: {}})
    here.commit({sides.topic: GroupCommits({sides.log: 4})})
    direction = OffsetMapping(to, OffsetMap().extend([(0, 0, 10)], 10, 0, 10))
    rows = GroupSync(here, there).sync([sides.topic], {sides.log: direction})
    assert ([row.action for row in rows], _committed(sides.there, sides.topic)) == (["moved"], {to: 4})


@pytest.mark.parametrize("sides", ["memory>memory", "rocketmq>rocketmq"], indirect=True)
def test_an_offset_that_is_reset_at_the_source_stays(sides: Sides) -> None:
    sides.west.create(sides.topic, 3)
    to, known = sides.west.log(sides.topic, 0), OffsetMap().extend([(0, 0, 10)], 10, 0, 10)
    here, there = sides.here.groups(), sides.there.groups()
    here.create({sides.topic: {}})
    here.commit({sides.topic: GroupCommits({sides.log: 4})})
    GroupSync(here, there).sync([sides.topic], {sides.log: OffsetMapping(to, known)})
    here.commit({sides.topic: GroupCommits({sides.log: 1})})
    back = GroupSync(sides.there.groups(), sides.here.groups())
    rows = back.sync([sides.topic], {to: OffsetMapping(sides.log, known, reverse=True)})
    assert ([row.action for row in rows], _committed(sides.here, sides.topic)) == (["kept"], {sides.log: 1})


def _committed(admin: ClusterAdmin, group: str) -> dict[LogId, int]:
    found = admin.groups().offsets([group])[group]
    assert isinstance(found, dict)
    return found


def test_heartbeats_arrive(sides: Sides) -> None:
    here, there = sides.here.heartbeats(f"{sides.topic}-beats"), sides.there.heartbeats(f"{sides.topic}-beats")
    with Heartbeat("east-west", 0, here, there) as heart:
        wait_until(lambda: heart.beat().lag_ms >= 0, 180.0, "a heartbeat")
        assert heart.beat()[-2:] == ("", "")
