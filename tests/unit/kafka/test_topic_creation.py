"""Topics that are deleted and created again while brokers still list the deleted ones."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from trueup.connectors.kafka.journal import topics as module
from trueup.connectors.kafka.journal.topics import TopicClient, TopicSpec

NAME = "trueup.c.marks"


class Admin:
    """A cluster with one topic, whose brokers list what the controller changed a few requests later."""

    def __init__(self) -> None:
        self.exists, self._listed, self._late = True, True, 0

    def __call__(self, _client: Mapping[str, Any]) -> "Admin":
        return self

    def _change(self, exists: bool, code: int) -> dict[str, Future[None]]:
        done = Future[None]()
        if self.exists == exists:
            done.set_exception(KafkaException(KafkaError(code)))
        else:
            self.exists, self._late = exists, 3
            done.set_result(None)
        return {NAME: done}

    def create_topics(self, _topics: Sequence[Any], operation_timeout: float) -> dict[str, Future[None]]:
        return self._change(True, KafkaError.TOPIC_ALREADY_EXISTS)

    def delete_topics(self, _topics: Sequence[str], operation_timeout: float) -> dict[str, Future[None]]:
        return self._change(False, KafkaError.UNKNOWN_TOPIC_OR_PART)

    def list_topics(self, timeout: float) -> Any:
        self._late -= 1
        if self._late < 0:
            self._listed = self.exists
        listed = {NAME: SimpleNamespace(partitions={0: SimpleNamespace(leader=1)})}
        return SimpleNamespace(topics=listed if self._listed else {})


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> Admin:
    made = Admin()
    monkeypatch.setattr(module, "AdminClient", made)
    return made


def test_a_topic_is_deleted_when_no_broker_lists_it(admin: Admin) -> None:
    topics = TopicClient("127.0.0.1:1", {})
    topics.delete([NAME], 10.0)
    assert topics.partitions([NAME]) == []


def test_a_topic_that_was_deleted_is_created_again(admin: Admin) -> None:
    topics = TopicClient("127.0.0.1:1", {})
    topics.delete([NAME], 10.0)
    assert (topics.create([TopicSpec(NAME, 1, 1, {})], 10.0), admin.exists) == ([NAME], True)


def leaderless(admin: Admin, monkeypatch: pytest.MonkeyPatch, until: int) -> list[int]:
    """The topic has no leader in the first ``until`` answers. Returns one item for each answer."""
    answers, listed = list[int](), admin.list_topics

    def list_topics(timeout: float) -> Any:
        found = listed(timeout)
        answers.append(1)
        for topic in found.topics.values():
            topic.partitions[0].leader = -1 if len(answers) <= until else 1
        return found

    monkeypatch.setattr(admin, "list_topics", list_topics)
    return answers


def test_a_topic_that_vanishes_while_its_leader_is_awaited_is_created(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin.exists, admin._late = False, 2
    leaderless(admin, monkeypatch, 2)
    assert TopicClient("127.0.0.1:1", {}).create([TopicSpec(NAME, 1, 1, {})], 10.0) == [NAME]


def test_the_right_to_create_is_not_needed_for_a_topic_without_a_leader(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = leaderless(admin, monkeypatch, 2)
    monkeypatch.setattr(admin, "create_topics", None)
    assert (TopicClient("127.0.0.1:1", {}).create([TopicSpec(NAME, 1, 1, {})], 10.0), len(answers)) == ([], 3)
