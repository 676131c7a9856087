"""Two `trueup run` of one application: one leads, the other stands by and takes over, under the load of two links,
repairs, ordered deletions and log directories.

The first instance reaches the brokers through relays, so that its network can be cut.
"""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.test_links import Stream
from tests.e2e.trueup import SETTINGS, Trueup, Witness, on_one_rack, until
from tests.replication.pair import QUICK, Pair
from tests.replication.relayed import Relayed
from tests.replication.writers import Writer
from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.demo.leak import instance
from trueup.sandbox.demo.truth import Truth
from trueup.sandbox.writer import LedgerWriter

pytestmark = [pytest.mark.servers, pytest.mark.release]
ROUNDS, SEED = int(os.environ.get("TRUEUP_HA_ROUNDS", "4")), int(os.environ.get("TRUEUP_HA_SEED", "17"))
TAKEOVER_S, ENDS_S, LIMIT_S = 15.0, 30.0, 120.0
PER_S = 100.0
EACH = 2
"""Ledgers to repair in each round."""
WAITS, LOST = 4, 1
"""Exit codes: of a command whose deletion is not confirmed yet, and of a leader that lost its place."""


class RelayedPair(Pair):
    """Brokers that are also reachable through relays."""

    def broker(self, root: Path) -> Relayed:
        return Relayed(root, QUICK)

    def mend(self) -> None:
        for relay in self.relays:
            relay.mend()

    @property
    def relays(self) -> list[Relayed]:
        return [side for side in (self.east, self.west) if isinstance(side, Relayed)]


@pytest.fixture(scope="module")
def pair(new_root: Callable[[], Path]) -> Iterator[RelayedPair]:
    with RelayedPair(new_root) as made:
        yield made


@pytest.fixture(scope="module")
def topics(pair: RelayedPair) -> dict[str, str]:
    return {path: pair.topic(2) for path in ("batches", "records")}


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., SandboxCluster]) -> SandboxCluster:
    return start_cluster(racks={"/rack1": 2, "/rack2": 2}, daemons=False, settings=SETTINGS)


@pytest.fixture(scope="module")
def narrow(cluster: SandboxCluster, writer: LedgerWriter) -> list[int]:
    """Ledgers to repair: more than the leaders of all rounds can mark at their rate."""
    written = on_one_rack(cluster, writer, EACH * (ROUNDS + 2), 5)
    cluster.start("autorecovery")
    return written


@pytest.fixture(scope="module")
def members(
    pair: RelayedPair, topics: dict[str, str], cluster: SandboxCluster, narrow: list[int], new_root: Callable[[], Path]
) -> Iterator[list[Trueup]]:
    """Both instances, of which one leads."""
    streams: dict[str, dict[str, Any]] = {
        "placement": {"mode": "enforce", "grace_s": 1, "max_marks": 1, "marks_per_s": 0.1, "paused": True},
        "deletion": {
            "owners": "operator",
            "instance": instance(cluster.zookeeper.address),
            "mode": "approve",
            "confirm_s": 0.5,
        },
        "logdirs": {"east": {}, "west": {}},
    }
    links = {
        path: {"source": "east", "target": "west", "topics": [topic], "copy": path, "mode": "enforce", "lease_s": 4}
        for path, topic in topics.items()
    }
    made = []
    for east, west in ([relay.relayed for relay in pair.relays], [relay.bootstrap for relay in pair.relays]):
        sections: dict[str, dict[str, Any]] = {
            "kafka": {"east": {"bootstrap": east, "bit": 0}, "west": {"bootstrap": west, "bit": 1}},
            "links": links,
            "journal": {"bootstrap": east},
            "ha": {"id": "shop"},
            **streams,
        }
        made.append(Trueup(cluster, new_root(), **sections))
    for one in made:
        one.process.start()
    yield made
    for one in made:
        if one.process.alive:
            os.kill(one.process.pid or 0, signal.SIGCONT)
        one.kill()


def role(one: Trueup) -> str:
    """The role of an instance, empty without a response."""
    found = one._status()
    return found["ha"]["role"] if found else ""


def able(one: Trueup) -> bool:
    """Whether a standby could take over."""
    return one.get("readyz?standbyok=true")[0] == 200 and role(one) == "standby"


def sorted_out(members: list[Trueup]) -> tuple[Trueup, Trueup]:
    """The leader, ready, and the standby, able to take over."""

    def found() -> tuple[Trueup, Trueup] | None:
        for leader, standby in (members, members[::-1]):
            if role(leader) == "leader" and leader.get("readyz")[0] == 200 and able(standby):
                return leader, standby
        return None

    pair: tuple[Trueup, Trueup] = until(
        found, LIMIT_S, "a leader and a standby", lambda: "\n".join(one.process.tail(30) for one in members)
    )
    return pair


@pytest.fixture
def both(members: list[Trueup]) -> tuple[Trueup, Trueup]:
    return sorted_out(members)


def test_a_standby_says_what_it_is(both: tuple[Trueup, Trueup]) -> None:
    leader, standby = both
    result, ha = standby.run("status"), standby.json("status")["ha"]
    assert (result.code, ha["role"], ha["leader"].startswith(leader.url)) == (0, "standby", True), result
    assert f"the leader is at {leader.url}" in result.out
    assert [one.metric("trueup_leader") for one in both] == [1.0, 0.0]
    assert (standby.get("readyz")[0], leader.json("status")["ha"]["standbys"][0].startswith(standby.url)) == (503, True)


