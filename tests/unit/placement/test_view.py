from tests.memory_store import MemoryStore
from trueup.state.bookkeeper.ledgers import Ledgers, concat, row
from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.bookkeeper.topology import Bookie, Status, Topology
from trueup.state.common.rules import Verdict
from trueup.state.placement.board import Board
from trueup.state.placement.rules import RULES
from trueup.state.placement.view import Bucket, BucketAnswer, merged
from trueup.streams.bookkeeper.codec import topology_bytes, topology_from

A1, A2, B1, B2 = "a1:3181", "a2:3181", "b1:3181", "b2:3181"
RACKS = {A1: "/a", A2: "/a", B1: "/b", B2: "/b"}


def topology(epoch: int, lost: tuple[str, ...] = ()) -> Topology:
    status = {b: Status.LOST if b in lost else Status.WRITABLE for b in RACKS}
    return Topology(epoch, epoch * 1_000, tuple(Bookie(b, r, status[b], 0) for b, r in RACKS.items()))


def bad(ledger: int, mzxid: int = 1) -> Ledgers:
    return row(ledger, [A1, A2], quorum=2, mzxid=mzxid, seen_ms=mzxid * 100)


def good(ledger: int, mzxid: int = 1, version: int = 0) -> Ledgers:
    return row(ledger, [A1, B1], quorum=2, mzxid=mzxid, version=version)


class Driven:
    """A bucket over one store, with a new object for every batch, as in Spark."""

    def __init__(self) -> None:
        self.store = MemoryStore()

    def step(self, rows: Ledgers, seen: Topology | None = None) -> BucketAnswer | None:
        return Bucket(self.store, topology_bytes, topology_from).step(rows, seen)


def started(*rows: Ledgers, lost: tuple[str, ...] = ()) -> Driven:
    driven = Driven()
    driven.step(concat(rows), seen=topology(1, lost))
    return driven


def verdicts(answer: BucketAnswer | None) -> dict[int, str]:
    assert answer is not None
    return {int(f["ledger"]): RULES[int(f["rule"])].verdict.name for f in answer.findings}


def drop(*versions: tuple[str, ...], state: LedgerState = LedgerState.CLOSED, first: int = 0) -> Ledgers:
    """Versions of ledger 1 with these ensembles in turn."""
    return concat(
        [
            row(1, bookies, quorum=2, state=state, mzxid=first + at + 1, version=first + at, seen_ms=2_000)
            for at, bookies in enumerate(versions)
        ]
    )


def refusing(driven: Driven, seen: Topology | None = None) -> frozenset[str]:
    """Bookies that may refuse ledger 1, according to the bucket's answer."""
    answer = driven.step(concat([]), seen=seen or topology(9))
    assert answer is not None
    return answer.former.at(9_000).of(1)


def test_a_repair_leaves_a_memory():
    driven = started(drop((A1, B1)))
    driven.step(drop((A1, A2), first=2))
    assert refusing(driven) == {B1}


def test_versions_that_meet_in_one_batch_leave_a_memory():
    driven = started(bad(2))
    driven.step(drop((A1, B1), (A1, B2), (A1, A2)))
    assert refusing(driven) == {B1, B2}


def test_a_version_that_the_view_knew_and_one_that_it_never_saw_leave_a_memory():
    driven = started(drop((A1, B1)))
    driven.step(drop((A1, B2), (A1, A2), first=2))
    assert refusing(driven) == {B1, B2}


def test_versions_of_the_first_batch_leave_a_memory():
    assert refusing(started(drop((A1, B1), (A1, A2)))) == {B1}


def test_a_writer_that_changes_the_ensemble_leaves_a_memory():
    driven = started(drop((A1, B1), state=LedgerState.OPEN))
    driven.step(drop((A1, A2), state=LedgerState.OPEN, first=1))
    driven.step(drop((A1, A2), first=2))
    assert refusing(driven) == {B1}


def test_former_members_are_not_reported_for_true_ledgers():
    driven = started(drop((A1, B1)))
    driven.step(drop((A1, B2), first=2))
    assert refusing(driven) == frozenset()


def test_a_replay_of_old_versions_forgets_nothing_and_learns_nothing():
    driven = started(drop((A1, B1)))
    driven.step(drop((A1, B1), (A1, A2), first=2))
    driven.step(drop((A1, B1), (A1, A2), first=2))
    assert refusing(driven) == {B1}


def test_without_a_topology_nothing_is_reported():
    assert Driven().step(bad(1)) is None


def test_rows_that_came_before_the_topology_are_judged_when_it_comes():
    driven = Driven()
    driven.step(bad(1))
    assert verdicts(driven.step(concat([]), seen=topology(1))) == {1: "DRIFTED"}


