"""The rows of `trueup doctor` for links between real clusters."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.configuration import parse
from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.embedded.processes import free_port
from trueup.streams.replication.checks import all_of
from trueup.streams.runtime.checks import Check

pytestmark = pytest.mark.servers


@pytest.fixture(scope="module")
def brokers(new_root: Callable[[], Path]) -> Iterator[tuple[Kafka, Kafka]]:
    with Kafka(new_root()) as east, Kafka(new_root()) as west:
        east.up()
        west.up()
        admin = AdminClient({"bootstrap.servers": east.bootstrap})
        for future in admin.create_topics([NewTopic("pay.in", 1), NewTopic("orders", 1)]).values():
            future.result(30)
        yield east, west


def checks(east: str, west: str, **links: object) -> list[Check]:
    kafka = {"east": {"bootstrap": east, "bit": 0}, "west": {"bootstrap": west, "bit": 1}}
    return list(all_of(parse({"kafka": kafka, "links": links})))


def link(**keys: object) -> dict[str, object]:
    return {"source": "east", "target": "west", "topics": ["orders"], **keys}


def test_a_link_between_two_clusters_that_answer_is_well(brokers: tuple[Kafka, Kafka]) -> None:
    found = checks(*(broker.bootstrap for broker in brokers), l=link())
    assert [(check.name, check.status) for check in found] == [
        ("kafka.east", "ok"),
        ("kafka.west", "ok"),
        ("links.l", "ok"),
    ]


def test_two_names_of_one_cluster_are_found_out(brokers: tuple[Kafka, Kafka]) -> None:
    east = brokers[0].bootstrap
    *_, check = checks(east, east.replace("127.0.0.1", "localhost"), l=link())
    assert (check.status, "east and west are one cluster" in check.found) == ("fail", True)


def test_a_cluster_that_does_not_answer_fails(brokers: tuple[Kafka, Kafka]) -> None:
    found = checks(brokers[0].bootstrap, f"127.0.0.1:{free_port()}", l=link())
    assert [(check.name, check.status) for check in found] == [("kafka.east", "ok"), ("kafka.west", "fail")]


def test_a_link_without_topics_is_warned_of(brokers: tuple[Kafka, Kafka]) -> None:
    *_, check = checks(*(broker.bootstrap for broker in brokers), l=link(topics=["/nothing.*/"]))
    assert (check.status, check.found) == ("warn", "0 topics to copy, 0 to create at the target, mode observe")


def test_expressions_that_match_one_topic_twice_are_found_by_the_existing_topics(brokers: tuple[Kafka, Kafka]) -> None:
    *_, check = checks(
        *(broker.bootstrap for broker in brokers), a=link(topics=["/pay.*/"]), b=link(topics=["/.*[.]in/"])
    )
    assert check.found == (
        "links.b.forward: expected one route from east to pay.in at west, or records arrive twice; found a and b"
    )
