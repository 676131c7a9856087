"""The section read_priority: which entry applies, and what is rejected."""

from typing import Any

import pytest

from tests.configuration import parse
from trueup.state.common.errors import BadSettings
from trueup.state.read_priority.policies import Level
from trueup.state.read_priority.settings import declared_of

CHOSEN = {
    "t/a/own": "tiered-storage-first",
    "t/a": "bookkeeper-first",
    "t/a/late": "tiered-storage-first",
    "/t/x.*/": "tiered-storage-first",
    "t/b": "unmanaged",
    "/.*/": "bookkeeper-first",
}
BASE = {"cluster": {"zookeeper": "z:2181"}}


@pytest.mark.parametrize(
    ("namespace", "topic", "expected"),
    [
        ("t/a", "", ("bookkeeper-first", Level.NAMESPACE)),
        ("t/a", "other", ("bookkeeper-first", Level.NAMESPACE)),
        ("t/a", "own", ("tiered-storage-first", Level.TOPIC)),
        ("t/a", "late", ("bookkeeper-first", Level.NAMESPACE)),
        ("t/xy", "any", ("tiered-storage-first", Level.NAMESPACE)),
        ("t/b", "any", None),
        ("u/c", "any", ("bookkeeper-first", Level.NAMESPACE)),
    ],
)
def test_the_first_entry_that_matches_applies(namespace: str, topic: str, expected: Any) -> None:
    found = declared_of(CHOSEN, namespace, topic)
    assert (found and (found.priority, found.level)) == expected


@pytest.mark.parametrize(
    ("reads", "problem"),
    [
        ({"admin": ["b:8080"]}, r"read_priority.admin: expected addresses http\(s\)"),
        ({"admin": ["http://user:secret@b:8080"]}, "without path or user; found something else"),
        ({"admin": ["http://b:80", "https://b:443"]}, "one scheme"),
        ({"declared": {"t/a": "bookkeeper-first"}}, "read_priority.admin: expected the addresses"),
        ({"admin": ["http://b"], "declared": {"t/a": "tiered-first"}}, "read_priority.declared: expected one of"),
        ({"admin": ["http://b"], "declared": {"a": "unmanaged"}}, "tenant/namespace"),
        (
            {"admin": ["http://b"], "declared": {"/(/": "unmanaged"}},
            "read_priority.declared: expected a regular expression",
        ),
        ({"interval_s": 0}, "read_priority.interval_s: expected a number, at least 0.5"),
    ],
)
def test_invalid_settings_are_rejected(reads: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadSettings, match=problem):
        parse({**BASE, "read_priority": reads})


def test_the_stream_needs_the_cluster() -> None:
    with pytest.raises(BadSettings, match=r"expected cluster\.zookeeper"):
        parse(
            {
                "kafka": {"e": {"bootstrap": "e:1", "bit": 0}},
                "logdirs": {"e": {}},
                "read_priority": {"admin": ["http://b"]},
            }
        )