def test_a_true_ledger_is_not_reported():
    assert started(good(1)).step(good(2)) is None


def test_a_repaired_ledger_is_taken_away():
    driven = started(bad(1))
    assert verdicts(driven.step(good(1, mzxid=2, version=1))) == {1: "TRUE"}


def test_an_older_row_that_arrives_late_changes_nothing():
    driven = started(good(1, mzxid=9))
    assert driven.step(bad(1, mzxid=3)) is None


def test_the_same_row_again_changes_nothing():
    driven = started(bad(1, mzxid=9))
    assert driven.step(bad(1, mzxid=9)) is None


def test_a_lost_bookie_is_held_against_ledgers_that_arrive_after_it():
    driven = started(lost=(B1,))
    assert verdicts(driven.step(good(1))) == {1: "DRIFTED"}


def test_an_older_epoch_is_ignored():
    driven = started(good(1))
    driven.step(concat([]), seen=topology(5, lost=(B1,)))
    assert driven.step(concat([]), seen=topology(4)) is None


def test_a_new_epoch_makes_a_bucket_report_everything_again():
    driven = started(bad(1))
    answer = driven.step(concat([]), seen=topology(2))
    assert answer is not None
    assert (answer.full, answer.ledgers, verdicts(answer)) == (True, 1, {1: "DRIFTED"})


def test_drift_keeps_the_time_it_began():
    driven = started(bad(1, mzxid=1))
    answer = driven.step(bad(1, mzxid=7))
    assert answer is not None
    assert answer.findings["since_ms"].tolist() == [1_000]


GONE = row(1, quorum=0, state=LedgerState.GONE, mzxid=8)


def test_a_deleted_ledger_is_no_longer_a_finding():
    driven = started(bad(1))
    assert verdicts(driven.step(GONE)) == {1: "TRUE"}


def applied(*answers: BucketAnswer | None) -> list[bool]:
    """Whether each ledger that stopped being a finding with the last of these answers was deleted."""
    board = Board()
    for answer in answers:
        assert answer is not None
        cleared = board.apply(0, answer)
    return cleared.deleted.tolist()


def test_a_ledger_that_is_deleted_together_with_a_new_epoch_is_cleared_as_deleted():
    driven = Driven()
    assert applied(driven.step(bad(1), topology(1)), driven.step(GONE, topology(2))) == [True]


def test_a_ledger_that_was_deleted_before_the_first_answer_of_a_run_is_cleared_as_deleted():
    driven = started(bad(1))
    assert applied(driven.step(GONE, topology(2))) == [True]


def test_a_deleted_ledger_is_reported_once():
    driven = started(bad(1))
    driven.step(GONE, topology(2))
    assert verdicts(driven.step(concat([]), topology(3))) == {}


def test_a_deleted_ledger_in_a_full_answer_is_no_finding():
    board, driven = Board(), started(bad(1), bad(2))
    answer = driven.step(GONE, topology(2))
    assert answer is not None
    board.apply(0, answer)
    assert board.findings["ledger"].tolist() == [2]


def test_a_deleted_ledger_is_not_raised_by_a_late_row():
    driven = started(bad(1), row(1, quorum=0, state=LedgerState.GONE, mzxid=8))
    assert driven.step(bad(1, mzxid=3)) is None


def test_an_unreadable_ledger_is_unknown():
    answer = started().step(row(1, quorum=0, state=LedgerState.UNREADABLE))
    assert verdicts(answer) == {1: "UNKNOWN"}


def test_compaction_keeps_the_newest_row_of_each_ledger(monkeypatch):
    monkeypatch.setattr("trueup.state.common.bucket_log.TAIL_ROWS", 4)
    driven = started()
    for mzxid in range(1, 30):
        driven.step(bad(mzxid % 5, mzxid=mzxid))
    bucket = Bucket(driven.store, topology_bytes, topology_from)
    assert bucket.view().latest().mzxid.tolist() == [25, 26, 27, 28, 29]


def test_a_delta_replaces_only_what_it_names():
    driven = started(bad(1), bad(2))
    whole = driven.step(concat([]), seen=topology(2))
    delta = driven.step(good(1, mzxid=2, version=1))
    assert whole is not None
    assert delta is not None
    assert merged(whole.findings, delta.findings)["ledger"].tolist() == [2]


def test_a_true_finding_is_never_kept():
    driven = started(bad(1))
    delta = driven.step(good(1, mzxid=2, version=1))
    assert delta is not None
    assert not (merged(delta.findings, delta.findings)["verdict"] == Verdict.TRUE).any()
