"""What failures would do, computed while the application runs."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.configuration import parse
from trueup.state.common.errors import Refused, Retry
from trueup.state.placement.what_if import NOW, FailureEffect
from trueup.streams.placement.what_if.answer import WhatIfAnswer
from trueup.streams.placement.what_if.job import LEAST_MS, WhatIfJob

SETTINGS = parse({"cluster": {"zookeeper": "127.0.0.1:2181"}})


class Cluster:
    """Answers of a cluster. ``fails``: the error of the next reading."""

    def __init__(self) -> None:
        self.now_ms, self.took_ms, self.read, self.fails = 1_000_000, 0, 0, ""

    def clock(self) -> int:
        return self.now_ms

    def answer(self, _settings: object, kind: str, _names: object, seen: Callable[[int], object]) -> WhatIfAnswer:
        self.read += 1
        seen(7)
        self.now_ms += self.took_ms
        if self.fails:
            raise Retry("an answer of ZooKeeper", self.fails, "try again")
        losses = [FailureEffect(NOW, 0), FailureEffect("/a", 3, lost=0), FailureEffect("/b", 3, lost=2)]
        return WhatIfAnswer({loss.name: loss for loss in losses}, 7, [], 6, 0)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def job(cluster: Cluster) -> WhatIfJob:
    return WhatIfJob(SETTINGS, cluster.clock, cluster.answer)


def states(found: dict[str, Any]) -> tuple[str, bool]:
    return found["state"], found["again"]


def test_nothing_is_read_before_a_request(job: WhatIfJob, cluster: Cluster) -> None:
    job.step()
    assert cluster.read == 0


def test_the_first_request_asks_for_a_computation(job: WhatIfJob) -> None:
    assert states(job.describe("rack")) == ("computing", True)


def test_the_worst_failure_is_first(job: WhatIfJob, cluster: Cluster) -> None:
    job.describe("rack")
    job.step()
    found = job.describe("rack")
    assert (states(found), [row["name"] for row in found["failures"]], found["at_ms"]) == (
        ("ready", False),
        ["/b", "/a"],
        cluster.now_ms,
    )


def test_a_result_is_kept_for_a_minute(job: WhatIfJob, cluster: Cluster) -> None:
    job.describe("rack")
    job.step()
    cluster.now_ms += LEAST_MS - 1
    job.describe("rack")
    job.step()
    cluster.now_ms += 1
    job.describe("rack")
    job.step()
    assert cluster.read == 2


def test_a_long_computation_is_repeated_rarely(job: WhatIfJob, cluster: Cluster) -> None:
    cluster.took_ms = 30_000
    job.describe("bookie")
    job.step()
    cluster.now_ms += 500_000
    assert states(job.describe("bookie")) == ("ready", False)


def test_a_failed_reading_is_named_beside_the_last_result(job: WhatIfJob, cluster: Cluster) -> None:
    job.describe("rack")
    job.step()
    read_ms = cluster.now_ms
    cluster.now_ms, cluster.fails = cluster.now_ms + LEAST_MS, "no session"
    job.describe("rack")
    job.step()
    found = job.describe("rack")
    assert (found["state"], "no session" in found["error"], found["at_ms"], found["ledgers"]) == (
        "failed",
        True,
        read_ms,
        7,
    )


def test_a_reading_that_ends_with_a_defect_is_named(job: WhatIfJob, cluster: Cluster) -> None:
    cluster.clock = lambda: 1  # type: ignore[method-assign]
    job._read = lambda *_: 1 // 0  # type: ignore[assignment]
    job.describe("rack")
    with pytest.raises(ZeroDivisionError):
        job.step()
    assert "see the log" in job.describe("rack")["error"]


def test_another_kind_is_refused(job: WhatIfJob) -> None:
    with pytest.raises(Refused, match="rack, bookie"):
        job.describe("row")


def test_the_loss_of_one_is_part_of_the_result(job: WhatIfJob) -> None:
    before = job.loss("/b")["loss"]
    job.step()
    found = job.loss("/b")
    assert (before, found["loss"]["lost"], job.loss("/c")["loss"]) == (None, 2, None)
