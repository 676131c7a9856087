"""RocketMQ: links in both directions between a cluster of one version and one of the newest.

Tests of other suites run here on these clusters.
"""

import copy
import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.configuration import parse
from tests.conformance import test_admins as admins
from tests.conformance import test_connectors as connectors
from tests.conformance.harness import Harness
from tests.conformance.memory import pump
from tests.conformance.rocketmq import KEYS, RocketMqCluster
from tests.versions.given import since, version
from trueup.connectors.replication.config_sync import Alignment, Outcome
from trueup.connectors.rocketmq.client import topics
from trueup.streams.replication import checks as link_checks
from trueup.streams.replication.clusters import admin_of

pytestmark = pytest.mark.servers

USER = ("adminuser", "adminsecret12")
"""Names of ACL 1.0 have more than six characters (PlainPermissionManager.java)."""
WAYS = ("from", "to")
"""Whether the cluster of the version is the source or the target."""
_groups = itertools.count(1)
Record = Callable[[str, object], None]


@pytest.fixture(scope="module")
def given(new_root: Callable[[], Path]) -> Iterator[RocketMqCluster]:
    """The cluster of the version. One of 4.9 requires signed requests (ACL 1.0)."""
    with ExitStack() as stack:
        made = RocketMqCluster("east", new_root, user=None if since(5) else USER, version=version())
        stack.callback(made.close)
        made.start()
        made.wait_ready()
        yield made


@pytest.fixture(scope="module")
def newest(new_root: Callable[[], Path]) -> Iterator[RocketMqCluster]:
    with ExitStack() as stack:
        made = RocketMqCluster("west", new_root)
        stack.callback(made.close)
        made.start()
        made.wait_ready()
        yield made


def ordered(given: RocketMqCluster, newest: RocketMqCluster, way: str) -> tuple[RocketMqCluster, RocketMqCluster]:
    """The source as east and the target as west."""
    east, west = map(copy.copy, (given, newest) if way == "from" else (newest, given))
    east._name, west._name = "east", "west"
    return east, west


@pytest.fixture(scope="module", params=WAYS)
def harness(given: RocketMqCluster, newest: RocketMqCluster, request: pytest.FixtureRequest) -> Harness:
    return Harness(*ordered(given, newest, request.param), "records", connectors.PUMP, pump())


@pytest.fixture(params=WAYS)
def sides(given: RocketMqCluster, newest: RocketMqCluster, request: pytest.FixtureRequest) -> Iterator[admins.Sides]:
    with ExitStack() as stack:
        yield admins.Sides(*ordered(given, newest, request.param), stack)


test_keys_values_headers_and_times_arrive = connectors.test_key_value_headers_and_time_arrive_as_they_are
test_nothing_comes_back_over_two_links = connectors.test_two_opposite_links_bring_each_record_to_the_other_side_once
test_a_lost_position_doubles_nothing = connectors.test_a_lost_position_doubles_nothing
test_a_copy_survives_the_death_of_its_target = connectors.test_a_copier_survives_the_death_of_its_target
test_a_lost_log_is_refilled = connectors.test_a_log_that_was_lost_is_refilled_once_however_often_the_worker_is_killed

test_clusters_are_distinguished = admins.test_clusters_are_distinguished
test_topics_are_listed = admins.test_a_topic_is_listed_with_its_logs_and_an_id_where_there_are_ids
test_a_copy_begins_at_the_start = admins.test_a_copy_begins_at_the_configured_start
test_topics_are_created_at_the_target = admins.test_a_topic_is_made_at_the_target_and_its_logs_are_paired
test_heartbeats_arrive = admins.test_heartbeats_arrive


def test_a_group_goes_on_at_the_target(sides: admins.Sides) -> None:
    admins.test_a_group_goes_on_at_the_target(sides)


def test_an_offset_that_is_reset_at_the_source_stays(sides: admins.Sides) -> None:
    admins.test_an_offset_that_is_reset_at_the_source_stays(sides)


def aligned(sides: admins.Sides, group: str) -> list[Outcome]:
    """The outcomes of one pass over the settings of a group."""
    alignment = Alignment(sides.here, sides.there)
    return alignment.apply(alignment.groups([group], (), back=False))


def test_default_settings_of_groups_are_equal(sides: admins.Sides) -> None:
    group = f"group{next(_groups)}"
    for cluster in (sides.east, sides.west):
        topics.put_group(cluster.client, cluster.brokers[0].name, {"groupName": group})  # type: ignore[union-attr]
    assert aligned(sides, group) == []


def test_settings_of_groups_are_aligned(
    given: RocketMqCluster, newest: RocketMqCluster, record_property: Record
) -> None:
    group = f"group{next(_groups)}"
    settings = {"retryMaxTimes": 3, "consumeMessageOrderly": True}
    for cluster, values in ((newest, settings), (given, {})):
        topics.put_group(cluster.client, cluster.brokers[0].name, {"groupName": group, **values})
    with ExitStack() as stack:
        sides = admins.Sides(*ordered(given, newest, "to"), stack)
        passes = [aligned(sides, group) for _ in range(2)]
    if passes[0][0].result == "refused":
        record_property("words", passes[0][0].detail)
    there = topics.groups(given.client, given.brokers[0].name)[group]
    kept = there.get("consumeMessageOrderly", False)
    assert (there["retryMaxTimes"], [[outcome.result for outcome in some] for some in passes]) == (
        3,
        [["done"], []] if kept else [["refused"], ["refused"]],
    )


def test_the_doctor_says_what_a_cluster_lacks(
    given: RocketMqCluster, newest: RocketMqCluster, record_property: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in zip(KEYS.values(), USER, strict=True):
        monkeypatch.setenv(variable, value)
    for cluster in (given, newest):
        cluster.create("linked", 1)
    east, west = given.endpoint(), newest.endpoint()
    clusters = {end.name: {"namesrv": end.address, "bit": end.bit} for end in (east, west)}
    clusters["east"] |= {} if since(5) else KEYS
    ways = {"there": ("east", "west"), "back": ("west", "east")}
    links = {name: {"source": here, "target": there, "topics": ["linked"]} for name, (here, there) in ways.items()}
    found = [*link_checks.all_of(parse({"rocketmq": clusters, "links": links}))]
    with closing(admin_of(east)) as admin:
        note = admin.notes("beats")[0]
    if " before " in note:
        record_property("words", note)
    assert ([check.status for check in found], note in found[0].found) == (["ok"] * 4, True)
