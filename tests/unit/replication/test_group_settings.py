"""Differences between the settings of consumer groups, and when they are changed."""

from typing import Any, cast

import pytest

from trueup.connectors.replication.config_sync import Alignment
from trueup.connectors.replication.ports import ClusterAdmin
from trueup.state.replication.config_sync import ChangeKind
from trueup.state.replication.group_settings import diff_groups, may_change

HERE = {"billing": [{"retryMaxTimes": "3", "retryQueueNums": "1"}, {"retryMaxTimes": "99"}]}


def there(*retries: str) -> dict[str, list[dict[str, str]]]:
    return {"billing": [{"retryMaxTimes": times, "retryQueueNums": "1"} for times in retries]}


def test_the_first_server_of_the_source_counts() -> None:
    [action] = diff_groups(HERE, there("16", "16"))
    assert (action.kind, action.group, action.configs) == (ChangeKind.SET_GROUP, "billing", {"retryMaxTimes": "3"})


def test_a_difference_shows_both_values() -> None:
    assert [action.text for action in diff_groups(HERE, there("16"))] == ["group billing: retryMaxTimes 16 > 3"]


def test_a_server_of_the_target_with_other_settings_is_found() -> None:
    assert [action.configs for action in diff_groups(HERE, there("3", "16"))] == [{"retryMaxTimes": "3"}]


@pytest.mark.parametrize("target", [there("3", "3"), {}, {"billing": []}, {"other": there("16")["billing"]}])
def test_groups_that_are_equal_or_missing_need_no_change(target: dict[str, list[dict[str, str]]]) -> None:
    assert diff_groups(HERE, target) == []


def test_an_attribute_that_the_source_does_not_have_is_removed() -> None:
    [action] = diff_groups({"g": [{}]}, {"g": [{"attributes.priority.factor": "50"}]})
    assert (action.configs, action.text) == (
        {"attributes.priority.factor": None},
        "group g: attributes.priority.factor 50 > none",
    )


def test_excluded_settings_are_not_compared() -> None:
    assert diff_groups(HERE, there("16"), ["/retry.*/"]) == []


@pytest.mark.parametrize(
    ("source", "target", "back", "expected"),
    [
        (False, False, False, True),
        (True, False, False, True),
        (True, False, True, True),
        (False, False, True, False),  # the link back could change the source to the values of the target
        (None, False, True, False),
        (True, True, True, False),
        (False, True, False, False),  # the group moved; its settings are those of the cluster where it runs
        (False, None, False, False),
    ],
)
def test_settings_of_the_cluster_where_a_group_runs_count(
    source: bool | None, target: bool | None, back: bool, expected: bool
) -> None:
    assert may_change(source, target, back) == expected


@pytest.mark.parametrize(("one", "other"), [(a, b) for a in (True, False, None) for b in (True, False, None)])
def test_links_in_both_directions_never_exchange_their_settings(one: bool | None, other: bool | None) -> None:
    assert not (may_change(one, other, back=True) and may_change(other, one, back=True))


class Side:
    """A cluster with one group, and the number of times its members were asked for."""

    def __init__(self, retries: str, state: str) -> None:
        self.retries, self.state, self.asked = retries, state, 0

    def group_configs(self, groups: Any) -> dict[str, list[dict[str, str]]]:
        return {group: there(self.retries)["billing"] for group in groups}

    def groups(self) -> "Side":
        return self

    def states(self) -> dict[str, str]:
        self.asked += 1
        return {"billing": self.state}


def compared(here: Side, target: Side, back: bool = False) -> list[str]:
    alignment = Alignment(cast("ClusterAdmin", here), cast("ClusterAdmin", target))
    return [action.group for action in alignment.groups(["billing"], (), back)]


@pytest.mark.parametrize(("state", "expected"), [("empty", ["billing"]), ("active", []), ("unknown", [])])
def test_a_group_with_members_at_the_target_keeps_its_settings(state: str, expected: list[str]) -> None:
    assert compared(Side("3", "empty"), Side("16", state)) == expected


@pytest.mark.parametrize(("state", "expected"), [("active", ["billing"]), ("empty", []), ("unknown", [])])
def test_with_a_link_back_the_group_must_run_at_the_source(state: str, expected: list[str]) -> None:
    assert compared(Side("3", state), Side("16", "empty"), back=True) == expected


def test_members_of_groups_without_a_difference_are_not_asked_for() -> None:
    here, target = Side("3", "active"), Side("3", "empty")
    assert (compared(here, target, back=True), here.asked, target.asked) == ([], 0, 0)
