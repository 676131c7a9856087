"""Starts on a loaded machine: servers that are slow, silent or absent are waited for, and the log says so."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.configuration import parse
from tests.e2e.test_cluster import on
from tests.e2e.trueup import Trueup, words
from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.embedded.processes import Process
from trueup.sandbox.servers.spark import StandaloneSpark
from trueup.streams.catalog import STREAMS
from trueup.streams.cli import machine
from trueup.streams.runtime.spark.cluster import NO_EXECUTOR

pytestmark = [pytest.mark.servers, pytest.mark.release]
EXTERNAL = {"topics", "recreated", "history", "settings", "known topics", "session"}
EXTERNAL |= {f"{each.name} made" for each in STREAMS} | {"logdirs loaded", "replication loaded"}
"""Steps of `tests.e2e.stumbling` of a start with an external journal."""


@pytest.fixture(scope="module")
def broker(new_root: Callable[[], Path]) -> Iterator[Kafka]:
    with Kafka(new_root()) as made:
        made.up()
        yield made


@pytest.fixture
def spark(new_root: Callable[[], Path]) -> Iterator[StandaloneSpark]:
    """A cluster of which nothing runs yet."""
    with StandaloneSpark(new_root(), workers=1, cores=2) as made:
        yield made


def least(broker: Kafka) -> dict[str, dict[str, Any]]:
    """Settings with the streams that a Kafka cluster has, and its journal on this broker."""
    return {
        "kafka": {"east": {"bootstrap": broker.bootstrap, "bit": 0}},
        "logdirs": {"east": {}},
        "journal": {"bootstrap": broker.bootstrap},
    }


@contextmanager
def application(broker: Kafka, root: Path, **sections: Any) -> Iterator[Trueup]:
    """An application with topics of its own on this broker."""
    with Trueup(None, root, **{"cluster": {"name": root.name}, **least(broker), **sections}) as made:
        yield made


def begin(trueup: Trueup, *program: str) -> None:
    """Start the application, or another program, without waiting for anything."""
    command = [sys.executable, "-m", *(program or ["trueup.streams.cli.main"])]
    trueup.process = Process(
        "trueup", [*command, "run", "-c", trueup.file, "--log-format", "json"], trueup.file.with_name("trueup.log")
    )
    trueup.process.start()
    trueup._wanted = True


def waits(trueup: Trueup) -> list[tuple[str, str]]:
    """For what it waited, and why."""
    lines = [json.loads(line) for line in trueup.process.output().splitlines() if line.startswith("{")]
    return [(line["part"], line["problem"]) for line in lines if line["event"] == "start delayed"]


def waited(trueup: Trueup, part: str, reason: str = "") -> None:
    """Wait until the log says that the start waits for this part for this reason."""
    trueup.until(f"a wait for {part}", lambda: any(part in what and reason in why for what, why in waits(trueup)))


def ready(trueup: Trueup) -> None:
    trueup.wait("readiness", lambda status: status["ready"])


@contextmanager
def stopped(process: int | None) -> Iterator[None]:
    assert process is not None
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


@pytest.mark.parametrize(
    ("sections", "steps"),
    [
        ({}, {*EXTERNAL, "sign"}),
        ({"ha": {"id": "shop", "takeover_s": 5}}, {*EXTERNAL, "transactions"}),
        ({"journal": {}}, {*EXTERNAL, "ready"}),
    ],
    ids=["external", "ha", "embedded"],
)
def test_each_step_of_a_start_is_repeated_and_the_log_says_for_what_it_waits(
    broker: Kafka, new_root: Callable[[], Path], sections: dict[str, Any], steps: set[str]
) -> None:
    with application(broker, new_root(), **sections) as trueup:
        begin(trueup, "tests.e2e.stumbling")
        ready(trueup)
        found = [why for _, why in waits(trueup)]
    assert sorted(found) == sorted(f"expected {step} in time; found a slow machine; try again" for step in steps)


def test_a_start_waits_for_the_broker_of_the_journal(broker: Kafka, new_root: Callable[[], Path]) -> None:
    with application(broker, new_root()) as trueup:
        with stopped(broker.pid):
            begin(trueup)
            waited(trueup, f"the journal at {broker.bootstrap}")
        ready(trueup)


def test_a_start_waits_for_an_embedded_broker_that_takes_longer_than_its_limit(
    broker: Kafka, new_root: Callable[[], Path]
) -> None:
    with application(broker, new_root(), journal={}) as trueup:
        begin(trueup)

        def embedded() -> psutil.Process | None:
            return next((each for each in trueup.processes() if "kafka.Kafka" in words(each)), None)

        with stopped(trueup.until("the process of the broker", embedded).pid):
            waited(trueup, "the embedded journal", "kafka to be ready")
        ready(trueup)


def test_a_start_waits_for_a_master_and_shows_that_there_is_no_executor(
    broker: Kafka, spark: StandaloneSpark, new_root: Callable[[], Path]
) -> None:
    with application(broker, new_root(), **on(spark, new_root())) as trueup:
        begin(trueup)
        waited(trueup, "Spark", f"{spark.url}; found {spark.master.port}: Connection refused")
        shown = trueup.api("status")["problems"]
        spark.master.up()
        trueup.wait("the problem", lambda status: NO_EXECUTOR in status["problems"])
        spark.workers[1].up()
        trueup.wait("readiness", lambda status: status["ready"] and not status["problems"])
    assert [problem for problem in shown if problem.startswith("waiting for Spark")]


def test_a_start_waits_for_a_master_that_does_not_answer(
    broker: Kafka, spark: StandaloneSpark, new_root: Callable[[], Path]
) -> None:
    spark.up()
    with application(broker, new_root(), **on(spark, new_root())) as trueup:
        with stopped(spark.master.pid):
            begin(trueup)
            waited(trueup, "Spark", f"the Spark cluster at {spark.url} to accept the application; found no answer")
        ready(trueup)


def test_the_doctor_says_that_there_is_no_executor(
    broker: Kafka, spark: StandaloneSpark, new_root: Callable[[], Path]
) -> None:
    spark.master.up()
    found = machine.spark(parse({**least(broker), **on(spark, new_root())}))
    assert (found.status, found.found, found.todo) == (
        "fail",
        f"expected executors of the Spark cluster at {spark.url}; found none within 60 s",
        "start workers, or free cores and memory of theirs",
    )


def test_the_doctor_says_that_the_broker_of_the_journal_does_not_answer(broker: Kafka) -> None:
    with stopped(broker.pid):
        found = machine.journal(parse(least(broker)))
    assert (found.status, broker.bootstrap in found.found, found.todo) == (
        "fail",
        True,
        "start the brokers, or correct journal.bootstrap",
    )
