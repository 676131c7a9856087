"""Deletion in the application, end to end: a Pulsar whose broker forgets ledgers, `trueup run`, an operator, a live
writer, SIGKILL, and an unavailable bookie. Each test uses its own topics and starts in mode observe."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulsar as library
import pytest
from kazoo.security import ACL, ANYONE_ID_UNSAFE, OPEN_ACL_UNSAFE, Permissions

from tests.e2e.trueup import Trueup, Witness
from trueup.connectors.bookkeeper.deletion.presence import PresenceAnswer, presence
from trueup.connectors.bookkeeper.metadata.addresses import Addresses
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.pulsar.layout import PulsarPaths
from trueup.connectors.pulsar.messages import Cursor
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
UNREADABLE = [ACL(Permissions.ALL & ~Permissions.READ, ANYONE_ID_UNSAFE)]
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


def topic(name: str, namespace: str = "default") -> str:
    return f"public/{namespace}/{name}"


def owner(name: str, namespace: str = "default") -> str:
    """The managed ledger of a topic."""
    return f"public/{namespace}/persistent/{name}"


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


def planted(
    cluster: SandboxPulsar, messages: MessageClient, name: str, count: int, namespace: str = "default"
) -> list[int]:
    """Empty ledgers that a topic never listed. The topic already has later ledgers, so it will not list them."""
    where = topic(name, namespace)
    messages.write(where, range(1), SIZE)
    made = [plant(cluster, data_of(owner(name, namespace))) for _ in range(count)]
    unload(cluster, where)
    messages.write(where, range(1, 2), SIZE)
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


@dataclass(frozen=True, slots=True)
class Doubtful:
    """Ledgers that no topic lists, planted while the application is down, and the nodes that may name them."""

    named: int
    """The ledger that a cursor of another topic names."""
    emptied: int
    """The ledger whose owner's node is empty."""
    hidden: int
    """The ledger whose owner's node may not be read."""
    inside: int
    """The ledger whose owner's namespace may not be listed."""
    plain: int
    """The ledger whose owner's nodes can all be read."""
    cursor: str
    """The path of that cursor."""
    content: bytes
    """The former content of the empty node."""

    @property
    def every(self) -> list[int]:
        return [self.named, self.emptied, self.hidden, self.inside, self.plain]


CLOSED = ("/managed-ledgers/public/closed/persistent", f"/managed-ledgers/{owner('hidden')}")
"""The paths that nobody may read: the topics of a namespace, and a topic of another one."""
EMPTIED = f"/managed-ledgers/{owner('emptied')}"


@pytest.fixture
def doubtful(trueup: Trueup, cluster: SandboxPulsar, messages: MessageClient, witness: Witness) -> Iterator[Doubtful]:
    trueup.kill()
    cluster.ask("PUT", "namespaces/public/closed")
    ledgers = {name: planted(cluster, messages, name, 1)[0] for name in ("named", "emptied", "hidden", "plain")}
    [ledgers["inside"]] = planted(cluster, messages, "inside", 1, "closed")
    cursor = f"/managed-ledgers/{owner('plain')}/names-another"
    witness.client.make(cursor, Cursor(cursorsLedgerId=ledgers["named"]).SerializeToString())
    node = witness.client.look(EMPTIED)
    assert node is not None
    witness.client.put(EMPTIED, b"", -1)
    permit(witness, UNREADABLE)
    trueup.start()
    yield Doubtful(**ledgers, cursor=cursor, content=node[0])
    permit(witness, OPEN_ACL_UNSAFE)


def permit(witness: Witness, acls: Sequence[ACL]) -> None:
    """Set the permissions of `CLOSED`."""
    for path in CLOSED:
        witness.client.set_acls(path, acls)


def touch(witness: Witness) -> None:
    """Write to `CLOSED`: ZooKeeper reports no change of a permission, and Trueup looks for those once a minute."""
    for path in CLOSED:
        node = witness.client.look(path)
        assert node is not None
        witness.client.put(path, node[0], -1)


def refused(trueup: Trueup, ledger: int) -> bool:
    """Whether the deletion of a ledger was refused several times, because nodes may not be read."""
    rows = [row for row in trueup.api("deletions") if row["ledger"] == ledger and row["stage"] == "blocked"]
    return any(row["attempts"] > 1 and "permission to read all znodes" in row["detail"] for row in rows)


def test_what_a_foreign_or_unreadable_node_may_name_stays_while_it_may(
    trueup: Trueup, doubtful: Doubtful, witness: Witness
) -> None:
    trueup.wait("the problem", lambda status: f"found none for 2, such as {CLOSED[0]}" in str(status["problems"]))
    unlisted = [ledger for ledger in doubtful.every if ledger != doubtful.named]
    rows = trueup.until("them to be found", lambda: found(trueup, unlisted))
    blind = dict.fromkeys([doubtful.emptied, doubtful.hidden, doubtful.inside], "deletion.owner-unreadable")
    assert {i: row["rule"] for i, row in rows.items()} == {**blind, doubtful.plain: "deletion.forgotten-empty"}
    trueup.set("deletion.mode", "enforce")
    trueup.until("a deletion to be refused", lambda: refused(trueup, doubtful.plain))
    assert standing(witness, doubtful.every) == doubtful.every
    permit(witness, OPEN_ACL_UNSAFE)
    touch(witness)
    trueup.until("all but two to go", lambda: confirmed(trueup, [doubtful.hidden, doubtful.inside, doubtful.plain]))
    assert standing(witness, doubtful.every) == [doubtful.named, doubtful.emptied]
    assert found(trueup, [doubtful.named]) is None
    witness.client.drop(doubtful.cursor, -1)
    witness.client.put(EMPTIED, doubtful.content, -1)
    trueup.until("the last two to go", lambda: confirmed(trueup, [doubtful.named, doubtful.emptied]))


def test_what_may_only_be_reported_is_there_in_the_end(
    trueup: Trueup, reported: dict[int, str], witness: Witness
) -> None:
    rows = trueup.until("it to be found", lambda: found(trueup, list(reported)))
    assert {ledger: row["rule"] for ledger, row in rows.items()} == reported
    assert standing(witness, list(reported)) == list(reported)
