"""Settings of subscription groups as links compare and change them."""

import pytest

from trueup.connectors.rocketmq.replication.group_settings import changed, configs_of, copied

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
    assert configs_of(GROUP) == {
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
