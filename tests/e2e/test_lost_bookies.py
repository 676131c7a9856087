"""Bookies that fail, return or stay lost, with an application in mode enforce. The first tests run without an
AutoRecovery daemon, so that marks remain until they are checked."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.trueup import SETTINGS, Trueup, Witness, until
from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.demo.truth import Truth
from trueup.sandbox.writer import LedgerHandle, LedgerWriter

pytestmark = pytest.mark.servers
ENTRIES = 10
GRACE_S = 1
TOGETHER_S = 5
LONG_S = 600


@dataclass(frozen=True, slots=True)
class Content:
    """Closed ledgers on both racks, and an open one."""

    closed: tuple[int, ...]
    writing: LedgerHandle


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., SandboxCluster]) -> SandboxCluster:
    return start_cluster(racks={"/rack1": 2, "/rack2": 2}, daemons=False, kafka=True, settings=SETTINGS)


@pytest.fixture(scope="module")
def content(cluster: SandboxCluster, writer: LedgerWriter) -> Content:
    closed = tuple(writer.write(2, 2, 2, ENTRIES) for _ in range(8))
    writing = writer.create(3, 3, 2)
    writer.add(writing, ENTRIES)
    return Content(closed, writing)


@pytest.fixture(scope="module")
def lost(cluster: SandboxCluster, content: Content, truth: Truth) -> int:
    """A bookie that is a member of several closed ledgers and of the tail of the open one."""
    rows = truth.ledgers()
    members = {int(rows.ledger[at]): rows.ensembles(at)[-1] for at in range(len(rows))}
    return next(
        n
        for n in cluster.bookies
        if cluster.bookie_id(n) in members[content.writing.ledger]
        and sum(cluster.bookie_id(n) in members[ledger] for ledger in content.closed) > 1
    )


@pytest.fixture(scope="module")
def trueup(cluster: SandboxCluster, content: Content, new_root: Callable[[], Path]) -> Iterator[Trueup]:
    with Trueup(
        cluster,
        new_root(),
        placement={"mode": "enforce", "grace_s": GRACE_S},
        journal={"bootstrap": cluster.kafka.bootstrap},
    ) as made:
        made.start()
        made.wait("all to be true", lambda status: status["counts"]["true"] == len(content.closed) + 1)
        made.until("our vote", lambda: made.source("vote")["detail"] == "ours")
        yield made


@pytest.fixture(scope="module")
def workers(cluster: SandboxCluster, trueup: Trueup, lost: int) -> None:
    """AutoRecovery daemons, started after marks exist. The bookie stays lost."""
    cluster.kill(f"bookie{lost}")
    trueup.until("marks", lambda: trueup.api("marks"))
    cluster.start("autorecovery")


def holding(truth: Truth, bookie: str) -> set[int]:
    """Ledgers with this bookie in an ensemble."""
    rows = truth.ledgers()
    return {int(rows.ledger[at]) for at in range(len(rows)) if any(bookie in members for members in rows.ensembles(at))}


def left(cluster: SandboxCluster, witness: Witness, truth: Truth, bookie: str) -> str:
    """Diagnostics for the case that BookKeeper repairs nothing."""
    logs = "\n".join(f"{daemon.name}\n{daemon.process.tail(60)}" for daemon in cluster.autorecoveries)
    return f"ledgers of {bookie} {holding(truth, bookie)}\nmarks {witness.marks()}\nvotes {witness.votes()}\n{logs}"


def gone(trueup: Trueup, bookie: str, status: str) -> None:
    """Wait until the application reports this status of a bookie."""
    trueup.until(f"{bookie} to be {status}", lambda: trueup.statuses().get(bookie) == status)


def overdue(trueup: Trueup, bookie: str, grace_s: float) -> None:
    """Wait until a bookie has been absent for longer than ``grace_s`` by the application's clock."""

    def passed() -> bool:
        row = next(row for row in trueup.api("bookies") if row["bookie"] == bookie)
        return bool(trueup.api("status")["now_ms"] - row["since_ms"] > grace_s * 1000)

    trueup.until(f"{grace_s} s without {bookie}", passed)


@pytest.fixture
def well(cluster: SandboxCluster, trueup: Trueup, witness: Witness) -> None:
    """Resets the state that the previous test left: nothing is missing, disabled, postponed or marked."""
    allow(witness)
    cluster.start("bookies")
    trueup.wait("all to be true", lambda s: s["counts"]["true"] == s["ledgers"] and not s["marks"]["outstanding"])


