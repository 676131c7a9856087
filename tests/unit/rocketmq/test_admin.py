"""What the administration makes of a cluster whose brokers go, and of rights that brokers refuse."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.unit.rocketmq.fake_cluster import FakeCluster
from tests.unit.rocketmq.peers import Handler, answer
from trueup.connectors.contract import LogId
from trueup.connectors.replication.ports import Log
from trueup.connectors.rocketmq.client.codes import RequestCode
from trueup.connectors.rocketmq.replication.admin import RocketMqAdmin
from trueup.state.common.errors import Retry, Unknown
from trueup.state.replication.config_sync import Action, ChangeKind, Right
from trueup.state.replication.settings import Start

CONFIG = {"readQueueNums": 2, "writeQueueNums": 2, "perm": 6, "order": False, "topicSysFlag": 0}
FIGURES = {"commitLogMaxOffset": "100", "dispatchBehindBytes": "0"}
DENIED = Right("topic", "literal", "t", "User:u", "*", "delete", "deny")


def broker(*topics: str, end: int = 5, acl: list[dict[str, Any]] | None = None) -> Handler:
    """A broker with these topics of two queues. It refuses to store rights."""
    bodies: dict[int, object] = {
        RequestCode.ALL_TOPIC_CONFIGS: {"topicConfigTable": dict.fromkeys(topics, CONFIG)},
        RequestCode.BROKER_RUNTIME: {"table": FIGURES},
        RequestCode.RIGHTS: acl or [],
        RequestCode.DELETE_RIGHTS: "",
    }

    def handler(request: dict[str, Any]) -> bytes:
        code, fields = request["code"], request["extFields"]
        if code in (RequestCode.MIN_OFFSET, RequestCode.MAX_OFFSET):
            held = fields["topic"] in topics and code == RequestCode.MAX_OFFSET
            return answer(request, offset=str(end if held else 0))
        if code == RequestCode.TOPIC_CONFIG:
            found = json.dumps({"topicName": fields["topic"], **CONFIG}).encode()
            return answer(request, body=found) if fields["topic"] in topics else answer(request, 17, remark="none")
        if code in (RequestCode.CREATE_RIGHTS, RequestCode.UPDATE_RIGHTS):
            return answer(request, 1, remark="disk full")
        return answer(request, body=json.dumps(bodies[code]).encode())

    return handler


class Served(FakeCluster):
    """A cluster with the topic t on both brokers, and only on one of them: a, b."""

    def __init__(self, stack: ExitStack) -> None:
        super().__init__(stack, a=broker("t", "a"), b=broker("t", "b"))
        self.topics = {"t", "a", "b", "only-b"}
        self.admin = stack.enter_context(RocketMqAdmin(self.endpoint))


@pytest.fixture
def cluster() -> Iterator[Served]:
    with ExitStack() as stack:
        yield Served(stack)


def queues(broker_name: str) -> list[LogId]:
    return [LogId("t", number, broker_name) for number in range(2)]


def test_names_of_clusters_and_brokers_are_no_topics(cluster: Served) -> None:
    assert cluster.admin.names() == ["only-b", "t"]


def test_a_topic_of_a_broker_that_is_gone_keeps_its_name_and_queues(cluster: Served) -> None:
    before = cluster.admin.topics(["t", "nowhere"])
    cluster.kill("b")
    cluster.topics = {"only-b"}
    assert "t" in cluster.admin.names()
    assert cluster.admin.topics(["t", "nowhere"]) == before
    assert before["t"].logs == (*queues("a"), *queues("b"))


def test_a_broker_that_joins_is_found(cluster: Served) -> None:
    joined = cluster.brokers.pop("b")
    before = cluster.admin.topics(["t"])["t"].logs
    cluster.brokers["b"] = joined
    assert (before, cluster.admin.topics(["t"])["t"].logs) == ((*queues("a"),), (*queues("a"), *queues("b")))


def test_only_queues_of_the_broker_that_is_gone_have_an_error(cluster: Served) -> None:
    cluster.kill("b")
    found = cluster.admin.logs([*queues("a"), *queues("b")])
    assert [found[log] for log in queues("a")] == [Log(0, 5)] * 2
    assert all("a master of broker b in east" in found[log].error for log in queues("b"))


def test_a_cluster_without_brokers_does_not_respond(cluster: Served) -> None:
    cluster.kill("a")
    cluster.kill("b")
    for ask in (lambda: cluster.admin.topics(["t"]), lambda: cluster.admin.logs(queues("a")), cluster.admin.rights):
        with pytest.raises(Retry):
            ask()


def test_a_queue_without_topic_is_not_taken_for_empty(cluster: Served) -> None:
    gone, beyond = LogId("none", 0, "a"), LogId("t", 2, "a")
    found = cluster.admin.logs([gone, beyond, *queues("a")])
    assert ("no such topic" in found[gone].error, "2 queues there" in found[beyond].error) == (True, True)
    assert found[queues("a")[0]] == Log(0, 5)


@pytest.mark.parametrize(("kind", "expected"), [("earliest", 0), ("latest", 5)])
def test_a_copy_begins_at_a_start(cluster: Served, kind: str, expected: int) -> None:
    assert cluster.admin.starts(queues("a"), Start(kind)) == dict.fromkeys(queues("a"), expected)


@pytest.mark.parametrize("kind", [ChangeKind.SET, ChangeKind.GROW, ChangeKind.ALLOW])
def test_nothing_is_changed_while_a_broker_is_gone_that_would_return_without_it(
    cluster: Served, kind: ChangeKind
) -> None:
    cluster.admin.topics(["t"])
    cluster.kill("b")
    right = DENIED if kind is ChangeKind.ALLOW else None
    [outcome] = cluster.admin.apply(kind, [Action(kind, "t", "", "", 9, {"order": "true"}, right)])
    assert isinstance(outcome, Retry)
    assert "broker b of east" in str(outcome)
    assert RequestCode.UPDATE_TOPIC not in cluster.asked("a")


def test_a_topic_is_not_taken_for_created_without_a_broker(cluster: Served) -> None:
    cluster.kill("a")
    cluster.kill("b")
    [outcome] = cluster.admin.apply(ChangeKind.CREATE, [Action(ChangeKind.CREATE, "new", "", "", 1)])
    assert isinstance(outcome, Retry)


def test_rights_that_were_deleted_and_not_stored_again_are_in_the_error() -> None:
    entry = {"resource": "Topic:t", "actions": ["Sub"], "sourceIps": [], "decision": "Allow"}
    acl = [{"subject": "User:u", "policies": [{"policyType": "Custom", "entries": [entry]}]}]
    with ExitStack() as stack:
        cluster = FakeCluster(stack, a=broker("t", acl=acl))
        admin = stack.enter_context(RocketMqAdmin(cluster.endpoint))
        [outcome] = admin.apply(ChangeKind.DENY, [Action(ChangeKind.DENY, "t", "", "", right=DENIED)])
    assert isinstance(outcome, Unknown)
    assert json.dumps(entry) in outcome.todo
