"""The loss of a rack while it is held: what is observed is shown as it is, and only marks wait. Half of the bookies die
for longer than the grace period; some ledgers have both copies there, some one, some none."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.trueup import SETTINGS, Trueup, Witness, on_one_rack
from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.writer import LedgerWriter

pytestmark = [pytest.mark.servers, pytest.mark.release]
ENTRIES = 10
DEAD = 3


@dataclass(frozen=True, slots=True)
class Content:
    """Ledgers by the rack of their copies."""

    whole: list[int]
    halved: list[int]
    dead: list[int]


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., SandboxCluster]) -> SandboxCluster:
    return start_cluster(racks={"/rack1": 2, "/rack2": 2}, daemons=False, settings=SETTINGS)


@pytest.fixture(scope="module")
def content(cluster: SandboxCluster, writer: LedgerWriter) -> Content:
    whole = on_one_rack(cluster, writer, 2, ENTRIES)
    cluster.stop("/rack1")
    dead = [writer.write(2, 2, 2, ENTRIES) for _ in range(DEAD)]
    cluster.start("/rack1")
    return Content(whole, [writer.write(2, 2, 2, ENTRIES) for _ in range(2)], dead)


@pytest.fixture(scope="module")
def trueup(
    cluster: SandboxCluster, content: Content, new_root: Callable[[], Path], witness: Witness
) -> Iterator[Trueup]:
    with Trueup(cluster, new_root(), placement={"mode": "enforce", "grace_s": 10.0, "min_racks": 1}) as made:
        made.start()
        made.wait("all to be true", lambda status: status["counts"]["true"] == 2 + 2 + DEAD)
        cluster.kill("/rack2")
        made.wait("the hold", lambda status: status["held"])
        made.until("the losses", lambda: made.metric("trueup_bookies", status="lost") == 2)
        made.wait("the verdicts", lambda status: status["counts"]["drifted"] == 2 and not status["not_judged"])
        yield made


def test_bookies_are_lost(cluster: SandboxCluster, trueup: Trueup) -> None:
    lost = {name for name, status in trueup.statuses().items() if status == "lost"}
    assert lost == {cluster.bookie_id(3), cluster.bookie_id(4)}


def test_ledgers_without_a_copy_come_first(trueup: Trueup, content: Content) -> None:
    rows = trueup.json("get", "ledgers")
    assert [(row["ledger"], row["rule"], row["copies"]) for row in rows] == [
        *((ledger, "placement.all-copies-lost", 0) for ledger in content.dead),
        *((ledger, "placement.lost-member", 1) for ledger in content.halved),
    ]


def test_a_description_counts_no_dead_copy(trueup: Trueup, content: Content) -> None:
    found = trueup.json("describe", "ledger", str(content.dead[0]))
    page = trueup.get(f"ledgers/{content.dead[0]}")[1]
    assert ([one["copies"] for one in found["fragments"]], "0 live copies" in page) == ([0], True)


def test_the_series_of_the_alarms_have_the_numbers(trueup: Trueup) -> None:
    lost = trueup.metric("trueup_ledgers_without_copies")
    assert (lost, trueup.metric("trueup_bookies", status="lost"), trueup.metric("trueup_held")) == (DEAD, 2, 1)


def test_the_status_says_both(trueup: Trueup) -> None:
    said = trueup.run("status").out
    assert (said.startswith("Held"), f"{DEAD} ledgers without a live copy" in said, "2 bookies lost" in said) == (
        True,
        True,
        True,
    ), said


def test_what_if_agrees(trueup: Trueup, content: Content) -> None:
    now = trueup.until("what if", lambda: trueup.api("what-if/rack")["now"])
    assert (now["lost"], now["named"]) == (DEAD, content.dead)


def test_only_marks_wait(trueup: Trueup, content: Content, witness: Witness) -> None:
    rows = trueup.json("plan")
    assert ({row["ledger"]: row["stage"] for row in rows}, witness.marks()) == (
        dict.fromkeys(content.halved, "held"),
        {},
    )


def test_the_release_marks_what_can_be_repaired(trueup: Trueup, content: Content, witness: Witness) -> None:
    trueup.set("placement.release_hold", 1)
    trueup.until("the marks", lambda: set(witness.marks()) == set(content.halved))
    rules = {row["ledger"]: row["rule"] for row in trueup.json("get", "findings")}
    assert [rules[ledger] for ledger in content.dead] == ["placement.all-copies-lost"] * DEAD
