"""Instances of one application on a real broker: processes that lead, stand by, are killed or stopped."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.configuration import parse
from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.embedded.processes import wait_until
from trueup.state.common.errors import Retry, Stop
from trueup.state.instance.leadership import ALONE_S, LeadershipTerms
from trueup.streams.instance.election import Election
from trueup.streams.journal.journal import Journal, JournalRecord
from trueup.streams.journal.topic import CONFIG

pytestmark = pytest.mark.servers
TAKEOVER_S, LIMIT_S = 4.0, 15.0
FENCED = 7
ACTS = """
import json, os, sys, threading
from tests.integration.ha.test_election import act, elect
election, journal = elect(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3])
print("standby", flush=True)
threading.Thread(target=act, args=(election, journal), daemon=True).start()
for line in sys.stdin:
    election.leave(5.0)
    os._exit(0)
"""


def elect(bootstrap: str, chosen: dict[str, Any], place: str) -> tuple[Election, Journal]:
    """An instance in this process that ends with `FENCED` when it lost its place."""
    settings = parse(chosen)
    journal, signs = (Journal(bootstrap, settings.journal, "c") for _ in range(2))
    election = Election(signs, place, "t-c", LeadershipTerms(TAKEOVER_S), lambda: 0, lambda: os._exit(FENCED))
    for step in (election.follow, election.beats, election.watch):
        threading.Thread(target=step, daemon=True).start()
    return election, journal


def act(election: Election, journal: Journal) -> None:
    """Write numbered records as the leader, as fast as the broker takes them."""
    election.elected.wait()
    journal.lead("t", election.fenced)
    print(f"leading {election.epoch}", flush=True)
    number = 0
    while True:
        election.prove()
        number += 1
        key, value = f"act.{election.epoch}-{number}", json.dumps([election.epoch, number])
        journal.put([(CONFIG, key.encode(), {"name": key, "value": value, "at_ms": 0, "by": ""})])


@pytest.fixture(scope="module")
def broker(new_root: Callable[[], Path]) -> Iterator[Kafka]:
    made = Kafka(new_root())
    made.up()
    yield made
    made.close()


@pytest.fixture
def chosen() -> dict[str, Any]:
    """A journal of its own."""
    return {"cluster": {"name": "c", "zookeeper": "127.0.0.1:1"}, "journal": {"prefix": uuid.uuid4().hex}}


@pytest.fixture
def journal(broker: Kafka, chosen: dict[str, Any]) -> Journal:
    made = Journal(broker.bootstrap, parse(chosen).journal, "c")
    made.create()
    return made


class Member(subprocess.Popen[str]):
    """An instance in a process of its own."""

    def leads(self) -> None:
        """Wait until it leads."""
        assert self.stdout is not None
        assert self.stdout.readline().startswith("leading")


@pytest.fixture
def start(broker: Kafka, chosen: dict[str, Any], journal: Journal) -> Iterator[Callable[[str], Member]]:
    started: list[Member] = []

    def make(place: str) -> Member:
        words = [sys.executable, "-c", ACTS, broker.bootstrap, json.dumps(chosen), place]
        made = Member(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(made)
        assert made.stdout is not None
        assert made.stdout.readline() == "standby\n"
        return made

    yield make
    for each in started:
        with each:
            each.kill()


def acts(journal: Journal) -> list[tuple[int, int]]:
    """Epoch and number of each committed record, in the order of the log."""
    found = (json.loads(record.value["value"]) for record in journal.read(CONFIG))
    return [(epoch, number) for epoch, number in found]


def right(done: list[tuple[int, int]]) -> bool:
    """Whether epochs follow each other, and each leader wrote every number once."""
    by_epoch: dict[int, list[int]] = {}
    for epoch, number in done:
        by_epoch.setdefault(epoch, []).append(number)
    each = all(numbers == list(range(1, len(numbers) + 1)) for numbers in by_epoch.values())
    return each and [epoch for epoch, _ in done] == sorted(epoch for epoch, _ in done)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_standby_takes_over_and_nothing_is_written_twice(
    start: Callable[[str], Member], journal: Journal, number: signal.Signals
) -> None:
    first = start("first")
    first.leads()
    second = start("second")
    wait_until(lambda: len(acts(journal)) > 20, 180.0, "the first to act")
    os.kill(first.pid, number)
    begun = time.monotonic()
    second.leads()
    took = time.monotonic() - begun
    wait_until(lambda: {2} <= {epoch for epoch, _ in acts(journal)}, 180.0, "the second to act")
    first.send_signal(signal.SIGCONT)
    code = first.wait(30)
    done = acts(journal)
    assert (code, took < LIMIT_S, right(done), done[-1][0]) == (
        FENCED if number == signal.SIGSTOP else -signal.SIGKILL,
        True,
        True,
        2,
    )


def test_after_an_end_in_order_a_standby_leads_without_the_wait(start: Callable[[str], Member]) -> None:
    first = start("first")
    first.leads()
    second = start("second")
    begun = time.monotonic()
    first.communicate("leave\n")
    second.leads()
    assert time.monotonic() - begun < TAKEOVER_S


def test_an_application_without_ha_is_refused(start: Callable[[str], Member], journal: Journal) -> None:
    start("first").leads()
    second = Election(journal, "second", "", LeadershipTerms(ALONE_S, alone=True), lambda: 0, lambda: None)
    threading.Thread(target=second.follow, daemon=True).start()
    with pytest.raises(Stop, match="another one at first"):
        second.enter(threading.Event())
    second.leave(5.0)


def test_a_journal_that_another_leader_took_over_refuses_writes(
    broker: Kafka, chosen: dict[str, Any], journal: Journal
) -> None:
    other = Journal(broker.bootstrap, parse(chosen).journal, "c")
    reasons: list[str] = []

    def record(name: str) -> dict[str, Any]:
        return {"name": name, "value": "1", "at_ms": 0, "by": ""}

    journal.lead("t", reasons.append)
    journal.put([(CONFIG, b"a", record("a"))])
    other.lead("t", reasons.append)
    with pytest.raises(Stop, match="the leader"):
        journal.put([(CONFIG, b"b", record("b"))])
    other.put([(CONFIG, b"c", record("c"))])
    seen: list[JournalRecord] = list(other.read(CONFIG))
    assert ([each.key for each in seen], len(reasons)) == ([b"a", b"c"], 1)


def test_a_leader_whose_broker_is_late_goes_on_with_the_same_producer(
    broker: Kafka, chosen: dict[str, Any], journal: Journal
) -> None:
    """A request of another one that was given up fences the leader if the broker executes it late."""
    reasons: list[str] = []
    producers = []
    assert broker.pid is not None
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        for _ in range(3):
            with pytest.raises(Retry):
                journal.lead("t", reasons.append, 0.5)
            producers.append(journal.topics._leading)
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    journal.lead("t", reasons.append)
    producers.append(journal.topics._transactions)
    for key in ("a", "b"):
        journal.put([(CONFIG, key.encode(), {"name": key, "value": "1", "at_ms": 0, "by": ""})])
    written = [record.key for record in journal.read(CONFIG)]
    assert (written, reasons, producers[0] is not None, len(set(producers))) == ([b"a", b"b"], [], True, 1)
