"""A cluster of which one broker refuses the user, or sends a malformed response, goes on with the other one."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.unit.rocketmq.fake_cluster import FakeCluster
from tests.unit.rocketmq.peers import Handler, answer
from tests.unit.rocketmq.test_admin import CONFIG, FIGURES
from trueup.connectors.contract import LogId
from trueup.connectors.replication.ports import GroupCommits, Log
from trueup.connectors.rocketmq.client.cluster import RocketMqClient
from trueup.connectors.rocketmq.client.codes import RequestCode
from trueup.connectors.rocketmq.replication.admin import RocketMqAdmin
from trueup.connectors.rocketmq.replication.group_settings import configs_of
from trueup.connectors.rocketmq.replication.groups import RocketMqGroups
from trueup.connectors.rocketmq.replication.heartbeat import queue_of
from trueup.connectors.rocketmq.replication.identity import GROUP, cluster_id
from trueup.state.common.errors import Stop

REFUSALS: dict[str, Handler] = {
    "refuses": lambda request: answer(request, 16, remark="User:x is not found."),
    "malformed": lambda request: answer(request, body=b"{"),
}
BILLING = {"groupName": "billing", "consumeMessageOrderly": True}
FOUND = r"User:x is not found|JSON"


class Broker:
    """A broker with topics of one queue and groups, which committed offset 4. ``handler``: its responses instead."""

    def __init__(self, *topics: str, groups: tuple[str, ...] = ("billing",)) -> None:
        self.topics, self.groups = topics, {name: {**BILLING, "groupName": name} for name in groups}
        self.handler: Handler | None = None

    def __call__(self, request: dict[str, Any]) -> bytes | None:
        if self.handler is not None:
            return self.handler(request)
        code, fields = request["code"], request.get("extFields") or {}
        if code in (RequestCode.MIN_OFFSET, RequestCode.MAX_OFFSET):
            return answer(request, offset="5" if code == RequestCode.MAX_OFFSET else "0")
        if code == RequestCode.MEMBERS:
            return answer(request, 206, remark="no consumer online")
        if code == RequestCode.UPDATE_GROUP:
            group = json.loads(request["body"])
            self.groups[group["groupName"]] = group
        bodies: dict[int, object] = {
            RequestCode.ALL_TOPIC_CONFIGS: {"topicConfigTable": dict.fromkeys(self.topics, CONFIG)},
            RequestCode.TOPIC_CONFIG: {"topicName": fields.get("topic"), **CONFIG},
            RequestCode.BROKER_RUNTIME: {"table": FIGURES},
            RequestCode.ALL_GROUPS: {"subscriptionGroupTable": self.groups},
            RequestCode.ALL_CONSUMER_OFFSETS: {"offsetTable": {"t@billing": {0: 4}}},
        }
        return answer(request, body=json.dumps(bodies.get(code, {})).encode())


class Servers(FakeCluster):
    """Brokers a and b, and the client and the administration of their cluster."""

    def __init__(self, stack: ExitStack) -> None:
        self.a, self.b = Broker("t"), Broker("t", "only-b")
        super().__init__(stack, a=self.a, b=self.b)
        self.topics = {"t", "only-b"}
        self.client = stack.enter_context(RocketMqClient(self.endpoint))
        self.admin = stack.enter_context(RocketMqAdmin(self.endpoint))
        self.groups = RocketMqGroups(self.client)


@pytest.fixture
def servers() -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(stack)


@pytest.fixture(params=REFUSALS)
def refusal(request: pytest.FixtureRequest) -> Handler:
    return REFUSALS[request.param]


def test_its_topics_are_as_they_were(servers: Servers, refusal: Handler) -> None:
    before = servers.admin.topics(["t", "only-b"])
    servers.b.handler = refusal
    assert servers.admin.topics(["t", "only-b"]) == before


def test_a_cluster_is_not_known_without_a_broker_that_never_listed_its_topics(
    servers: Servers, refusal: Handler
) -> None:
    servers.b.handler = refusal
    with pytest.raises(Stop, match=FOUND):
        servers.admin.topics(["t"])


def test_no_offset_is_committed_where_the_present_one_was_never_read(servers: Servers, refusal: Handler) -> None:
    broker, logs = Broker("t"), [LogId("t", 0, name) for name in ("a", "b")]
    servers.b.handler = lambda request: (
        refusal(request) if request["code"] == RequestCode.ALL_CONSUMER_OFFSETS else broker(request)
    )
    servers.groups.offsets(["billing"])
    done = servers.groups.commit({"billing": GroupCommits(dict.fromkeys(logs, 5))})["billing"]
    assert isinstance(done, dict)
    assert "has not reported its offset" in done[logs[1]]
    assert RequestCode.UPDATE_CONSUMER_OFFSET not in servers.asked("b")


def test_a_topic_that_only_it_can_have_is_not_deleted(servers: Servers, refusal: Handler) -> None:
    servers.admin.topics(["t"])
    servers.b.handler = refusal
    found = servers.admin.topics(["t", "only-b", "nowhere"])
    assert ([*found], found["only-b"].logs) == (["t", "only-b"], ())
    assert "broker b does not list its topics" in found["only-b"].error


def test_only_its_queues_have_an_error(servers: Servers, refusal: Handler) -> None:
    servers.b.handler = refusal
    found = servers.admin.logs([LogId("t", 0, "a"), LogId("t", 0, "b")])
    assert (found[LogId("t", 0, "a")], found[LogId("t", 0, "b")].error != "") == (Log(0, 5), True)


def test_settings_of_groups_on_the_other_one_are_compared(servers: Servers, refusal: Handler) -> None:
    servers.b.handler = refusal
    assert servers.admin.group_configs(["billing"]) == {"billing": [configs_of({"consumeMessageOrderly": True})]}


def test_the_other_one_has_the_id_of_the_cluster(servers: Servers, refusal: Handler) -> None:
    found = cluster_id(servers.client)
    servers.b.handler = refusal
    assert cluster_id(servers.client) == found


def test_no_id_is_planted_while_it_may_have_one(servers: Servers, refusal: Handler) -> None:
    servers.b.handler = refusal
    with pytest.raises(Stop, match=FOUND):
        cluster_id(servers.client)
    assert not any(GROUP.fullmatch(name) for name in servers.a.groups)


def test_offsets_and_groups_on_it_are_as_they_were(servers: Servers, refusal: Handler) -> None:
    servers.b.groups["audit"] = {"groupName": "audit"}
    before = servers.groups.offsets(["billing"]), [*servers.groups.states()]
    servers.b.handler = refusal
    assert (servers.groups.offsets(["billing"]), [*servers.groups.states()]) == before


def test_a_group_that_may_have_members_on_it_is_not_committed(servers: Servers, refusal: Handler) -> None:
    servers.b.handler = refusal
    log = LogId("t", 0, "a")
    done = servers.groups.commit({"billing": GroupCommits({log: 5})})
    assert isinstance(done["billing"], Stop)
    assert "broker b to list the members of group billing" in str(done["billing"])
    assert RequestCode.UPDATE_CONSUMER_OFFSET not in servers.asked("a")


def test_heartbeats_go_on_at_the_other_one(servers: Servers, refusal: Handler) -> None:
    servers.b.handler = refusal
    assert queue_of(servers.client, "t") == LogId("t", 0, "a")


def test_no_second_topic_of_heartbeats_is_made_while_it_may_have_one(servers: Servers, refusal: Handler) -> None:
    servers.b.handler = refusal
    with pytest.raises(Stop, match=FOUND):
        queue_of(servers.client, "only-b")


@pytest.mark.parametrize(
    "ask",
    [
        lambda servers: servers.admin.topics(["t"]),
        lambda servers: servers.admin.logs([LogId("t", 0, "a"), LogId("t", 0, "b")]),
        lambda servers: servers.admin.group_configs(["billing"]),
        lambda servers: cluster_id(servers.client),
        lambda servers: servers.groups.offsets(["billing"]),
        lambda servers: servers.groups.states(),
        lambda servers: servers.groups.settings(["billing"]),
        lambda servers: queue_of(servers.client, "t"),
    ],
)
def test_a_user_that_all_brokers_refuse_is_an_error(servers: Servers, ask: Callable[[Servers], object]) -> None:
    servers.a.handler = servers.b.handler = REFUSALS["refuses"]
    with pytest.raises(Stop, match="User:x is not found"):
        ask(servers)