@pytest.fixture
def postponed(cluster: SandboxCluster, trueup: Trueup, lost: int, witness: Witness) -> str:
    """Name of a dead bookie that is still pending because of BookKeeper's recovery delay."""
    name = cluster.bookie_id(lost)
    if trueup.statuses()[name] != "pending":
        cluster.start(f"bookie{lost}")
        gone(trueup, name, "writable")
        witness.client.put(witness.paths.delay, str(LONG_S).encode(), -1)
        cluster.kill(f"bookie{lost}")
        gone(trueup, name, "pending")
    return name


@pytest.fixture
def marked(cluster: SandboxCluster, trueup: Trueup, content: Content, lost: int, witness: Witness, truth: Truth) -> str:
    """Name of a dead bookie whose closed ledgers are marked."""
    allow(witness)
    cluster.kill(f"bookie{lost}")
    wanted = holding(truth, cluster.bookie_id(lost)) & set(content.closed)
    trueup.until("the marks", lambda: wanted and set(witness.marks()) == wanted)
    return cluster.bookie_id(lost)


@pytest.fixture
def held(cluster: SandboxCluster, trueup: Trueup) -> None:
    """The simultaneous loss of a rack, which is held."""
    # Sessions that end together may be observed up to a second apart.
    trueup.set("placement.grace_s", TOGETHER_S)
    cluster.kill("/rack2")
    trueup.wait("the hold", lambda status: status["held"])


def allow(witness: Witness) -> None:
    """Enable replication and remove BookKeeper's delay. It is written only if necessary: a write triggers an audit."""
    if witness.client.look(witness.paths.disable):
        witness.client.drop(witness.paths.disable, -1)
    found = witness.client.look(witness.paths.delay)
    if found is not None and found[0] != b"0":
        witness.client.put(witness.paths.delay, b"0", -1)


def test_a_bookie_back_within_the_grace_was_never_lost(
    cluster: SandboxCluster, trueup: Trueup, well: None, lost: int, witness: Witness
) -> None:
    trueup.set("placement.grace_s", LONG_S)
    try:
        with witness.counting() as marked:
            cluster.kill(f"bookie{lost}")
            gone(trueup, cluster.bookie_id(lost), "pending")
            waits = {row["rule"] for row in trueup.findings().values()}
            cluster.start(f"bookie{lost}")
            gone(trueup, cluster.bookie_id(lost), "writable")
            trueup.wait("all to be true", lambda s: s["counts"]["true"] == s["ledgers"])
    finally:
        trueup.set("placement.grace_s", GRACE_S)
    assert (waits <= {"placement.pending-member", "placement.open-waits-for-writer"}, dict(marked)) == (True, {}), waits


def test_the_recovery_delay_of_bookkeeper_is_waited_for(trueup: Trueup, postponed: str, witness: Witness) -> None:
    overdue(trueup, postponed, 3 * GRACE_S)
    assert (trueup.statuses()[postponed], witness.marks()) == ("pending", {})


def test_while_replication_is_disabled_nothing_is_marked(trueup: Trueup, postponed: str, witness: Witness) -> None:
    witness.client.make(witness.paths.disable)
    trueup.wait("the switch to be seen", lambda s: any("disabled" in problem for problem in s["problems"]))
    witness.client.put(witness.paths.delay, b"0", -1)  # triggers an audit
    gone(trueup, postponed, "lost")
    trueup.until("drift", lambda: trueup.findings("lost-member"))
    assert witness.marks() == {}


def test_a_lost_bookies_ledgers_are_marked_with_its_name(marked: str, witness: Witness) -> None:
    assert {mark.replicas for mark in witness.marks().values()} == {(marked,)}


def test_an_open_ledger_without_a_tail_member_is_left_to_its_writer(
    trueup: Trueup, content: Content, marked: str, truth: Truth, witness: Witness
) -> None:
    found = trueup.findings()[content.writing.ledger]
    result = (found["verdict"], found["rule"], content.writing.ledger in witness.marks())
    assert (result, truth.not_open({content.writing.ledger})) == (
        ("blocked", "placement.open-waits-for-writer", False),
        set(),
    )


def test_our_marks_are_listed_as_ours(trueup: Trueup, marked: str, witness: Witness) -> None:
    trueup.wait("the marks to be seen", lambda s: s["marks"]["outstanding"] == len(witness.marks()))
    rows = trueup.json("get", "marks")
    assert {row["ledger"]: row["ours"] for row in rows} == dict.fromkeys(witness.marks(), True)


