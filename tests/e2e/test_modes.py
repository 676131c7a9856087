"""The modes observe, approve and enforce on one running application with an embedded journal: output, commands and
rejected requests. The tests depend on their order."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
from confluent_kafka import KafkaError, Producer

from tests.e2e.planted import MARK, secret, shown
from tests.e2e.trueup import SETTINGS, CommandResult, Trueup, Witness, command
from tests.integration.bookkeeper.tree import encoded
from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.demo.truth import Truth
from trueup.sandbox.writer import LedgerWriter
from trueup.streams.journal.codec import encode

pytestmark = pytest.mark.servers
ENTRIES = 20
UNREADABLE, UNREGISTERED = 4242, 4343
UNBOUND = "BookKeeper's Auditor marks the ledgers of lost bookies, and neither hold nor approve binds it"


@dataclass(frozen=True, slots=True)
class Content:
    """Ledgers by expected verdict."""

    narrow: tuple[int, ...]
    blocked: int
    healthy: int
    open: int


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., SandboxCluster]) -> SandboxCluster:
    return start_cluster(racks={"/rack1": 2, "/rack2": 2}, settings=SETTINGS)


@pytest.fixture(scope="module")
def content(cluster: SandboxCluster, writer: LedgerWriter) -> Content:
    cluster.stop("/rack2")
    narrow = tuple(writer.write(2, 2, 2, ENTRIES) for _ in range(6))
    cluster.start("/rack2")
    blocked, healthy, left_open = writer.write(3, 2, 2, ENTRIES), writer.write(2, 2, 2, ENTRIES), writer.create(2, 2, 2)
    writer.add(left_open, ENTRIES)
    return Content(narrow, blocked, healthy, left_open.ledger)


@pytest.fixture(scope="module")
def trueup(cluster: SandboxCluster, content: Content, new_root: Callable[[], Path]) -> Iterator[Trueup]:
    plant = {"auth": {"digest": f"trueup:{secret('zookeeper')}"}}
    journal, spark = {"options": {"client.rack": secret("journal")}}, {"conf": {"spark.planted": secret("spark")}}
    with Trueup(cluster, new_root(), cluster=plant, journal=journal, spark=spark, racks={"refresh_s": 2}) as made:
        made.start()
        made.wait("the narrow ledgers to be found", lambda status: status["counts"]["drifted"] == len(content.narrow))
        yield made


@pytest.fixture
def approving(trueup: Trueup) -> None:
    if trueup.api("status")["mode"] != "approve":
        trueup.set("placement.mode", "approve")


class Approved(NamedTuple):
    """An approved and completed action. ``marked``: number of marks per ledger during the action."""

    row: dict[str, Any]
    result: CommandResult
    marked: dict[int, int]


@pytest.fixture(scope="module")
def approved(trueup: Trueup, witness: Witness) -> Approved:
    trueup.set("placement.mode", "approve")
    row = trueup.json("plan")[0]
    with witness.counting() as marked:
        result = trueup.run("approve", row["id"])
        trueup.until("the approved ledger to be true", lambda: row["ledger"] not in trueup.findings())
    return Approved(row, result, dict(marked))


def test_drift_is_found_with_rule_copies_and_racks(trueup: Trueup, content: Content) -> None:
    rows = trueup.json("get", "findings", "--verdict", "drifted")
    result = {(row["ledger"], row["rule"], row["copies"], row["racks"]) for row in rows}
    assert result == {(ledger, "placement.too-few-racks", 2, 1) for ledger in content.narrow}


def test_what_bookkeeper_cannot_repair_is_blocked(trueup: Trueup, content: Content) -> None:
    rows = trueup.json("get", "findings", "--verdict", "blocked")
    assert [(row["ledger"], row["stage"], row["marked"]) for row in rows] == [(content.blocked, "", False)]


def test_tables_show_ledgers_findings_and_bookies(trueup: Trueup, content: Content, cluster: SandboxCluster) -> None:
    shown = [trueup.run("get", what).out for what in ("ledgers", "findings", "bookies")]
    ledgers = [str(ledger) for ledger in content.narrow]
    assert [
        *[word for word in ledgers if word not in shown[0].split() or word not in shown[1].split()],
        *[n for n in cluster.bookies if cluster.bookie_id(n) not in shown[2]],
    ] == []


def test_every_bookie_stands_in_its_rack(trueup: Trueup, cluster: SandboxCluster) -> None:
    rows = trueup.json("get", "bookies")
    reported = {row["bookie"]: (row["rack"], row["status"]) for row in rows}
    assert reported == {cluster.bookie_id(n): (cluster.rack_of(n), "writable") for n in cluster.bookies}


def test_all_ledgers_are_listed_with_their_verdict(trueup: Trueup, content: Content) -> None:
    rows = trueup.json("get", "ledgers", "--all")
    assert {row["ledger"]: row["verdict"] for row in rows} == {
        **dict.fromkeys(content.narrow, "drifted"),
        content.blocked: "blocked",
        content.healthy: "true",
        content.open: "true",
    }


def test_a_ledger_is_described_with_its_evidence(trueup: Trueup, content: Content) -> None:
    found = trueup.json("describe", "ledger", str(content.narrow[0]))
    windows = found["fragments"][0]["failing_windows"]
    assert (found["rule"], {tuple(window["racks"]) for window in windows}) == ("placement.too-few-racks", {("/rack1",)})


def test_a_blocked_ledger_shows_what_would_change_it(trueup: Trueup, content: Content) -> None:
    result = trueup.run("describe", "ledger", str(content.blocked))
    assert (result.code, "What would change the verdict" in result.out, "rack" in result.out) == (0, True, True)


def test_the_plan_names_every_drifted_ledger(trueup: Trueup, content: Content) -> None:
    rows = trueup.json("plan")
    assert {(row["ledger"], row["kind"], row["stage"]) for row in rows} == {
        (ledger, "mark", "planned") for ledger in content.narrow
    }


def test_a_plan_with_changes_has_an_exit_code_of_its_own(trueup: Trueup) -> None:
    assert trueup.run("plan").code == 3


def test_the_rule_of_a_finding_is_explained() -> None:
    result = command("explain", "too-few-racks")
    assert (result.code, result.out.startswith("placement.too-few-racks: drifted")) == (0, True)


def test_the_status_needs_attention_while_ledgers_drift(trueup: Trueup, content: Content) -> None:
    result = trueup.run("status")
    assert (result.code, f"{len(content.narrow)} ledgers drifted" in result.out) == (1, True), result


def test_observe_writes_nothing(trueup: Trueup, witness: Witness) -> None:
    ours = [vote for vote in witness.votes() if not vote.startswith("autorecovery")]
    assert (witness.marks(), ours, trueup.json("get", "marks"), trueup.json("get", "actions")) == ({}, [], [], [])


def test_the_page_shows_what_is_found(trueup: Trueup, content: Content) -> None:
    code, page = trueup.get("")
    assert (code, f"{len(content.narrow)} ledgers drifted" in page, "too-few-racks" in page) == (200, True, True)


def test_in_approve_actions_wait_for_an_operator(
    trueup: Trueup, approving: None, content: Content, witness: Witness
) -> None:
    stages = {row["stage"] for row in trueup.json("plan")}
    waiting = trueup.wait("actions to wait", lambda status: status["waiting"])["waiting"]
    assert (stages, waiting, witness.marks()) == ({"awaiting approval"}, {"approval": len(content.narrow)}, {})


def test_beyond_observe_the_auditors_place_is_asked_for(trueup: Trueup, approving: None, witness: Witness) -> None:
    votes = trueup.until("our vote", lambda: found if len(found := witness.votes()) == 3 else None)
    assert [vote.partition("-")[0] for vote in votes][-1] == "trueup"


def test_in_approve_the_status_shows_that_an_auditor_which_came_first_is_not_bound(
    trueup: Trueup, approving: None
) -> None:
    result = trueup.run("status")
    assert (result.code, result.out.startswith("Needs attention"), result.out.count(UNBOUND)) == (1, True, 2), result


def test_an_approval_repairs_that_ledger_alone(approved: Approved, content: Content, truth: Truth) -> None:
    ledger = approved.row["ledger"]
    left = {*content.narrow, content.blocked} - {ledger}
    assert (approved.result.code, truth.on_one_rack(), approved.marked) == (0, left, {ledger: 1}), approved.result


def test_an_id_of_an_earlier_plan_is_refused(trueup: Trueup, approved: Approved) -> None:
    ledger = approved.row["ledger"]
    row = trueup.json("describe", "ledger", str(ledger))
    result = trueup.run("approve", f"repair-{ledger}-v{row['version'] - 1}")
    assert (result.code, "ids of the current plan" in result.err) == (5, True), result


def test_metadata_that_cannot_be_read_is_unknown_and_stops_nothing_else(
    trueup: Trueup, witness: Witness, writer: LedgerWriter
) -> None:
    path = witness.paths.ledger(UNREADABLE)
    witness.client.make(path, b"BookieMetadataFormatVersion\t1\n" + secret("ledger").encode())
    found = trueup.until("the finding", lambda: trueup.findings().get(UNREADABLE))
    result = trueup.run("describe", "ledger", str(UNREADABLE))
    before = trueup.wait("a status", lambda _: True)["counts"]["true"]
    writer.write(2, 2, 2, 1)
    trueup.wait("another ledger to be seen", lambda status: status["counts"]["true"] > before)
    assert (found["verdict"], found["rule"]) == ("unknown", "placement.unreadable")
    assert path in result.out, result
    assert "at byte" in result.out, result


def test_no_secret_is_shown_anywhere(trueup: Trueup) -> None:
    result = [trueup.run("describe", "ledger", str(UNREADABLE)), trueup.run("get", "findings")]
    assert (shown(trueup), MARK.decode() in str(result)) == (
        {"arguments": [], "files": [], "api": [], "spark": []},
        False,
    )


def test_metadata_that_is_removed_leaves_the_findings(trueup: Trueup, witness: Witness) -> None:
    witness.client.drop(witness.paths.ledger(UNREADABLE), -1)
    trueup.until("the finding to go", lambda: UNREADABLE not in trueup.findings())
    assert trueup.run("describe", "ledger", str(UNREADABLE)).code == 5


def test_a_bookie_that_was_never_registered_is_lost_after_the_grace(
    trueup: Trueup, witness: Witness, cluster: SandboxCluster
) -> None:
    path, unregistered = witness.paths.ledger(UNREGISTERED), "127.0.0.99:3181"
    witness.client.make(path, encoded(UNREGISTERED, [cluster.bookie_id(1), unregistered]))
    trueup.until("the loss", lambda: UNREGISTERED in trueup.findings("lost-member"))
    status = trueup.statuses()[unregistered]
    lists = (["findings"], ["ledgers"], ["ledgers", "--all"])
    selected = [[row["ledger"] for row in trueup.json("get", *words, "--bookie", unregistered)] for words in lists]
    witness.client.drop(path, -1)
    trueup.until("the finding to go", lambda: UNREGISTERED not in trueup.findings())
    reported = trueup.wait("a status", lambda _: True)["ledgers"]
    assert (status, reported) == ("lost", len(trueup.json("get", "ledgers", "--all")))
    assert selected == [[UNREGISTERED]] * 3


def test_a_value_out_of_bounds_is_refused_at_once(trueup: Trueup) -> None:
    result = trueup.run("config", "set", "placement.hold_share", "2")
    value = trueup.json("config", "get", "placement.hold_share")
    assert (result.code, "at most 1" in result.err, value) == (2, True, 0.3)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"\xff\xff no Avro", "journal record not readable"),
        (encode("config", {"name": "placement.max_marks", "value": "-5", "at_ms": 1}), "config record refused"),
    ],
    ids=["no record", "out of bounds"],
)
def test_a_bad_config_record_is_reported_and_changes_nothing(trueup: Trueup, body: bytes, problem: str) -> None:
    producer = Producer(trueup.embedded(trueup.data))
    producer.produce("trueup.e2e.config", body, b"placement.max_marks")
    assert producer.flush(120) == 0

    def reported(status: dict[str, Any]) -> bool:
        return any(problem in each and "topic trueup.e2e.config" in each for each in status["problems"])

    trueup.wait("the problem", reported)
    assert trueup.json("config", "get", "placement.max_marks") == 200


def test_a_process_that_cannot_read_the_data_directory_writes_nothing_to_the_journal(trueup: Trueup) -> None:
    outcomes: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": trueup.source("journal")["detail"], "message.timeout.ms": 3_000})
    body = encode("config", {"name": "placement.mode", "value": '"enforce"', "at_ms": 1})
    producer.produce("trueup.e2e.config", body, b"placement.mode", on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(120) == 0
    assert (outcomes[0] is not None, trueup.json("config", "get", "placement.mode")) == (True, "approve")


def test_nobody_else_can_read_the_data_directory(trueup: Trueup) -> None:
    assert oct(trueup.data.stat().st_mode & 0o777) == "0o700"


def test_after_bad_records_a_good_one_is_applied_and_clears_the_problem(trueup: Trueup) -> None:
    trueup.set("placement.max_marks", 50)
    status = trueup.wait("the new cap", lambda status: status["marks"]["cap"] == 50)
    assert status["problems"] == []


def test_in_enforce_all_that_can_becomes_true(trueup: Trueup, content: Content, truth: Truth) -> None:
    trueup.set("placement.mode", "enforce")
    # The verdict of a ledger that just changed is unknown until the next evaluation.
    trueup.wait(
        "nothing to drift",
        lambda status: not (status["counts"]["drifted"] or status["not_judged"] or status["marks"]["ours"]),
    )
    assert truth.on_one_rack() == {content.blocked}


def test_every_entry_is_still_there(content: Content, writer: LedgerWriter) -> None:
    read = {ledger: writer.verify(ledger, ENTRIES).read for ledger in (*content.narrow, content.blocked)}
    assert set(read.values()) == {ENTRIES}


def test_repairs_are_counted_and_timed(trueup: Trueup, content: Content) -> None:
    code, text = trueup.get("metrics")
    written = trueup.metric("trueup_actions_total", kind="mark", outcome="written")
    safe = trueup.metric("trueup_time_to_safe_seconds_count")
    assert (code, written, safe >= len(content.narrow)) == (200, len(content.narrow), True), text


def test_history_lists_the_steps_of_a_repair(trueup: Trueup, content: Content) -> None:
    events = [e["event"] for e in trueup.json("describe", "ledger", str(content.narrow[0]))["history"]]
    assert [events[0] in ("approved", "ordered"), events[-1]] == [True, "safe"]


def test_a_killed_embedded_journal_is_started_again(trueup: Trueup, writer: LedgerWriter, witness: Witness) -> None:
    broker = next(
        child
        for child in psutil.Process(trueup.process.pid).children(recursive=True)
        if "kafka.Kafka" in child.cmdline()
    )
    before = trueup.wait("a status", lambda _: True)["counts"]["true"]
    with witness.counting() as marked:
        broker.kill()
        trueup.until("the loss to be told", lambda: trueup.source("journal")["state"] == "down")
        ledger = writer.write(2, 2, 2, ENTRIES)
        trueup.until("the journal", lambda: trueup.source("journal")["state"] == "up")
        trueup.wait("the new ledger to be seen", lambda status: status["counts"]["true"] == before + 1)
    assert (dict(marked), ledger in trueup.findings()) == ({}, False)


@pytest.fixture
def hanging_script(cluster: SandboxCluster) -> Iterator[None]:
    before = cluster.rack_script.read_text()
    cluster.rack_script.write_text("#!/bin/sh\nexec sleep 600\n")
    yield
    cluster.rack_script.write_text(before)


@pytest.mark.usefixtures("hanging_script")
def test_a_hanging_rack_script_is_reported_and_the_last_racks_stay_in_force(
    trueup: Trueup, writer: LedgerWriter
) -> None:
    before = trueup.api("status")["counts"]["true"]
    trueup.until("the script to be missed", lambda: "a time-out after 5 s" in trueup.source("racks")["detail"])
    writer.write(2, 2, 2, ENTRIES)
    trueup.wait("a new ledger to be judged by them", lambda status: status["counts"]["true"] == before + 1)
    assert trueup.source("racks")["state"] == "slow"


def test_a_mass_loss_that_does_not_bind_the_auditor_is_in_the_headline_in_approve(
    trueup: Trueup, approving: None, cluster: SandboxCluster
) -> None:
    trueup.set("placement.grace_s", 60)  # both bookies must be missing at one time, however long they take to end
    cluster.stop("/rack2")
    trueup.wait("the hold", lambda status: status["held"])
    result = trueup.run("status")
    cluster.start("/rack2")
    trueup.set("placement.grace_s", 1)
    trueup.wait("its end", lambda status: not status["held"])
    assert (result.out.splitlines()[0], result.out.count(UNBOUND)) == (
        "Held by Trueup; BookKeeper's Auditor is not bound",
        2,
    ), result


def test_autorecovery_daemons_that_are_gone_are_missed(trueup: Trueup, cluster: SandboxCluster) -> None:
    cluster.stop("autorecovery")
    trueup.until("the daemons to be missed", lambda: trueup.source("autorecovery")["state"] == "down")
    cluster.start("autorecovery")
    trueup.until("their return", lambda: trueup.source("autorecovery")["state"] == "up")
    assert trueup.source("autorecovery")["detail"].startswith("2 AutoRecovery daemons are registered")


def test_sigterm_ends_it_in_order_and_gives_the_vote_back(trueup: Trueup, witness: Witness) -> None:
    code = trueup.end()
    assert (code, {vote.partition("y")[0] for vote in witness.votes()}) == (0, {"autorecover"}), trueup.diagnostics()
