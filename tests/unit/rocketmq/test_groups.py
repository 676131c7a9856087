"""Groups of a cluster whose brokers go."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.unit.rocketmq.fake_cluster import FakeCluster
from tests.unit.rocketmq.peers import answer
from trueup.connectors.contract import LogId
from trueup.connectors.replication.ports import GroupCommits
from trueup.connectors.rocketmq.client.cluster import RocketMqClient
from trueup.connectors.rocketmq.client.codes import RequestCode
from trueup.connectors.rocketmq.replication.groups import OWN, RocketMqGroups
from trueup.state.common.errors import Retry, Stop

FIFO = {"groupName": "billing", "consumeMessageOrderly": True}


def broker(offset: int, members: int = 0) -> Any:
    """A broker with one group, which committed this offset in queue 0 of two topics."""
    groups = {"billing": FIFO, "CID_RMQ_SYS_X": {}, f"trueup-cluster-{'1' * 32}": {}}
    offsets = {f"{topic}@billing": {0: offset} for topic in ("t", "%RETRY%billing")}
    bodies = {
        RequestCode.ALL_GROUPS: {"subscriptionGroupTable": groups},
        RequestCode.ALL_CONSUMER_OFFSETS: {"offsetTable": offsets},
        RequestCode.MEMBERS: {"connectionSet": [{"clientId": f"c{n}"} for n in range(members)]},
    }

    def handler(request: dict[str, Any]) -> bytes:
        if request["code"] == RequestCode.MEMBERS and not members:
            return answer(request, 206, remark="no consumer online")
        return answer(request, body=json.dumps(bodies[request["code"]]).encode())

    return handler


class Servers(FakeCluster):
    """A cluster, and its groups."""

    def __init__(self, stack: ExitStack, **handlers: Any) -> None:
        super().__init__(stack, **handlers)
        self.groups = RocketMqGroups(stack.enter_context(RocketMqClient(self.endpoint)))


@pytest.fixture
def servers() -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(stack, a=broker(4), b=broker(7))


def test_offsets_of_all_brokers_count_and_those_of_retries_do_not(servers: Servers) -> None:
    found = servers.groups.offsets(["billing", "none"])
    assert found == {"billing": {LogId("t", 0, "a"): 4, LogId("t", 0, "b"): 7}, "none": {}}


def test_offsets_on_a_broker_that_is_gone_are_as_they_were(servers: Servers) -> None:
    before = servers.groups.offsets(["billing"])
    servers.kill("b")
    assert servers.groups.offsets(["billing"]) == before


def test_without_any_broker_offsets_are_unknown(servers: Servers) -> None:
    servers.groups.offsets(["billing"])
    servers.kill("a")
    servers.kill("b")
    with pytest.raises(Retry, match="a broker of east"):
        servers.groups.offsets(["billing"])


def test_settings_of_a_group_outlive_its_cluster(servers: Servers) -> None:
    assert list(servers.groups.states()) == ["billing"]
    servers.kill("a")
    servers.kill("b")
    assert servers.groups.settings(["billing", "none"]) == {"billing": FIFO}


def test_settings_that_were_never_read_are_unknown(servers: Servers) -> None:
    servers.kill("a")
    servers.kill("b")
    with pytest.raises(Retry):
        servers.groups.settings(["billing"])


def test_members_are_asked_for_only_when_a_state_is_needed(servers: Servers) -> None:
    states = servers.groups.states()
    assert RequestCode.MEMBERS not in servers.asked("a") + servers.asked("b")
    assert (states["billing"], states.get("none")) == ("empty", None)


def test_a_member_at_one_broker_is_enough() -> None:
    with ExitStack() as stack:
        groups = Servers(stack, a=broker(4), b=broker(7, members=1)).groups
        assert groups.states()["billing"] == "active"
        assert groups.commit({"billing": GroupCommits({LogId("t", 0, "a"): 5})}) == {
            "billing": {LogId("t", 0, "a"): "the group has members: c0"}
        }


class Store:
    """A broker that stores groups, and offsets of groups that it has. ``refused``: groups that it does not create;
    ``topics``: those that it has."""

    def __init__(self, *groups: str, refused: str = "", topics: tuple[str, ...] = ("t", "u")) -> None:
        self.groups: dict[str, Any] = {name: {**FIFO, "groupName": name} for name in groups}
        self.refused, self.topics, self.offsets = refused, topics, dict[tuple[str, str], str]()

    def __call__(self, request: dict[str, Any]) -> bytes | None:
        fields = request.get("extFields") or {}
        place = fields.get("consumerGroup", ""), fields.get("topic", "")
        match request["code"]:
            case RequestCode.ALL_GROUPS:
                return answer(request, body=json.dumps({"subscriptionGroupTable": self.groups}).encode())
            case RequestCode.UPDATE_GROUP:
                group = json.loads(request["body"])
                if group["groupName"] == self.refused:
                    return answer(request, 16, remark="no permission")
                self.groups[group["groupName"]] = group
            case RequestCode.MEMBERS:
                return answer(request, 206, remark="no consumer online")
            case RequestCode.UPDATE_CONSUMER_OFFSET if place[1] == "lost":
                return None
            case RequestCode.UPDATE_CONSUMER_OFFSET if place[1] not in self.topics:
                return answer(request, 17, remark="topic not exist")
            case RequestCode.UPDATE_CONSUMER_OFFSET if place[0] not in self.groups:
                return answer(request, 26, remark="group not exist")
            case RequestCode.UPDATE_CONSUMER_OFFSET:
                self.offsets[place] = fields["commitOffset"]
            case RequestCode.ALL_CONSUMER_OFFSETS:
                table = {f"{topic}@{group}": {0: int(at)} for (group, topic), at in self.offsets.items()}
                return answer(request, body=json.dumps({"offsetTable": table}).encode())
            case RequestCode.QUERY_CONSUMER_OFFSET:
                return answer(request, offset=self.offsets[place])
        return answer(request)


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        (LogId("t", 0, "gone"), "none is registered"),
        (LogId("none", 0, "a"), "error 17"),
        (LogId("lost", 0, "a"), "closed"),
    ],
)
def test_a_queue_that_takes_no_offset_stops_no_other(wrong: LogId, found: str) -> None:
    right = LogId("t", 0, "a")
    with ExitStack() as stack:
        groups = Servers(stack, a=Store("billing", "audit", topics=("t", "lost"))).groups
        done: Any = groups.commit({"billing": GroupCommits({wrong: 3, right: 4}), "audit": GroupCommits({right: 5})})
    assert (done["billing"][right], done["audit"], found in done["billing"][wrong]) == ("", {right: ""}, True)


def test_members_that_may_not_be_listed_are_an_error_of_their_group() -> None:
    def denied(request: dict[str, Any]) -> bytes | None:
        one = (request.get("extFields") or {}).get("consumerGroup") == "billing"
        return answer(request, 16) if request["code"] == RequestCode.MEMBERS and one else store(request)

    log, store = LogId("t", 0, "a"), Store("billing", "audit")
    with ExitStack() as stack:
        done = Servers(stack, a=denied).groups.commit(
            {"billing": GroupCommits({log: 4}), "audit": GroupCommits({log: 5})}
        )
    assert (type(done["billing"]), done["audit"]) == (Stop, {log: ""})


def test_a_broker_that_does_not_list_members_is_asked_once() -> None:
    def busy(request: dict[str, Any]) -> bytes:
        return answer(request, 2, remark="busy")

    log = LogId("t", 0, "a")
    with ExitStack() as stack:
        servers = Servers(stack, a=busy)
        done = servers.groups.commit({"billing": GroupCommits({log: 4}), "audit": GroupCommits({log: 5})})
        assert servers.asked("a") == [RequestCode.MEMBERS]
    assert [type(error) for error in done.values()] == [Retry, Retry]


def test_a_group_that_cannot_be_created_stops_no_other() -> None:
    log, store = LogId("t", 0, "a"), Store(refused="billing")
    with ExitStack() as stack:
        groups = Servers(stack, a=store).groups
        groups.create({"billing": {}, "audit": {}})
        done: Any = groups.commit({"billing": GroupCommits({log: 4}), "audit": GroupCommits({log: 5})})
    assert ("error 16" in done["billing"][log], done["audit"]) == (True, {log: ""})


def test_a_group_that_one_broker_has_is_created_on_the_others() -> None:
    places = {LogId("t", 0, broker): 4 for broker in ("a", "b")}
    with ExitStack() as stack:
        stores = {"a": Store("billing"), "b": Store()}
        groups = Servers(stack, **stores).groups
        assert dict(groups.states()) == {"billing": "empty"}
        assert groups.commit({"billing": GroupCommits(places)}) == {"billing": dict.fromkeys(places, "")}
    assert stores["b"].groups == {"billing": FIFO}


def test_an_offset_that_a_link_committed_has_its_path_for_all_links() -> None:
    log, store = LogId("t", 0, "a"), Store("billing")
    with ExitStack() as stack:
        servers = Servers(stack, a=store)
        servers.groups.commit({"billing": GroupCommits({log: 4}, {log: 1})})
        other = RocketMqGroups(stack.enter_context(RocketMqClient(servers.endpoint)))
        ours: Any = other.offsets(["billing"])["billing"]
        store.offsets["billing", "t"] = "5"
        moved: Any = other.offsets(["billing"])["billing"]
    assert (ours.paths, moved, moved.paths) == ({log: 1}, {log: 5}, {})


def test_attributes_of_a_group_are_sent_as_changes() -> None:
    store = Store()
    with ExitStack() as stack:
        Servers(stack, a=store).groups.create({"billing": {"attributes": {"priority.factor": "1"}}})
    assert store.groups["billing"]["attributes"] == {"+priority.factor": "1"}


def test_a_group_whose_settings_are_unknown_is_not_created() -> None:
    log = LogId("t", 0, "a")
    with ExitStack() as stack:
        done: Any = Servers(stack, a=Store()).groups.commit({"billing": GroupCommits({log: 4})})
    assert "with the settings that it has at the other cluster" in done["billing"][log]


def test_without_topics_their_existence_is_not_asked_for(servers: Servers) -> None:
    assert servers.groups.ids(set()) == {}
    assert servers.names.requests == []


def test_the_group_in_which_proxies_receive_heartbeats_is_none_of_an_application() -> None:
    """AbstractSystemMessageSyncer.java, getSystemMessageConsumerId."""
    assert OWN.fullmatch("CID_DefaultHeartBeatSyncerTopic")


@pytest.mark.parametrize("name", ["trueup-cluster-west", "CID_ONSAPI_OTHER", "CID_SYS_RMQ_TRANS", "MY_TOOLS_CONSUMER"])
def test_a_group_of_an_application_is_one_whatever_its_name_begins_with(name: str) -> None:
    """MixAll.java: PREDEFINE_GROUP_SET, CID_RMQ_SYS_PREFIX."""
    assert not OWN.fullmatch(name)
