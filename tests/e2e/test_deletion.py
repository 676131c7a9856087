"""Deletion in the application, end to end: a Pulsar whose broker forgets ledgers, `trueup run`, an operator, a live
writer, SIGKILL, and an unavailable bookie. Each test uses its own topics and starts in mode observe."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pulsar as library
import pytest

from tests.e2e.trueup import Trueup, Witness
from trueup.connectors.bookkeeper.deletion.presence import PresenceAnswer, presence
from trueup.connectors.bookkeeper.metadata.addresses import Addresses
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.pulsar.layout import PulsarPaths
from trueup.connectors.pulsar.nodes import pointers_of
from trueup.sandbox.demo.leak import instance
from trueup.sandbox.forgetting import data_of, forget, listed, plant, truncate, unload
from trueup.sandbox.messages import MessageClient
from trueup.sandbox.pulsar import SandboxPulsar

pytestmark = [pytest.mark.servers, pytest.mark.timeout(900)]
PER_LEDGER, SIZE = 20, 1_000
GRACE_S, RATE, SLOW_RATE = 2.0, 50.0, 0.3
LIVE_LEDGERS, ROUNDS = 100, 4
OWNERS, COMPACTED = PulsarPaths(), "public/default/compacted"
Row = dict[str, Any]


@pytest.fixture(scope="module")
def cluster(new_root: Callable[[], Path]) -> Iterator[SandboxPulsar]:
    settings = {"managedLedgerMaxEntriesPerLedger": PER_LEDGER}
    with SandboxPulsar(new_root(), bookies=3, settings=settings) as made:
        made.up()
        yield made


@pytest.fixture(scope="module")
def reported(cluster: SandboxPulsar, messages: MessageClient) -> dict[int, str]:
    """Ledgers that must never be deleted, with the rule that reports them."""
    messages.write(topic("quiet"), range(PER_LEDGER * 2), SIZE)
    return {
        plant(cluster, {"application": "somebody"}): "deletion.unknown-owner",
        plant(cluster, data_of(owner("never-made"))): "deletion.owner-gone",
        plant(cluster, data_of(owner("quiet"))): "deletion.not-superseded",
        plant(cluster, data_of(owner("quiet")) | {"pulsar/cursor": "lost"}): "deletion.cursor",
        plant(cluster, of("compacted-ledger", compactedTopic=f"persistent://{topic('quiet')}")): "deletion.compacted",
        plant(cluster, of("schema", schemaId=topic("quiet"))): "deletion.schema",
        plant(
            cluster, of("delayed-index-bucket", delayedIndexTopic=f"persistent://{topic('quiet')}")
        ): "deletion.delayed",
    }


@pytest.fixture(scope="module")
def trueup(cluster: SandboxPulsar, reported: dict[int, str], new_root: Callable[[], Path]) -> Iterator[Trueup]:
    assert reported
    deletion = {
        "owners": "pulsar",
        "instance": instance(str(cluster.zookeeper.address)),
        "exclusive": True,
        "grace_s": GRACE_S,
        "confirm_s": 0.5,
        "retry_s": 1.0,
        "deletes_per_s": RATE,
    }
    with Trueup(cluster, new_root(), deletion=deletion) as made:
        made.start()
        yield made


@pytest.fixture(autouse=True)
def calm(trueup: Trueup) -> None:
    """Resets the state that the previous test left."""
    if not trueup.process.alive:
        trueup.start()
    if trueup.api("status")["deletion"]["mode"] != "observe":
        trueup.set("deletion.mode", "observe")


def of(component: str, **properties: str) -> dict[str, str]:
    """Custom metadata of a ledger that does not contain a topic's data."""
    return {
        "application": "pulsar",
        "component": component,
        **{f"pulsar/{key}": value for key, value in properties.items()},
    }


def topic(name: str) -> str:
    return f"public/default/{name}"


def owner(name: str) -> str:
    """The managed ledger of a topic."""
    return f"public/default/persistent/{name}"


def compacted(cluster: SandboxPulsar, before: int) -> int:
    """The ledger that a new compaction of `COMPACTED` creates. ``before``: the previous compacted ledger."""
    with closing(
        library.Client(cluster.service_url, logger=library.FileLogger(library.LoggerLevel.Warn, os.devnull))
    ) as c:
        producer = c.create_producer(f"persistent://{COMPACTED}")
        for number in range(PER_LEDGER):
            producer.send(b"%d" % number, partition_key=f"key {number % 3}")

    def ledger() -> int:
        return int(cluster.ask("GET", f"persistent/{COMPACTED}/internalStats")["compactedLedger"]["ledgerId"])

    cluster.ask("PUT", f"persistent/{COMPACTED}/compaction")
    wait_until(lambda: ledger() not in (-1, before), 180.0, "a compacted ledger")
    return ledger()


