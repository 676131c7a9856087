"""Options of the data source pulsar-ledgers."""

import pytest

from trueup.state.common.errors import BadSettings
from trueup.state.read_priority.positions import EntryPosition
from trueup.state.read_priority.tiers import ReadPriority
from trueup.streams.topic_reader.reader import Range, ReadOptions
from trueup.streams.topic_reader.spark.options import SourceOptions, options_of

CLUSTER = {"zookeeper": "127.0.0.1:2181"}


def chosen(**given: str) -> SourceOptions:
    return options_of({**CLUSTER, **given})


def problem(**given: str) -> str:
    with pytest.raises(BadSettings) as caught:
        chosen(**given)
    (found,) = caught.value.problems
    return found


def test_topics_are_names_in_the_namespace_or_full_names() -> None:
    found = chosen(topics="a, t/ns/b,a ", namespace="x/y")
    assert (found.names, found.pattern) == (("x/y/a", "t/ns/b"), "")


def test_a_pattern_may_contain_a_comma() -> None:
    assert (chosen(topics="/a{1,2}/").names, chosen(topics="/a{1,2}/").pattern) == ((), "/a{1,2}/")


def test_limits_and_choices_are_those_of_the_command() -> None:
    given = {"from": "7:3", "to": "1970-01-01T00:00:01Z", "priority": "tiered-storage-first", "missing": "skip"}
    found = chosen(topics="a", transactions="true", **given)
    assert found.range == Range(first=EntryPosition(7, 3), to_ms=1_000)
    assert found.read == ReadOptions(ReadPriority.TIERED_STORAGE_FIRST, skip_missing=True, transactions=True)


def test_keys_of_the_configuration_are_options() -> None:
    settings = chosen(topics="a", **{"cluster.session_timeout_ms": "2000"}).settings()
    assert (settings.cluster.zookeeper, settings.cluster.session_timeout_ms) == ("127.0.0.1:2181", 2_000)


def test_a_secret_is_refused_and_not_shown() -> None:
    found = problem(topics="a", **{"cluster.auth": "{digest: 'user:planted'}"})
    assert found.startswith("cluster.auth: expected it in the file")
    assert "planted" not in found


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "topics"),
        ({"topics": "/(/"}, "topics"),
        ({"topics": "a", "from": "x"}, "from, to"),
        ({"topics": "a", "priority": "x"}, "priority"),
        ({"topics": "a", "missing": "stop"}, "missing"),
        ({"topics": "a", "partition_mb": "0"}, "partition_mb"),
        ({"topics": "a", "tipics": "b"}, "tipics"),
        ({"topics": "a", "transactions": "yes"}, "transactions"),
        ({"topics": "a", "config": "trueup.yaml"}, "config"),
        ({"topics": "a", "value_type": "int"}, "value_type"),
        ({"topics": "a", "undecodable": "skip"}, "undecodable"),
        ({"topics": "a", "report_to": "http://user:planted@host:8480"}, "report_to"),
        ({"topics": "a", "report_to": "http://host:8480/api"}, "report_to"),
        ({"topics": "a", "report_token_file": "token"}, "report_token_file"),
    ],
)
def test_an_invalid_option_is_named(given: dict[str, str], named: str) -> None:
    assert problem(**given).startswith(f"{named}: expected ")
