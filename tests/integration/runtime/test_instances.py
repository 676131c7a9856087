"""Two applications with one journal on a real broker: the second one is refused, whatever its data directory."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.configuration import parse
from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.embedded.processes import wait_until
from trueup.state.common.errors import Stop
from trueup.state.instance.leadership import ALONE_S, LeadershipTerms
from trueup.streams.instance.election import Election
from trueup.streams.journal.journal import Journal

NEVER = threading.Event()
TAKEOVER_S, REPLACED = 2.0, 7
BEATS = """
import json, os, signal, sys, threading, time
from tests.configuration import parse
from tests.integration.runtime.test_instances import NEVER, REPLACED, TAKEOVER_S, member
from trueup.streams.instance.election import TICK_S
from trueup.streams.journal.journal import Journal
made = member(Journal(sys.argv[1], parse(json.loads(sys.argv[2])).journal, "c"), "first", lambda: os._exit(REPLACED))
made.enter(NEVER)
stops = threading.Event()
signal.signal(signal.SIGUSR1, lambda *_: stops.set())
print("running", flush=True)
while True:
    made.beat()
    if stops.is_set():
        stops.clear()
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(TICK_S)
"""


def member(journal: Journal, place: str, lost: Callable[[], object], takeover_s: float = TAKEOVER_S) -> Election:
    """An application without section ha that reads the signs of the others."""
    made = Election(journal, place, "", LeadershipTerms(takeover_s, alone=True), lambda: 0, lost)
    threading.Thread(target=made.follow, daemon=True).start()
    return made


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    made = Kafka(tmp_path_factory.mktemp("journal"))
    made.up()
    yield made
    made.kill()
    made.close()


@pytest.fixture
def journal(broker: Kafka, request: pytest.FixtureRequest) -> Journal:
    """A journal with a prefix of its own."""
    made = Journal(broker.bootstrap, parse(chosen(request.node.name[5:30])).journal, "c")
    made.create()
    return made


def chosen(prefix: str, **journal: str) -> dict[str, Any]:
    """No stream runs: the journal decides before any of them starts."""
    return {
        "cluster": {"name": "c", "zookeeper": "127.0.0.1:1"},
        "http": {"port": 0},
        "journal": {"prefix": prefix, **journal},
    }


@pytest.fixture
def first(journal: Journal) -> Iterator["subprocess.Popen[str]"]:
    """An application of which only the signs of life run, in a process of its own."""
    words = [sys.executable, "-c", BEATS, journal.bootstrap, json.dumps(chosen(journal.settings.prefix))]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        yield process
        process.kill()


@pytest.fixture
def second(journal: Journal) -> Iterator[Election]:
    made = member(journal, "second", lambda: None)
    yield made
    made.leave(5.0)


def stop_between_beats(pid: int) -> None:
    """Stop it while none of its records is on the way: the broker could append one after the record of the second."""
    os.kill(pid, signal.SIGUSR1)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)


def test_the_second_is_refused_while_the_first_lives(journal: Journal, first: "subprocess.Popen[str]") -> None:
    patient = member(journal, "second", lambda: None, ALONE_S)
    with pytest.raises(Stop, match="another one at first"):
        patient.enter(NEVER)
    patient.leave(5.0)


def test_the_second_starts_after_the_first_was_killed(second: Election, first: "subprocess.Popen[str]") -> None:
    stop_between_beats(first.pid)
    first.kill()
    first.wait()
    assert second.enter(NEVER)


def test_the_first_ends_if_it_was_replaced_while_it_was_stopped(
    second: Election, first: "subprocess.Popen[str]"
) -> None:
    stop_between_beats(first.pid)
    second.enter(NEVER)
    os.kill(first.pid, signal.SIGCONT)
    wait_until(lambda: first.poll() is not None, 180.0, "the first to end")
    assert (first.poll(), second.leads) == (REPLACED, True)


def test_the_application_names_the_other_one(journal: Journal, first: "subprocess.Popen[str]", tmp_path: Path) -> None:
    file = tmp_path / "trueup.yaml"
    used = chosen(journal.settings.prefix, bootstrap=journal.bootstrap)
    file.write_text(yaml.safe_dump({**used, "data_dir": str(tmp_path / "data")}))
    ended = subprocess.run(
        [sys.executable, "-m", "trueup.streams.cli.main", "run", "-c", str(file)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ended.returncode, "found    another one at first\n" in ended.stderr) == (1, True), ended.stderr