def planted(cluster: SandboxPulsar, messages: MessageClient, name: str, count: int) -> list[int]:
    """Empty ledgers that a topic never listed. The topic already has later ledgers, so it will not list them."""
    messages.write(topic(name), range(1), SIZE)
    made = [plant(cluster, data_of(owner(name))) for _ in range(count)]
    unload(cluster, topic(name))
    messages.write(topic(name), range(1, 2), SIZE)
    return made


def written(cluster: SandboxPulsar, messages: MessageClient, *names: str) -> list[int]:
    """Ledgers with messages that topics no longer list."""
    for name in names:
        messages.write(topic(name), range(PER_LEDGER * 3 + 1), SIZE)
    return [ledger for lost in forget(cluster, map(topic, names)).values() for ledger in lost]


def found(trueup: Trueup, ledgers: Sequence[int]) -> dict[int, Row] | None:
    """Rows of these unreferenced ledgers, None until all of them are reported."""
    rows = {row["ledger"]: row for row in trueup.api("unreferenced?limit=10000")}
    return {ledger: rows[ledger] for ledger in ledgers} if rows.keys() >= set(ledgers) else None


def waiting(trueup: Trueup, ledgers: Sequence[int]) -> dict[int, str] | None:
    """Actions that await approval, by ledger. None until those of all ledgers do."""
    rows = [row for row in trueup.api("plan") if row["kind"] == "delete" and row["stage"] == "awaiting approval"]
    ids = {row["ledger"]: row["id"] for row in rows}
    return ids if ids.keys() >= set(ledgers) else None


def reached(trueup: Trueup, outcome: str) -> set[int]:
    """Ledgers whose deletion reached this outcome in this run."""
    rows = trueup.api("actions?limit=10000")
    return {row["ledger"] for row in rows if row["kind"] == "deletion" and row["outcome"] == outcome}


def confirmed(trueup: Trueup, ledgers: Sequence[int]) -> bool:
    return set(ledgers) <= reached(trueup, "confirmed")


def marked(trueup: Trueup, ledgers: Sequence[int]) -> set[int]:
    """Ledgers whose deletion is in progress."""
    return {row["ledger"] for row in trueup.api("deletions")} & set(ledgers)


def missed(trueup: Trueup, ledgers: Sequence[int], bookie: str) -> list[int] | None:
    """Ledgers that, after several attempts, only this bookie has not confirmed as deleted. None until all others are
    confirmed as deleted."""
    rows = [row for row in trueup.api("deletions") if row["ledger"] in ledgers]
    kept = [r["ledger"] for r in rows if r["pending"] == [bookie] and r["attempts"] > 1]
    others = set(ledgers) - set(kept)
    return kept if kept and others <= reached(trueup, "confirmed") else None


def standing(witness: Witness, ledgers: Sequence[int]) -> list[int]:
    """Ledgers whose metadata exists in ZooKeeper."""
    return [ledger for ledger in ledgers if witness.client.look(witness.paths.ledger(ledger)) is not None]


def asked(witness: Witness, ledgers: Sequence[int], bookie: str) -> set[PresenceAnswer]:
    """Responses of a bookie about these ledgers, requested by the test."""
    result = presence({ledger: [bookie] for ledger in ledgers}, Addresses(witness.client, witness.paths), 5.0)
    return {answers[bookie] for answers in result.values()}


@contextmanager
def another_instance(witness: Witness) -> Iterator[None]:
    """Inside this context, the cluster has a different INSTANCEID."""
    path = f"{witness.paths.root}/INSTANCEID"
    before = witness.client.look(path)
    assert before is not None
    witness.client.put(path, b"another", -1)
    try:
        yield
    finally:
        witness.client.put(path, before[0], -1)


def outlives(trueup: Trueup, row: Mapping[str, Any]) -> bool:
    """Whether the grace period of a finding ended long ago."""
    return bool(trueup.api("status")["now_ms"] - row["since_ms"] > 3_000 * GRACE_S)


