"""Settings of subscription groups as links compare and change them."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.unit.rocketmq.fake_cluster import FakeCluster
from tests.unit.rocketmq.peers import answer
from trueup.connectors.rocketmq.client.codes import RequestCode
from trueup.connectors.rocketmq.replication.admin import RocketMqAdmin
from trueup.connectors.rocketmq.replication.group_settings import changed, configs_of, copied
from trueup.state.common.errors import Stop, TrueupError
from trueup.state.replication.config_sync import Action, ChangeKind

GROUP = {
    "groupName": "billing",
    "consumeEnable": False,
    "brokerId": 0,
    "whichBrokerWhenConsumeSlowly": 1,
    "groupSysFlag": 0,
    "consumeMessageOrderly": True,
    "retryMaxTimes": 3,
    "groupRetryPolicy": {"type": "CUSTOMIZED"},
    "attributes": {"priority.factor": "50"},
}


def test_settings_of_one_cluster_are_not_compared() -> None:
    assert configs_of(GROUP) == configs_of({}) | {
        "consumeMessageOrderly": "true",
        "retryMaxTimes": "3",
        "groupRetryPolicy": '{"type": "CUSTOMIZED"}',
        "attributes.priority.factor": "50",
    }


def test_settings_of_a_group_make_another_one_equal() -> None:
    other = {**GROUP, "retryMaxTimes": 16, "groupRetryPolicy": None, "consumeMessageOrderly": False, "attributes": {}}
    assert configs_of(changed(other, configs_of(GROUP))[0]) == configs_of(GROUP)


def test_a_change_keeps_what_is_not_compared() -> None:
    wanted, _ = changed(GROUP, {"retryMaxTimes": "16"})
    assert wanted == {**GROUP, "retryMaxTimes": 16, "attributes": {}}


@pytest.mark.parametrize(("name", "removed"), [("priority.factor", ["priority.factor"]), ("unknown", [])])
def test_only_an_attribute_that_exists_is_removed(name: str, removed: list[str]) -> None:
    assert changed(GROUP, {f"attributes.{name}": None})[1] == removed


def test_a_group_that_is_switched_off_at_its_source_is_created_enabled() -> None:
    assert "consumeEnable" not in copied(GROUP)


def test_a_group_of_a_version_without_a_setting_has_its_default() -> None:
    new = {"retryMaxTimes": 3, "consumeMessageOrderly": False, "groupRetryPolicy": {"type": "CUSTOMIZED"}}
    assert configs_of({"retryMaxTimes": 3}) == configs_of(new)


class Old(FakeCluster):
    """A broker that keeps only the settings of its version."""

    kept = ("groupName", "retryMaxTimes")

    def __init__(self, stack: ExitStack) -> None:
        self.groups = {"billing": {"groupName": "billing", "retryMaxTimes": 16}}
        super().__init__(stack, a=self._respond)
        self.admin = stack.enter_context(RocketMqAdmin(self.endpoint))

    def set(self, **configs: str) -> TrueupError | None:
        """The result of an action with these settings of the group."""
        [result] = self.admin.apply(ChangeKind.SET_GROUP, [action(**configs)])
        return result

    def _respond(self, request: dict[str, Any]) -> bytes:
        if request["code"] == RequestCode.UPDATE_GROUP:
            group = json.loads(request["body"])
            self.groups[group["groupName"]] = {name: group[name] for name in self.kept if name in group}
        return answer(request, body=json.dumps({"subscriptionGroupTable": self.groups}).encode())


def action(**configs: str) -> Action:
    return Action(ChangeKind.SET_GROUP, "", "", "", configs=configs, group="billing")


@pytest.fixture
def old() -> Iterator[Old]:
    with ExitStack() as stack:
        yield Old(stack)


def test_a_setting_that_a_broker_does_not_keep_is_refused_with_the_broker_and_a_remedy(old: Old) -> None:
    found = old.set(retryMaxTimes="3", consumeMessageOrderly="true")
    assert type(found) is Stop
    assert str(found) == (
        "expected group billing with consumeMessageOrderly true on a; found the broker accepted it and did not keep "
        "it; its version may not have such settings (RocketMQ 4.9): upgrade it, or add consumeMessageOrderly to "
        "config_exclude"
    )


def test_what_a_broker_keeps_is_set_nevertheless(old: Old) -> None:
    old.set(retryMaxTimes="3", consumeMessageOrderly="true")
    assert old.groups["billing"]["retryMaxTimes"] == 3


def test_what_a_broker_did_not_keep_is_not_written_again(old: Old) -> None:
    first, second = (old.set(consumeMessageOrderly="true") for _ in range(2))
    assert (str(first), old.asked("a").count(RequestCode.UPDATE_GROUP)) == (str(second), 1)


def test_another_setting_of_the_same_group_is_written(old: Old) -> None:
    old.set(consumeMessageOrderly="true")
    assert (old.set(retryMaxTimes="3"), old.groups["billing"]["retryMaxTimes"]) == (None, 3)


def test_a_setting_is_written_again_when_its_broker_was_upgraded(old: Old) -> None:
    old.set(consumeMessageOrderly="true")
    old.groups["billing"]["consumeMessageOrderly"] = False
    old.kept = ("groupName", "retryMaxTimes", "consumeMessageOrderly")
    assert (old.set(consumeMessageOrderly="true"), old.groups["billing"]["consumeMessageOrderly"]) == (None, True)