def test_a_standby_refuses_writes_with_the_address_of_the_leader(both: tuple[Trueup, Trueup]) -> None:
    leader, standby = both
    results = [standby.run("approve", "--all"), standby.run("config", "set", "links.records.lease_s", "5")]
    results.append(standby.run("link", "reset", "records", "--to", "earliest", "--yes"))
    assert [(each.code, leader.url in each.err) for each in results] == [(5, True)] * 3, results


def test_lists_of_a_standby_are_incomplete_and_settings_are_current(both: tuple[Trueup, Trueup]) -> None:
    leader, standby = both
    leader.set("links.records.lease_s", 3)
    standby.until("the setting", lambda: standby.json("config", "get", "links.records.lease_s") == 3)
    result = standby.run("get", "links")
    assert (result.code, leader.url in result.out + result.err) == (6, True), result
    assert [row["id"] for row in standby.json("get", "actions")] == [row["id"] for row in leader.json("get", "actions")]


def test_a_member_that_ends_in_order_is_followed_without_the_wait(
    members: list[Trueup], both: tuple[Trueup, Trueup]
) -> None:
    """As in an upgrade of one instance after the other."""
    leader, standby = both
    code = leader.end(ENDS_S)
    begun = time.monotonic()
    until(lambda: role(standby) == "leader", TAKEOVER_S, "the standby to lead", standby.diagnostics)
    took = time.monotonic() - begun
    leader.process.start()
    sorted_out(members)
    assert (code, took < TAKEOVER_S / 2) == (0, True), took


KINDS = (("cut", "kill", "stop all"), ("kill", "stop", "stop all"))
"""Of losses of each instance, in turn."""


def disturbed(leader: Trueup, kind: str, pair: RelayedPair) -> Callable[[], None]:
    """Kill or stop the leader, or cut its network. Returns what continues it."""
    if kind == "cut":
        for relay in pair.relays:
            relay.cut()
        return pair.mend
    processes = leader.processes() if kind == "stop all" else leader.processes()[:1]
    number = signal.SIGKILL if kind == "kill" else signal.SIGSTOP
    for each in processes:
        each.send_signal(number)

    def go_on() -> None:
        for each in processes:
            if each.is_running() and each.status() != psutil.STATUS_ZOMBIE:
                each.send_signal(signal.SIGCONT)

    return go_on


def settled(leader: Trueup) -> None:
    """End the repairs at a higher rate, and the deletions."""
    leader.set("placement.max_marks", 50)
    leader.set("placement.marks_per_s", 50)
    leader.wait("no repair", lambda status: not status["counts"]["drifted"] and not status["marks"]["ours"])
    leader.until("no deletion", lambda: not leader.api("deletions"))


@pytest.mark.timeout(600 + 60 * ROUNDS)
def test_takeovers_at_random_do_nothing_twice_and_forget_nothing(
    members: list[Trueup],
    pair: RelayedPair,
    topics: dict[str, str],
    writer: LedgerWriter,
    narrow: list[int],
    witness: Witness,
    truth: Truth,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ordered = [writer.write(2, 2, 2, 5) for _ in range(ROUNDS)]
    with witness.counting() as marked:
        sorted_out(members)[0].set("placement.paused", "false")
        took = taken_over(members, pair, topics, ordered)
        leader, _ = sorted_out(members)
        settled(leader)
    streams = [Stream(pair, topic) for topic in topics.values()]
    leader.until("the records to arrive", lambda: all(stream.arrived() for stream in streams), LIMIT_S)
    with capsys.disabled():
        print(f"\ntakeovers in s: {took}")
    assert max(seconds for _, seconds in took) <= TAKEOVER_S, took
    assert [stream.same() for stream in streams] == [True, True]
    assert (dict(marked), truth.on_one_rack()) == (dict.fromkeys(narrow, 1), set())
    assert [ledger for ledger in ordered if witness.client.look(witness.paths.ledger(ledger))] == []


def taken_over(
    members: list[Trueup], pair: RelayedPair, topics: dict[str, str], ordered: list[int]
) -> list[tuple[str, float]]:
    """Lose one leader for each ordered ledger: how each was lost, and seconds until another one led."""
    chance, took, turns = random.Random(SEED), list[tuple[str, float]](), [0, 0]
    writers = [Writer(pair.site("east", topic, 2), "idempotent", PER_S) for topic in topics.values()]
    for writer in writers:
        writer.start()
    try:
        for ledger in ordered:
            leader, standby = sorted_out(members)
            assert leader.run("delete", "ledger", str(ledger), "--yes", "--wait", "0.1").code in (0, WAITS)
            epoch = standby.json("status")["ha"]["epoch"]
            which = members.index(leader)
            kind = KINDS[which][turns[which] % len(KINDS[which])]
            turns[which] += 1
            time.sleep(chance.uniform(0, 3))
            go_on, begun = disturbed(leader, kind, pair), time.monotonic()
            until(lambda one=standby: role(one) == "leader", LIMIT_S, f"{kind}: a takeover", standby.diagnostics)
            took.append((kind, round(time.monotonic() - begun, 1)))
            if kind == "cut":  # it cannot know that another one leads
                until(lambda one=leader: not one.process.alive, ENDS_S, "the leader to end", leader.diagnostics)
            go_on()
            until(
                lambda one=leader: not one.process.alive, ENDS_S, f"{kind}: the old leader to end", leader.diagnostics
            )
            assert (leader.process.exit_code, standby.json("status")["ha"]["epoch"]) == (
                -signal.SIGKILL if kind == "kill" else LOST,
                epoch + 1,
            ), leader.process.tail()
            leader.process.start()
    finally:
        for writer in writers:
            writer.stop()
    return took
