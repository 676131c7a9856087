"""Clusters of all systems share one namespace and one set of bits."""

import re

import pytest

from trueup.state.common import systems
from trueup.state.replication.clusters import check_clusters
from trueup.state.replication.settings import LinkSettings
from trueup.state.replication.validation import check_links
from trueup.state.settings.kafka import KafkaCluster

EAST = KafkaCluster("e:1", 0)
OTHER = systems.SYSTEMS["kafka"]._replace(title="Other", topic=re.compile("[a-z]{1,9}"), address="namesrv")


@pytest.fixture(autouse=True)
def other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second system, whose topic names are short and consist of letters."""
    monkeypatch.setitem(systems.SYSTEMS, "other", OTHER)


@pytest.mark.parametrize(
    ("name", "cluster", "problem"),
    [
        ("east", KafkaCluster("o:1", 1), "other.east: expected another name than that of kafka.east; found 'east'"),
        ("west", KafkaCluster("o:1", 0), "other.west.bit: expected another than that of kafka.east; found 0"),
        ("west", KafkaCluster("e:1", 1), "other.west.namesrv: expected another cluster than kafka.east; found e:1"),
        ("west", KafkaCluster("o", 1), "other.west.namesrv: expected host:port[,host:port...]; found 'o'"),
    ],
)
def test_a_cluster_of_a_second_system_is_distinguished_from_those_of_the_first(
    name: str, cluster: KafkaCluster, problem: str
) -> None:
    assert check_clusters({"kafka": {"east": EAST}, "other": {name: cluster}}) == [problem]


def test_a_cluster_that_has_problems_of_its_own_keeps_its_name() -> None:
    assert len(check_clusters({"kafka": {"east": None}, "other": {"east": None}})) == 1


@pytest.mark.parametrize(
    ("source", "target", "keys", "problem"),
    [
        (
            "west",
            "east",
            {"topics": ["a.b"]},
            ("topics: expected names that Other allows, or /regular expressions/; found 'a.b'"),
        ),
        (
            "east",
            "west",
            {"rename": "a.{topic}"},
            (
                "rename: expected a name that Other allows with {topic} in it (for "
                "one topic use into); found 'a.{topic}'"
            ),
        ),
        ("east", "north", {}, "target: expected one of kafka: east; other: west; found 'north'"),
    ],
)
def test_topics_are_named_as_the_system_at_their_end_allows(
    source: str, target: str, keys: dict[str, object], problem: str
) -> None:
    fitting: dict[str, object] = {"topics": ["orders"], "heartbeat_topic": "beats", "dead_letter_topic": "dead{topic}"}
    link = LinkSettings(source, target, **{**fitting, **keys})  # type: ignore[arg-type]
    assert check_links({"a": link}, {"east": "kafka", "west": "other"}) == [f"links.a.{problem}"]
