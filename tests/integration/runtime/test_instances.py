"""Two applications with one journal on a real broker: the second one is refused, whatever its data directory."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.configuration import parse
from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.embedded.processes import wait_until
from trueup.state.common.errors import Stop
from trueup.streams.instance.alone import Instance
from trueup.streams.journal.journal import Journal

NEVER = threading.Event()
BEATS = """
import json, os, signal, sys, threading, time
from tests.configuration import parse
from trueup.streams.instance.alone import Instance
from trueup.streams.journal.journal import Journal
journal = Journal(sys.argv[1], parse(json.loads(sys.argv[2])).journal, "c")
made = Instance(journal, "first", "", lambda: 0)
made.enter(threading.Event())
threading.Thread(target=made.follow, args=(threading.Event(), lambda: os._exit(7))).start()
stops = threading.Event()
signal.signal(signal.SIGUSR1, lambda *_: stops.set())
print("running", flush=True)
while True:
    made.beat()
    if stops.is_set():
        stops.clear()
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(0.2)
"""


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


def other(journal: Journal) -> Instance:
    return Instance(journal, "second", "", lambda: 0)


def stop_between_beats(pid: int) -> None:
    """Stop it while none of its records is on the way: the broker could append one after the record of the second."""
    os.kill(pid, signal.SIGUSR1)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)


def test_the_second_is_refused_while_the_first_lives(journal: Journal, first: "subprocess.Popen[str]") -> None:
    with pytest.raises(Stop, match="another one at first"):
        other(journal).enter(NEVER)


def test_the_second_starts_after_the_first_was_killed(journal: Journal, first: "subprocess.Popen[str]") -> None:
    stop_between_beats(first.pid)
    first.kill()
    first.wait()
    second = other(journal)
    second.enter(NEVER, wait_s=2.0)
    second.leave()


def test_the_first_ends_if_it_was_replaced_while_it_was_stopped(
    journal: Journal, first: "subprocess.Popen[str]"
) -> None:
    stop_between_beats(first.pid)
    second = other(journal)
    second.enter(NEVER, wait_s=2.0)
    os.kill(first.pid, signal.SIGCONT)

    def ended() -> bool:
        second.beat()
        return first.poll() is not None

    wait_until(ended, 180.0, "the first to end")
    assert first.poll() == 7


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