def test_a_bookie_that_returns_takes_the_marks_with_it(
    cluster: SandboxCluster, trueup: Trueup, lost: int, marked: str, witness: Witness, truth: Truth
) -> None:
    before = holding(truth, marked)
    cluster.start(f"bookie{lost}")
    trueup.until("no marks", lambda: not witness.marks())
    status = trueup.wait("all to be true", lambda s: s["counts"]["true"] == s["ledgers"] and not s["marks"]["ours"])
    outcomes = {row["outcome"] for row in trueup.json("get", "actions")}
    assert (status["marks"]["ours"], "withdrawn" in outcomes, holding(truth, marked)) == (0, True, before)


def test_a_bookie_lost_for_good_is_replaced(
    cluster: SandboxCluster,
    trueup: Trueup,
    workers: None,
    content: Content,
    lost: int,
    truth: Truth,
    writer: LedgerWriter,
) -> None:
    name = cluster.bookie_id(lost)
    trueup.until("the copies", lambda: not holding(truth, name) & set(content.closed))
    trueup.wait("no marks", lambda s: not s["marks"]["outstanding"] and not trueup.findings("lost-member"))
    assert {writer.verify(ledger, ENTRIES).read for ledger in content.closed} == {ENTRIES}


def test_the_writer_of_the_open_ledger_was_never_fenced(trueup: Trueup, content: Content, writer: LedgerWriter) -> None:
    writer.add(content.writing, ENTRIES)
    writer.close(content.writing)
    trueup.until("its closed state", lambda: content.writing.ledger not in trueup.findings("open-waits-for-writer"))
    assert writer.verify(content.writing.ledger, 2 * ENTRIES).read == 2 * ENTRIES


def test_what_lost_its_second_rack_gets_it_back(well: None, truth: Truth) -> None:
    assert truth.on_one_rack() == set()


def test_a_mass_loss_is_held(
    cluster: SandboxCluster, trueup: Trueup, well: None, witness: Witness, request: pytest.FixtureRequest
) -> None:
    with witness.counting() as marked:
        request.getfixturevalue("held")
        for number in (3, 4):
            gone(trueup, cluster.bookie_id(number), "lost")
        found = trueup.until("the findings", lambda: trueup.findings("lost-member"))
        overdue(trueup, cluster.bookie_id(3), 1)
    result = trueup.run("status")
    copies = {(row["copies"], row["held"]) for row in found.values()}
    assert (dict(marked), copies, result.out.startswith("Held")) == ({}, {(1, True)}, True), result


def test_an_operator_ends_a_hold(
    cluster: SandboxCluster, trueup: Trueup, content: Content, held: None, truth: Truth
) -> None:
    trueup.set("placement.release_hold", 1)
    dead = {cluster.bookie_id(3), cluster.bookie_id(4)}
    trueup.until("the copies on rack 1", lambda: not any(holding(truth, name) & set(content.closed) for name in dead))
    assert trueup.api("status")["held"] == ""


def test_when_the_rack_is_back_every_ledger_becomes_true(
    well: None, truth: Truth, writer: LedgerWriter, content: Content
) -> None:
    read = {writer.verify(ledger, ENTRIES).read for ledger in content.closed}
    assert (truth.on_one_rack(), read) == (set(), {ENTRIES})


def test_when_it_ends_bookkeepers_auditor_takes_over(
    cluster: SandboxCluster, trueup: Trueup, witness: Witness, truth: Truth
) -> None:
    # A daemon can keep a lock that it no longer tracks: the timer that releases a deferred ledger's lock
    # (ZkLedgerUnderreplicationManager) also removes the entry of a lock that the worker acquires at the same time.
    cluster.kill("autorecovery")
    cluster.start("autorecovery")
    code = trueup.end()
    auditor = trueup.until("their vote", lambda: votes[0] if (votes := witness.votes()) else None)
    number = next(n for n in cluster.bookies if holding(truth, cluster.bookie_id(n)))
    cluster.kill(f"bookie{number}")
    name = cluster.bookie_id(number)
    remaining = partial(left, cluster, witness, truth, name)
    until(lambda: not holding(truth, name), LONG_S, "BookKeeper's own repair", remaining)
    assert (code, auditor.startswith("autorecovery")) == (0, True), trueup.diagnostics()
