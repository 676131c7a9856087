"""What `trueup read` writes to stderr, for people and for programs."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from trueup.state.common.errors import Retry
from trueup.state.read_priority.tiers import Tier
from trueup.streams.cli.main import invoke
from trueup.streams.terminal import codes
from trueup.streams.topic_reader import topics
from trueup.streams.topic_reader.reader import Fallback, ReadReport

READ = ["read", "tenant/namespace/orders", "--set", "cluster.zookeeper=127.0.0.1:1"]


@pytest.fixture
def fails(request: pytest.FixtureRequest) -> bool:
    """Whether the read fails after it fell back to the other tier."""
    return bool(getattr(request, "param", False))


@pytest.fixture(autouse=True)
def topic(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    report = ReadReport(messages=1)
    report.entries[Tier.TIERED] += 1
    report.fell_back(Fallback(7, 3, Tier.BOOKKEEPER, "no replica"))

    def partitions(_name: str) -> list[object]:
        if fails:
            raise Retry("a response of ZooKeeper", "none", "retry")
        return []

    @contextmanager
    def opened(*_: object) -> Iterator[Any]:
        yield SimpleNamespace(report=report, partitions=partitions)

    monkeypatch.setattr(topics, "opened", opened)


def test_a_person_reads_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(READ) == codes.OK
    assert capsys.readouterr().err.splitlines() == [
        "1 message; entries: 1 from tiered",
        "ledger 7: from entry 3 on not from bookkeeper: no replica",
    ]


def test_a_program_reads_the_summary_as_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke([*READ, "-o", "json"]) == codes.OK
    assert json.loads(capsys.readouterr().err) == {
        "messages": 1,
        "entries": {"tiered": 1},
        "notes": ["ledger 7: from entry 3 on not from bookkeeper: no replica"],
    }


@pytest.mark.parametrize("fails", [True], indirect=True)
def test_a_program_reads_the_error_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke([*READ, "-o", "json"]) == codes.UNREACHABLE
    assert json.loads(capsys.readouterr().err)["error"]["expected"] == "a response of ZooKeeper"
