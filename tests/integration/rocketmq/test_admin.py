"""The administration of a RocketMQ cluster of two brokers with ACL 2.0, by links."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.integration.rocketmq import administration
from tests.integration.rocketmq.clusters import BORN_MS, Cluster, running
from trueup.connectors.contract import LogId
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.replication.config_sync import Alignment
from trueup.connectors.replication.ports import GroupCommits, Log
from trueup.connectors.rocketmq.client import group_offsets, messages, rights, topics
from trueup.connectors.rocketmq.client.connection import RocketMqRequest
from trueup.connectors.rocketmq.protocol import batch
from trueup.connectors.rocketmq.replication.admin import RocketMqAdmin
from trueup.connectors.rocketmq.replication.heartbeat import RIP_45, RocketMqHeartbeats, queue_of
from trueup.connectors.rocketmq.replication.identity import PREFIX
from trueup.state.common.errors import Retry, Stop
from trueup.state.replication.config_sync import AclScope, Action, ChangeKind, Right, diff_rights
from trueup.state.replication.group_settings import diff_groups
from trueup.state.replication.settings import Start

pytestmark = pytest.mark.servers
ADMIN, BROKERS = ("admin", "adminsecret12"), ("broker-a", "broker-b")
LINK = {"username": "link", "userType": "Normal", "userStatus": "enable"}
READ = Right("topic", "literal", "orders", "User:link", "*", "read", "allow")
HEARTBEAT = 34
"""RequestCode.HEART_BEAT, which only members of groups send."""


@pytest.fixture(scope="module")
def cluster(new_root: Callable[[], Path]) -> Iterator[Cluster]:
    name, secret = ADMIN
    with running(new_root, brokers=BROKERS, user=ADMIN, access_key=name, secret_key=secret) as started:
        for broker in BROKERS:
            administration.put_user(started.client, broker, LINK, "linksecret1")
        yield started


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[RocketMqAdmin]:
    with RocketMqAdmin(cluster.endpoint()) as made:
        yield made


@pytest.fixture
def no_rights(cluster: Cluster) -> Iterator[None]:
    """Remove the rights of the user link afterwards."""
    yield
    for broker in BROKERS:
        if READ.principal in rights.rights(cluster.client, broker):
            rights.drop_rights(cluster.client, broker, READ.principal)


def act(admin: RocketMqAdmin, kind: ChangeKind, topic: str, **more: Any) -> None:
    """Execute an action, which must succeed."""
    assert admin.apply(kind, [Action(kind, topic, "", "", **more)]) == [None]


def write(cluster: Cluster, log: LogId, count: int) -> None:
    body = batch.encode([b"x" * 100] * count, [b""] * count, [0] * count)
    cluster.client.ask(log.place, messages.send_batch(log, body, BORN_MS))


def on(cluster: Cluster, topic: str) -> list[topics.RocketMqTopic | None]:
    return [topics.topic(cluster.client, broker, topic) for broker in BROKERS]


def test_a_cluster_has_one_id_on_all_brokers(cluster: Cluster, admin: RocketMqAdmin) -> None:
    first = admin.cluster_id()
    with RocketMqAdmin(cluster.endpoint()) as other:
        assert other.cluster_id() == first
    groups = [name for broker in BROKERS for name in topics.groups(cluster.client, broker) if name.startswith(PREFIX)]
    assert groups == [PREFIX + first] * 2


def test_a_broker_without_the_id_gets_it(cluster: Cluster, admin: RocketMqAdmin) -> None:
    first = admin.cluster_id()
    administration.drop_group(cluster.client, BROKERS[0], PREFIX + first)
    assert admin.cluster_id() == first
    assert PREFIX + first in topics.groups(cluster.client, BROKERS[0])


def test_brokers_of_two_clusters_are_refused(cluster: Cluster, admin: RocketMqAdmin) -> None:
    first = admin.cluster_id()
    topics.put_group(cluster.client, BROKERS[1], {"groupName": PREFIX + "f" * 32})
    with pytest.raises(Stop, match="f on broker-b") as refused:
        admin.cluster_id()
    administration.drop_group(cluster.client, BROKERS[1], PREFIX + "f" * 32)
    assert first in str(refused.value)
    assert admin.cluster_id() == first


def test_names_are_those_of_applications(cluster: Cluster, admin: RocketMqAdmin) -> None:
    cluster.new_topic("seen")
    hidden = {"sandbox", "sandbox_REPLY_TOPIC", *BROKERS, "BenchmarkTest"}
    assert hidden <= {name for broker in BROKERS for name in topics.topics(cluster.client, broker)}
    assert "seen" in admin.names()
    assert not hidden & set(admin.names())


def test_a_topic_is_made_on_all_brokers_and_grows(cluster: Cluster, admin: RocketMqAdmin) -> None:
    for _ in range(2):
        act(admin, ChangeKind.CREATE, "made", partitions=3, configs={"attributes.message.type": "FIFO"})
    made = topics.RocketMqTopic("made", 2, 2, attributes={"message.type": "FIFO"})
    assert on(cluster, "made") == [made] * 2
    act(admin, ChangeKind.GROW, "made", partitions=6)
    assert [(one.read, one.write, one.attributes) for one in on(cluster, "made") if one] == [
        (3, 3, made.attributes)
    ] * 2
    found = admin.topics(["made"])["made"]
    assert found.logs == tuple(LogId("made", number, broker) for broker in BROKERS for number in range(3))


def test_settings_are_set_and_removed_on_all_brokers(cluster: Cluster, admin: RocketMqAdmin) -> None:
    act(admin, ChangeKind.CREATE, "set", partitions=2, configs={"attributes.message.type": "FIFO", "order": "true"})
    act(admin, ChangeKind.SET, "set", configs={"attributes.message.type": None, "order": None, "perm": "2"})
    assert on(cluster, "set") == [topics.RocketMqTopic("set", 1, 1, permissions=2)] * 2
    act(admin, ChangeKind.SET, "set", configs={"attributes.message.type": "DELAY", "perm": None})
    assert on(cluster, "set") == [topics.RocketMqTopic("set", 1, 1, attributes={"message.type": "DELAY"})] * 2


def test_a_topic_that_is_on_one_broker_grows_there(cluster: Cluster, admin: RocketMqAdmin) -> None:
    topics.put_topic(cluster.client, BROKERS[1], topics.RocketMqTopic("single", 1, 1))
    act(admin, ChangeKind.GROW, "single", partitions=3)
    assert on(cluster, "single") == [None, topics.RocketMqTopic("single", 3, 3)]


def test_an_end_holds_what_was_just_acknowledged(cluster: Cluster, admin: RocketMqAdmin) -> None:
    log = cluster.new_topic("burst")[0]
    seen = list[int]()
    for _ in range(20):
        write(cluster, log, 2_000)
        seen.append(admin.logs([log])[log].end)
    assert seen == [2_000 * n for n in range(1, 21)]


@pytest.mark.parametrize(
    ("log", "found"),
    [(LogId("nowhere", 0, BROKERS[0]), "no such topic there"), (LogId("few", 1, BROKERS[0]), "1 queue there")],
)
def test_a_queue_that_does_not_exist_is_an_error_and_not_empty(
    cluster: Cluster, admin: RocketMqAdmin, log: LogId, found: str
) -> None:
    cluster.new_topic("few")
    assert found in admin.logs([log])[log].error


def test_a_copy_begins_where_it_should(cluster: Cluster, admin: RocketMqAdmin) -> None:
    log, other = cluster.new_topic("begins")
    write(cluster, log, 3)
    with cluster.client.connect(log.place) as connection:
        wait_until(lambda: messages.offset_of(connection.ask(messages.end_offset(log))) == 3, 180.0, "3 messages")
        stored = messages.pulled(connection.ask(messages.pull(log, 0, 10))).messages
    assert stored is not None
    admin.groups().create({"begins": {}})
    admin.groups().commit({"begins": GroupCommits({log: 2})})
    asked = [Start("earliest"), Start("latest"), Start("time", stored.stored[-1] + 1), Start("group", group="begins")]
    found = [admin.starts([log, other], start) for start in asked]
    assert [(one[log], one[other]) for one in found] == [(0, 0), (3, 0), (3, 0), (2, 0)]


def test_a_link_starts_where_the_merged_replicator_stopped(cluster: Cluster, admin: RocketMqAdmin) -> None:
    log, group = cluster.new_topic("moved")[0], "CID_RMQ_SYS_REPLICATOR_connector1"
    write(cluster, log, 3)
    topics.put_group(cluster.client, log.place, {"groupName": group})
    group_offsets.commit(cluster.client, group, log, 2)
    assert admin.starts([log], Start("group", group=group)) == {log: 2}


def test_a_right_is_granted_and_revoked_on_all_brokers(cluster: Cluster, admin: RocketMqAdmin, no_rights: None) -> None:
    act(admin, ChangeKind.ALLOW, "orders", right=READ)
    act(admin, ChangeKind.ALLOW, "orders", right=READ._replace(name="other", operation="describe"))
    for broker in BROKERS:
        found = rights.rights(cluster.client, broker)[READ.principal]["policies"]
        assert {e["resource"]: e["actions"] for p in found for e in p["entries"]} == {
            "Topic:orders": ["Sub"],
            "Topic:other": ["Get"],
        }
    act(admin, ChangeKind.REVOKE, "orders", right=READ)
    assert admin.rights() == [READ._replace(name="other", operation="describe")]


def test_rights_that_need_several_entries_are_stored_as_they_are(
    cluster: Cluster, admin: RocketMqAdmin, no_rights: None
) -> None:
    wanted = {
        READ,
        READ._replace(operation="write", host="10.0.0.1"),
        READ._replace(permission="deny", operation="delete"),
        READ._replace(pattern="prefixed", name="ord"),
        READ._replace(resource="group", name="billing"),
    }
    for right in sorted(wanted):
        act(admin, ChangeKind.ALLOW if right.permission == "allow" else ChangeKind.DENY, "orders", right=right)
    assert set(admin.rights()) == wanted
    denied = READ._replace(permission="deny", operation="delete")
    act(admin, ChangeKind.RELENT, "orders", right=denied)
    assert set(admin.rights()) == wanted - {denied}


def test_a_right_that_is_revoked_at_the_source_is_revoked_at_the_target(admin: RocketMqAdmin, no_rights: None) -> None:
    """The same cluster is both, with another topic. A right that the link did not grant stays."""
    alignment, scope, managed = Alignment(admin, admin), AclScope({"orders": "copied"}), set[Right]()

    def align() -> set[Right]:
        nonlocal managed
        actions, _ = diff_rights(*alignment.rights(), scope, managed)
        assert {outcome.result for outcome in alignment.apply(actions)} <= {"done"}
        _, managed = diff_rights(*alignment.rights(), scope, managed)
        return {right for right in admin.rights() if right.name == "copied"}

    other = READ._replace(name="copied", operation="describe")
    act(admin, ChangeKind.ALLOW, "copied", right=other)
    act(admin, ChangeKind.ALLOW, "orders", right=READ)
    granted = align()
    act(admin, ChangeKind.REVOKE, "orders", right=READ)
    assert (granted, align()) == ({READ._replace(name="copied"), other}, {other})


def test_a_right_of_a_user_that_does_not_exist_says_what_to_do(admin: RocketMqAdmin) -> None:
    right = READ._replace(principal="User:nobody")
    [refused] = admin.apply(ChangeKind.ALLOW, [Action(ChangeKind.ALLOW, "orders", "", "", right=right)])
    assert isinstance(refused, Stop)
    assert "create the user before its rights" in str(refused)


def test_a_client_without_rights_sees_the_cluster_and_not_its_queues(cluster: Cluster, no_rights: None) -> None:
    log = cluster.new_topic("guarded")[0]
    with RocketMqAdmin(cluster.endpoint(access_key="link", secret_key="linksecret1")) as admin:
        assert admin.cluster_id()
        assert "guarded" in admin.names()
        assert log in admin.topics(["guarded"])["guarded"].logs
        assert isinstance(admin.groups().offsets(["any"])["any"], dict)
        assert "no permission to access Topic:guarded" in admin.logs([log])[log].error


LEAST = {
    "Topic:lean": "Create Sub Get",
    "Topic:lean-beats": "Create Pub Sub Get",
    "Group:lean": "Sub Get",
    f"Group:{messages.READERS}": "Sub",
    "Cluster:*": "Get Update",
}
"""The rights that `docs/rocketmq.md` lists for the administration of a target."""


def test_the_least_rights_suffice(cluster: Cluster, no_rights: None) -> None:
    entries = [
        {"resource": resource, "actions": actions.split(), "sourceIps": [], "decision": "Allow"}
        for resource, actions in LEAST.items()
    ]
    for broker in BROKERS:
        policies = [{"policyType": "Custom", "entries": entries}]
        rights.put_rights(cluster.client, broker, {"subject": READ.principal, "policies": policies})
    with RocketMqAdmin(cluster.endpoint(access_key="link", secret_key="linksecret1")) as admin:
        create = Action(ChangeKind.CREATE, "lean", "", "", partitions=2)
        wait_until(lambda: admin.apply(create.kind, [create]) == [None], 180.0, "the rights to be in effect")
        act(admin, ChangeKind.GROW, "lean", partitions=4)
        act(admin, ChangeKind.SET, "lean", configs={"order": "true"})
        logs = admin.topics(["lean"])["lean"].logs
        assert set(admin.logs(logs).values()) == {Log(0, 0)}
        groups = admin.groups()
        groups.create({"lean": {}})
        assert groups.states()["lean"] == "empty"
        assert groups.commit({"lean": GroupCommits({logs[0]: 0})}) == {"lean": {logs[0]: ""}}
        granted = READ._replace(name="lean", operation="read")
        act(admin, ChangeKind.ALLOW, "lean", right=granted)
        assert granted in admin.rights()
        act(admin, ChangeKind.REVOKE, "lean", right=granted)
        assert granted not in admin.rights()
    assert beating(cluster, "lean-beats", access_key="link", secret_key="linksecret1") == "lean-beats"


def test_offsets_of_groups_are_committed_where_acl_is_on(cluster: Cluster, admin: RocketMqAdmin) -> None:
    log, group = cluster.new_topic("signed")[0], "signed"
    write(cluster, log, 3)
    admin.groups().create({group: {}})
    with RocketMqAdmin(cluster.endpoint(access_key="", secret_key="")) as unsigned:
        refused = str(unsigned.groups().commit({group: GroupCommits({log: 2})})[group])
    committed = admin.groups().commit({group: GroupCommits({log: 2})})
    assert ("username cannot be null" in refused, committed) == (True, {group: {log: ""}})
    assert group_offsets.offset(cluster.client, group, log) == 2


def test_a_group_with_members_is_left_alone(cluster: Cluster, admin: RocketMqAdmin) -> None:
    log = cluster.new_topic("grouped")[0]
    groups = admin.groups()
    groups.create({"billing": {"consumeMessageOrderly": True}})
    assert groups.settings(["billing"])["billing"]["consumeMessageOrderly"] is True
    assert (groups.states()["billing"], groups.commit({"billing": GroupCommits({log: 1})})) == (
        "empty",
        {"billing": {log: ""}},
    )
    with cluster.client.connect(BROKERS[1]) as member:
        member.ask(RocketMqRequest(HEARTBEAT, "join a group", {}, json.dumps(joining("billing")).encode()))  # type: ignore[arg-type]
        assert groups.states()["billing"] == "active"
        assert groups.commit({"billing": GroupCommits({log: 2})}) == {
            "billing": {log: "the group has members: member-1"}
        }
    assert groups.offsets(["billing"]) == {"billing": {log: 1}}
    wait_until(lambda: groups.states()["billing"] == "empty", 180.0, "the member to leave")


def joining(group: str) -> dict[str, object]:
    """HeartbeatData.java of one push consumer."""
    member = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [],
        "unitMode": False,
    }
    return {"clientID": "member-1", "producerDataSet": [], "consumerDataSet": [member]}


def test_a_group_that_does_not_exist_is_refused_by_name(cluster: Cluster, admin: RocketMqAdmin) -> None:
    log = cluster.new_topic("ungrouped")[0]
    assert "create the subscription group" in admin.groups().commit({"unknown": GroupCommits({log: 1})})["unknown"][log]  # type: ignore[index]


def test_a_group_that_one_broker_has_is_created_on_the_others_with_its_attributes(
    cluster: Cluster, admin: RocketMqAdmin
) -> None:
    logs, groups = cluster.new_topic("halfway"), admin.groups()
    group = {"groupName": "halfway", "attributes": {"priority.factor": "50"}, "consumeMessageOrderly": True}
    topics.put_group(cluster.client, BROKERS[0], group)
    assert groups.states()["halfway"] == "empty"
    assert groups.commit({"halfway": GroupCommits(dict.fromkeys(logs, 1))}) == {"halfway": dict.fromkeys(logs, "")}
    for broker in BROKERS:
        assert topics.groups(cluster.client, broker)["halfway"].items() >= group.items()


def test_settings_of_a_group_are_set_on_every_broker_that_has_it(cluster: Cluster, admin: RocketMqAdmin) -> None:
    """Except those that belong to the cluster."""
    policy = {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 5000, "max": 7200000, "multiplier": 2}}
    wanted = {"groupName": "tuned", "retryMaxTimes": 3, "consumeTimeoutMinute": 30, "groupRetryPolicy": policy}
    topics.put_group(cluster.client, BROKERS[0], {**wanted, "attributes": {"priority.factor": "50"}})
    for broker in BROKERS:
        other = {"consumeEnable": False, "attributes": {"priority.factor": "70"}, "whichBrokerWhenConsumeSlowly": 2}
        topics.put_group(cluster.client, broker, {"groupName": "settled", **other})
    here, there = (admin.group_configs([name])[name] for name in ("tuned", "settled"))
    [action] = diff_groups({"settled": here}, {"settled": there})
    assert admin.apply(action.kind, [action]) == [None]
    found = [topics.groups(cluster.client, broker)["settled"] for broker in BROKERS]
    assert admin.group_configs(["settled"])["settled"] == here * 2
    assert [(one["consumeEnable"], one["whichBrokerWhenConsumeSlowly"]) for one in found] == [(False, 2)] * 2


def test_an_attribute_of_a_group_is_removed(cluster: Cluster, admin: RocketMqAdmin) -> None:
    topics.put_group(cluster.client, BROKERS[0], {"groupName": "worn", "attributes": {"priority.factor": "70"}})
    action = Action(ChangeKind.SET_GROUP, "", "", "", configs={"attributes.priority.factor": None}, group="worn")
    assert admin.apply(action.kind, [action]) == [None]
    assert topics.groups(cluster.client, BROKERS[0])["worn"].get("attributes") == {}


def test_a_group_that_is_refused_stops_no_other(cluster: Cluster, admin: RocketMqAdmin) -> None:
    topics.put_group(cluster.client, BROKERS[0], {"groupName": "fine"})
    wrong, missing, right = (
        Action(ChangeKind.SET_GROUP, "", "", "", configs=configs, group=group)
        for group, configs in (
            ("fine", {"attributes.unheard": "1"}),
            ("missing", {"retryMaxTimes": "3"}),
            ("fine", {"retryMaxTimes": "3"}),
        )
    )
    assert [type(answer) for answer in admin.apply(right.kind, [wrong, missing, right])] == [Stop, Retry, type(None)]


def test_a_group_that_is_off_at_its_source_is_created_enabled(cluster: Cluster, admin: RocketMqAdmin) -> None:
    admin.groups().create({"drained": {"consumeEnable": False, "retryMaxTimes": 3}})
    found = [topics.groups(cluster.client, broker)["drained"] for broker in BROKERS]
    assert [(one["consumeEnable"], one["retryMaxTimes"]) for one in found] == [(True, 3)] * 2


def test_groups_of_rocketmq_and_of_trueup_are_hidden(admin: RocketMqAdmin) -> None:
    admin.cluster_id()
    assert not [name for name in admin.groups().states() if name.startswith((PREFIX, "CID_RMQ_SYS_"))]


def test_doctor_says_whether_acl_is_in_use_and_where_brokers_differ(
    cluster: Cluster, admin: RocketMqAdmin, no_rights: None
) -> None:
    assert admin.notes("later-beats") == ["ACL 2.0", f"no heartbeats yet, neither in {RIP_45} nor in later-beats"]
    entry = {"resource": "Topic:t", "actions": ["Sub"], "sourceIps": [], "decision": "Allow"}
    policies = [{"policyType": "Custom", "entries": [entry]}]
    rights.put_rights(cluster.client, BROKERS[0], {"subject": READ.principal, "policies": policies})
    assert admin.notes("later-beats")[0] == "ACL 2.0, other rights on broker-a than on broker-b"


def beating(cluster: Cluster, topic: str, **options: str) -> str:
    """The topic in which a heartbeat was written and read."""
    with closing(RocketMqHeartbeats(cluster.endpoint(**options), topic)) as beats:
        beats.prepare()
        beats.write(b"key", 1_000)
        read = list[int]()

        def arrived() -> bool:
            read.extend(beats.read(b"key"))
            return bool(read) and beats.written_ms == 1_000

        wait_until(arrived, 180.0, "a heartbeat and its acknowledgement")
        assert (read, beats.error) == ([1_000], "")
    log = queue_of(cluster.client, topic)
    assert log is not None
    return log.topic


def test_heartbeats_are_in_the_declared_topic_where_brokers_refuse_the_one_of_rip_45(cluster: Cluster) -> None:
    assert beating(cluster, "declared-beats") == "declared-beats"


def test_queues_of_a_broker_that_is_gone_are_not_taken_for_deleted(cluster: Cluster, admin: RocketMqAdmin) -> None:
    here, gone = cluster.new_topic("kept")
    write(cluster, here, 1)
    before, first = admin.topics(["kept"]), admin.cluster_id()
    broker = cluster.brokers[gone.place]
    broker.kill()
    wait_until(lambda: gone.place not in cluster.client.masters(), 180.0, "the name server to forget the broker")
    try:
        assert "kept" in admin.names()
        assert admin.topics(["kept"]) == before
        found = admin.logs([here, gone])
        assert found[here] == Log(0, 1)
        assert gone.place in found[gone].error
        with pytest.raises(Retry, match=gone.place):
            admin.rights()
    finally:
        broker.start()
        broker.wait_ready()
    wait_until(lambda: not admin.logs([here, gone])[gone].error, 180.0, "the broker")
    assert admin.cluster_id() == first


def test_heartbeats_are_in_the_topic_of_rip_45_where_brokers_allow_it(cluster: Cluster) -> None:
    for broker in BROKERS:
        administration.put_settings(cluster.client, broker, {"validateSystemTopicWhenUpdateTopic": "false"})
    assert beating(cluster, "other-beats") == RIP_45
