"""Detection of AutoRecovery daemons, and of whether they process marks."""

import numpy as np
import pytest

from trueup.state.bookkeeper.marks import MARK
from trueup.state.bookkeeper.repair_workers import NOTICED_MS, IdleWorkers, idle, present
from trueup.streams.placement.repairs.repair_workers import VERSIONS_MS, RepairWorkers


def test_marks_without_a_worker_are_idle_from_the_first_look_on() -> None:
    seen = None
    for now_ms in (1_000, 2_000, 3_000):
        seen = idle(seen, 5, 0, now_ms)
    assert seen == IdleWorkers(1_000, 5)


@pytest.mark.parametrize(
    ("marks", "locked", "wanted"), [(5, 1, None), (0, 0, None), (4, 0, IdleWorkers(9, 4)), (7, 0, IdleWorkers(1, 7))]
)
def test_a_lock_or_a_mark_less_shows_a_worker(marks: int, locked: int, wanted: IdleWorkers | None) -> None:
    assert idle(IdleWorkers(1, 5), marks, locked, 9) == wanted


@pytest.mark.parametrize(
    ("voters", "named", "state"),
    [([], 0, "down"), ([], 2, "down"), (["a"], 2, "slow"), (["a"], 0, "up"), (["a", "b"], 2, "up")],
)
def test_every_daemon_that_is_named_has_to_be_there(voters: list[str], named: int, state: str) -> None:
    assert present(voters, named)[0] == state


class Cluster:
    """The inputs of `RepairWorkers`, and a manual clock."""

    def __init__(self, named: int = 0) -> None:
        self.now_ms, self.voters = 1, ["ar1:3181"]
        self.workers = RepairWorkers(lambda: self.voters, named, lambda: self.now_ms)

    def marks(self, count: int, locked: int = 0) -> None:
        rows = np.zeros(count, MARK)
        rows["locked"][:locked] = 1
        self.workers.step(rows)


def test_marks_that_wait_too_long_are_a_problem() -> None:
    cluster = Cluster()
    cluster.marks(200)
    cluster.now_ms += NOTICED_MS
    cluster.marks(200)
    (problem,) = cluster.workers.problems(cluster.now_ms)
    assert problem.startswith("200 ledgers are marked, and no worker has taken one for 1m")


def test_marks_under_a_lock_are_no_problem() -> None:
    cluster = Cluster()
    cluster.marks(200)
    cluster.now_ms += NOTICED_MS
    cluster.marks(200, locked=1)
    assert cluster.workers.problems(cluster.now_ms) == []


def test_a_daemon_that_was_there_and_is_gone_is_missed_in_every_mode() -> None:
    cluster = Cluster()
    cluster.workers.look()
    cluster.voters = []
    cluster.workers.look()
    assert [row[:2] for row in cluster.workers.source(1, needed=False)] == [("autorecovery", "down")]


def test_daemons_that_are_not_needed_are_not_reported() -> None:
    cluster = Cluster()
    cluster.voters = []
    cluster.workers.look()
    assert cluster.workers.source(1, needed=False) == []


class Versions:
    """Daemons that are asked for their version, and a manual clock."""

    def __init__(self) -> None:
        self.now_ms, self.old, self.asked = 1, ["ar1:8080"], 0
        self.workers = RepairWorkers(list, 2, lambda: self.now_ms, self.answer)

    def answer(self) -> list[str]:
        self.asked += 1
        return self.old


def test_a_version_that_is_not_known_yet_may_be_old() -> None:
    assert (Versions().workers.may_be_old(), Cluster(named=0).workers.may_be_old()) == (True, False)


def test_daemons_that_are_too_old_are_named_with_what_they_lack() -> None:
    versions = Versions()
    versions.workers.look()
    [problem] = versions.workers.lacking()
    assert problem.startswith("BookKeeper before 4.16 does not repair placement (ar1:8080): upgrade")


def test_an_upgrade_is_noticed_within_a_minute() -> None:
    versions = Versions()
    versions.workers.look()
    versions.old = []
    versions.workers.look()
    before, asked = versions.workers.may_be_old(), versions.asked
    versions.now_ms += VERSIONS_MS
    versions.workers.look()
    assert (before, asked, versions.workers.may_be_old(), versions.workers.lacking()) == (True, 1, False, [])