def test_in_observe_what_is_forgotten_is_reported_and_stays(
    trueup: Trueup, cluster: SandboxPulsar, messages: MessageClient, witness: Witness
) -> None:
    forgotten = written(cluster, messages, "observed")
    rows = trueup.until("it to be found", lambda: found(trueup, forgotten))
    observed = {r["ledger"]: r for r in trueup.json("get", "ledgers", "--unreferenced", "--limit", "10000")}
    assert {(observed[i]["owner"], observed[i]["rule"]) for i in forgotten} == {
        (owner("observed"), "deletion.forgotten")
    }
    assert min(observed[i]["bytes"] for i in forgotten) >= PER_LEDGER * SIZE
    trueup.until("its grace to be over", lambda: outlives(trueup, rows[forgotten[-1]]))
    later = planted(cluster, messages, "observed-later", 1)
    trueup.until("a later one to be found", lambda: found(trueup, later))
    assert standing(witness, forgotten) == forgotten


def test_a_ledger_that_is_listed_is_described_as_in_use(
    trueup: Trueup, cluster: SandboxPulsar, messages: MessageClient
) -> None:
    messages.write(topic("used"), range(PER_LEDGER * 2), SIZE)
    ledger = listed(cluster, topic("used"))[0]
    result = trueup.until("it to be known", lambda: trueup.run("describe", "ledger", str(ledger)).out)
    assert [line for line in result.splitlines() if line.startswith(("Owner", "In use"))] == [
        f"Owner      {owner('used')}",
        "In use     its owner references it",
    ]


def test_a_forgotten_ledger_is_described_with_owner_nodes_and_why(
    trueup: Trueup, cluster: SandboxPulsar, messages: MessageClient
) -> None:
    (ledger,) = planted(cluster, messages, "described", 1)
    trueup.until(
        "its rule, which the topic's later ledger gives it",
        lambda: (found(trueup, [ledger]) or {}).get(ledger, {}).get("rule") == "deletion.forgotten-empty",
    )
    owned = trueup.json("describe", "ledger", str(ledger))["owned"]
    nodes = [(node["path"], node["points"]) for node in owned["nodes"]]
    assert (owned["owner"], owned["rule"]) == (owner("described"), "deletion.forgotten-empty")
    assert nodes == [(f"/managed-ledgers/{owner('described')}", False)]


def test_what_is_approved_goes_and_nothing_else(
    trueup: Trueup, cluster: SandboxPulsar, messages: MessageClient, witness: Witness
) -> None:
    chosen, other = planted(cluster, messages, "approved", 2)
    trueup.set("deletion.mode", "approve")
    actions = trueup.until("both to wait", lambda: waiting(trueup, [chosen, other]))
    assert trueup.run("approve", actions[chosen]).code == 0
    trueup.until("it to be gone", lambda: confirmed(trueup, [chosen]))
    later = planted(cluster, messages, "approved-later", 1)
    trueup.until("a later one to wait", lambda: waiting(trueup, later))
    left = [ledger for ledger in actions if ledger != chosen]
    assert (standing(witness, [chosen]), standing(witness, left)) == ([], left)


def test_in_another_cluster_than_the_configured_one_nothing_is_deleted_and_the_status_shows_why(
    trueup: Trueup, cluster: SandboxPulsar, messages: MessageClient, witness: Witness
) -> None:
    forgotten = planted(cluster, messages, "elsewhere", 1)
    rows = trueup.until("it to be found", lambda: found(trueup, forgotten))
    with another_instance(witness):
        trueup.set("deletion.mode", "enforce")
        trueup.wait("the problem", lambda status: "found another; set deletion.instance" in str(status["problems"]))
        trueup.until("its grace to be over", lambda: outlives(trueup, rows[forgotten[0]]))
        later = planted(cluster, messages, "elsewhere-later", 1)
        trueup.until("a later one to be found", lambda: found(trueup, later))
        stayed = standing(witness, forgotten)
    assert stayed == forgotten
    trueup.until("it to go in the cluster that is set", lambda: confirmed(trueup, forgotten))


