"""The section spark: clusters need what executors can reach, and buckets their own keys."""

from typing import Any

import pytest

from tests.configuration import parse
from trueup.state.common.errors import BadSettings

GOOD = {"cluster": {"zookeeper": "h:2181"}, "journal": {"bootstrap": "k:9092"}}
CLUSTER = {"master": "spark://h:7077", "checkpoint": "s3a://states/trueup"}


def problems(raw: dict[str, Any]) -> list[str]:
    """The keys of all problems."""
    with pytest.raises(BadSettings) as caught:
        parse(raw)
    return [problem.partition(":")[0] for problem in caught.value.problems]


@pytest.mark.parametrize("location", ["s3a://states/trueup", "file:///shared/trueup", "/shared", "hdfs://n:8020/x"])
def test_a_cluster_with_a_shared_location_and_a_journal_is_accepted(location: str) -> None:
    assert parse({**GOOD, "spark": {**CLUSTER, "checkpoint": location}}).spark.on_cluster


@pytest.mark.parametrize("master", ["spark://h:7077", "yarn", "k8s://https://h:6443"])
def test_a_cluster_needs_a_location_and_a_journal_that_executors_reach(master: str) -> None:
    assert problems({"cluster": GOOD["cluster"], "spark": {"master": master}}) == [
        "journal.bootstrap",
        "spark.checkpoint",
    ]


@pytest.mark.parametrize("location", ["checkpoints", "s3a://key:word@states/x", "s3a:///x", "s3a://states /x"])
def test_other_locations_are_refused(location: str) -> None:
    assert problems({**GOOD, "spark": {"checkpoint": location}}) == ["spark.checkpoint"]


def test_a_location_that_may_hold_a_secret_is_not_shown() -> None:
    with pytest.raises(BadSettings) as caught:
        parse({**GOOD, "spark": {"checkpoint": "s3a://key:word@states/x"}})
    assert "word" not in str(caught.value)


@pytest.mark.parametrize("name", ["region", "endpoint", "key_env"])
def test_keys_of_a_bucket_need_a_bucket(name: str) -> None:
    value = "http://s3:9000" if name == "endpoint" else "X"
    other = {"checkpoint_secret_env": "Y"} if name == "key_env" else {}
    found = problems({**GOOD, "spark": {**CLUSTER, "checkpoint": "/x", f"checkpoint_{name}": value, **other}})
    assert found[0] == f"spark.checkpoint_{name}"


def test_a_key_needs_its_secret() -> None:
    assert problems({**GOOD, "spark": {**CLUSTER, "checkpoint_key_env": "K"}}) == ["spark.checkpoint_secret_env"]


def test_an_endpoint_has_no_user() -> None:
    assert problems({**GOOD, "spark": {**CLUSTER, "checkpoint_endpoint": "http://k:w@s3"}}) == [
        "spark.checkpoint_endpoint"
    ]
