"""A Spark session that ends in different ways, and its replacement in the same process."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from subprocess import Popen

import pytest
from py4j.protocol import Py4JError
from pyspark import SparkContext

from tests.configuration import parse
from trueup.connectors.embedded.processes import free_port, wait_until
from trueup.sandbox.gateway import Gateway
from trueup.state.common.errors import Retry, Stop
from trueup.streams.runtime.spark.driver import Driver, _process
from trueup.streams.runtime.spark.listener import Listener
from trueup.streams.runtime.spark.queries import periodic
from trueup.streams.runtime.spark.session import session
from trueup.streams.runtime.supervisor import drain

pytestmark = pytest.mark.servers
WAIT_S, CLOSE_S = 180.0, 3.0


@pytest.fixture(scope="module")
def reported() -> list[str]:
    return []


@pytest.fixture(scope="module")
def driver(new_root: Callable[[], Path], reported: list[str]) -> Iterator[Driver]:
    root, before = new_root(), dict(os.environ)
    settings = parse(
        {
            "kafka": {"east": {"bootstrap": "none:1", "bit": 0}},
            "logdirs": {"east": {}},
            "spark": {"memory": "512m", "master": "local[1]"},
        }
    )
    listener = Listener(lambda progress: reported.append(progress["name"]))
    made = Driver(lambda: session(settings, root), listener)
    made.begin()
    yield made
    made.close(time.monotonic() + CLOSE_S)
    # The session sets an interpreter below ``root``, which is deleted. Sessions of other tests would use its path.
    os.environ.clear()
    os.environ.update(before)


def killed(process: "Popen[bytes]") -> None:
    process.kill()


def stopped(_: "Popen[bytes]") -> None:
    """Stop the context, as Spark does after missed heartbeats, for example after the machine was suspended."""
    context = SparkContext._active_spark_context
    assert context is not None
    context._jsc.stop()


def exhausted(_: "Popen[bytes]") -> None:
    """Ask for more memory than the heap has."""
    assert SparkContext._gateway is not None
    assert SparkContext._jvm is not None
    with suppress(Py4JError, OSError):
        SparkContext._gateway.new_array(SparkContext._jvm.long, 1 << 30)


def test_a_process_without_the_secret_of_the_session_is_not_served_by_its_ports(driver: Driver) -> None:
    """They deserialize Java objects of whoever may connect (spark.authenticate)."""
    jvm, options = SparkContext._jvm, driver.session.sparkContext.getConf().getAll()
    assert jvm is not None
    made = jvm.org.apache.hadoop.security.UserGroupInformation.getCurrentUser().getCredentials()
    secret = made.getSecretKey(jvm.org.apache.hadoop.io.Text("sparkCookie"))  # SecurityManager.scala
    assert (("spark.authenticate", "true") in options, len(secret) >= 32) == (True, True)
    assert not any(secret.decode() in value for _, value in options)


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (killed, "signal SIGKILL"),
        pytest.param(stopped, "its context was stopped", marks=pytest.mark.release),
        pytest.param(
            exhausted,
            "its JVM ended with exit code 3: it ran out of memory; increase spark.memory",
            marks=pytest.mark.release,
        ),
    ],
)
def test_another_session_takes_the_place_of_one_that_ended(
    driver: Driver, reported: list[str], tmp_path: Path, end: Callable[["Popen[bytes]"], None], reason: str
) -> None:
    process = _process()
    assert process is not None
    assert driver.ended() == ""
    end(process)
    wait_until(driver.ended, WAIT_S, "the end to be noticed")
    found = driver.ended()
    driver.begin()
    reported.clear()
    taken: list[int] = []
    query = periodic(driver.session, "clock", "0 seconds", lambda _, batch: taken.append(batch), f"file://{tmp_path}")
    wait_until(lambda: taken and "clock" in reported, WAIT_S, "a batch, and its report")
    drain(query)
    assert (reason in found, driver.ended()) == (True, "")


def test_the_end_of_the_session_leaves_exceptions_of_other_jvms_readable(
    driver: Driver, new_root: Callable[[], Path]
) -> None:
    driver.close(time.monotonic() + CLOSE_S)
    other = Gateway("other", new_root(), "bookkeeper-4.17.3")
    try:
        # py4j ends a loop with Java's NoSuchElementException.
        assert list(other.java.java.util.ArrayList()) == []
    finally:
        other.close()


def test_settings_that_spark_refuses_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "python3")  # a session sets this for the whole process
    settings = parse(
        {
            "kafka": {"east": {"bootstrap": "none:1", "bit": 0}},
            "logdirs": {"east": {}},
            "spark": {"memory": "512m", "master": "local[1]", "conf": {"spark.network.timeout": "1s"}},
        }
    )
    refused = Driver(lambda: session(settings, tmp_path), Listener(lambda _: None))
    try:
        with pytest.raises(Stop, match=r"settings that Spark accepts; found .*spark\.network\.timeout"):
            refused.begin()
    finally:
        refused.close(time.monotonic() + CLOSE_S)


@pytest.mark.release
def test_a_cluster_that_refuses_connections_is_waited_for_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    master = f"k8s://http://127.0.0.1:{free_port()}"
    settings = parse(
        {
            "kafka": {"east": {"bootstrap": "none:1", "bit": 0}},
            "logdirs": {"east": {}},
            "journal": {"bootstrap": "none:1"},
            "spark": {"memory": "512m", "master": master, "checkpoint": f"file://{tmp_path}"},
        }
    )
    refused = Driver(lambda: session(settings, tmp_path), Listener(lambda _: None))
    try:
        with pytest.raises(Retry) as caught:
            refused.begin()
    finally:
        refused.close(time.monotonic() + CLOSE_S)
    assert (caught.value.expected, caught.value.found) == (
        f"the Spark cluster at {master} to accept the application",
        "java.net.ConnectException: Connection refused",
    )