@pytest.mark.release
def test_next_to_a_live_writer_only_what_is_forgotten_goes(
    trueup: Trueup, cluster: SandboxPulsar, messages: MessageClient, witness: Witness
) -> None:
    with messages.writer(topic("live"), pause_s=0.005) as live:
        lost, busy = ("lost-1", "lost-2", "lost-3"), ("busy-1", "busy-2")
        forgotten = written(cluster, messages, *lost)
        trueup.set("deletion.mode", "enforce")
        for _ in range(ROUNDS):
            for name in ("lost-1", *busy):
                messages.write(topic(name), range(PER_LEDGER * 3), SIZE)
                truncate(cluster, topic(name))
        trueup.until("what is forgotten to be gone", lambda: confirmed(trueup, forgotten))
        trueup.until("many rollovers", lambda: len(listed(cluster, topic("live"))) >= LIVE_LEDGERS)
        numbers = live.stop()
    used = [ledger for name in ("live", *lost, *busy) for ledger in listed(cluster, topic(name))]
    back = messages.read(topic("live"))
    assert (standing(witness, forgotten), standing(witness, used)) == ([], used)
    assert (back.missing(numbers), back.incorrect) == ([], 0)


def test_a_compacted_ledger_in_use_stays_although_its_cursors_node_does_not_name_it(
    trueup: Trueup, cluster: SandboxPulsar, messages: MessageClient, witness: Witness
) -> None:
    older = compacted(cluster, -1)
    unload(cluster, COMPACTED)
    in_use = compacted(cluster, older)
    node = witness.client.look(f"/managed-ledgers/{owner('compacted')}/__compaction")
    assert node is not None
    named = pointers_of(OWNERS, f"/managed-ledgers/{owner('compacted')}/__compaction", *node, 0)
    trueup.set("deletion.mode", "enforce")
    rows = trueup.until("it to be found", lambda: found(trueup, [in_use]))
    forgotten = planted(cluster, messages, "beside-compacted", 1)
    trueup.until("another to go", lambda: confirmed(trueup, forgotten))
    assert (rows[in_use]["rule"], standing(witness, [in_use])) == ("deletion.compacted", [in_use])
    assert named is not None
    assert in_use not in named.ledgers


@pytest.mark.release
def test_killed_amid_deletions_it_finishes_them(
    trueup: Trueup, cluster: SandboxPulsar, messages: MessageClient, witness: Witness
) -> None:
    forgotten = written(cluster, messages, "cut-1", "cut-2", "cut-3")
    trueup.until("it to be found", lambda: found(trueup, forgotten))
    trueup.set("deletion.deletes_per_s", SLOW_RATE)
    trueup.set("deletion.mode", "enforce")
    done = trueup.until("the first to be confirmed", lambda: reached(trueup, "confirmed") & set(forgotten))
    trueup.kill()
    left = standing(witness, forgotten)
    assert 0 < len(left) < len(forgotten)
    killed_ms = time.time_ns() // 1_000_000
    trueup.start()
    trueup.set("deletion.deletes_per_s", RATE)
    trueup.until("the others to be gone", lambda: confirmed(trueup, left) and not marked(trueup, forgotten))
    again = {row["ledger"] for row in trueup.api("actions?limit=10000") if row["at_ms"] > killed_ms} & done
    assert (standing(witness, forgotten), reached(trueup, "withdrawn") & set(forgotten), again) == ([], set(), set())


@pytest.mark.release
def test_a_deletion_is_confirmed_once_the_bookie_that_was_away_has_collected(
    trueup: Trueup, cluster: SandboxPulsar, messages: MessageClient, witness: Witness
) -> None:
    forgotten = written(cluster, messages, "held-1", "held-2")
    trueup.until("it to be found", lambda: found(trueup, forgotten))
    away = str(trueup.api(f"ledgers/{forgotten[0]}")["fragments"][0]["bookies"][0]["bookie"])
    name = next(bookie.name for bookie in cluster.bookies.values() if bookie.id == away)
    cluster.kill(name)
    trueup.set("deletion.mode", "enforce")
    held = trueup.until("it to be missed and nothing else", lambda: missed(trueup, forgotten, away))
    cluster.start(name)

    def all_confirmed() -> bool:
        sure = reached(trueup, "confirmed") & set(held)
        assert not sure or asked(witness, sorted(sure), away) == {PresenceAnswer.GONE}
        return sure == set(held)

    trueup.until("the others to be confirmed", all_confirmed)
    assert not marked(trueup, forgotten)


def test_what_may_only_be_reported_is_there_in_the_end(
    trueup: Trueup, reported: dict[int, str], witness: Witness
) -> None:
    rows = trueup.until("it to be found", lambda: found(trueup, list(reported)))
    assert {ledger: row["rule"] for ledger, row in rows.items()} == reported
    assert standing(witness, list(reported)) == list(reported)
