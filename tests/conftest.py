"""Real servers for tests, and a check that no test leaves a process behind."""

import ctypes
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import psutil
import pytest

from tests import archives
from trueup.connectors.sandbox.cluster import SandboxCluster
from trueup.connectors.sandbox.jvm.processes import wait_until
from trueup.connectors.sandbox.servers.kafka import Kafka
from trueup.connectors.sandbox.servers.zookeeper import ZooKeeper
from trueup.state.common.errors import Retry

# The load of the machine varies.
hypothesis.settings.register_profile("no deadline", deadline=None)
hypothesis.settings.load_profile("no deadline")
HERE = Path(__file__).parent
_PR_SET_CHILD_SUBREAPER = 36
_PYSPARK = "pyspark-shell"
"""The JVM of pyspark. It serves every session of this process and ends with it."""


DURATIONS = HERE / "durations.json"
"""Seconds per test file on an idle machine. `--record-durations` rewrites the file."""
RACES: dict[str, str] = {}
"""Tests that are rerun once after a failure: node id and the race that is the reason."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-durations", action="store_true", help=f"write {DURATIONS.name} anew from this run")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the slowest files first, so that no worker of `pytest -n` finishes much later than the others."""
    known = json.loads(DURATIONS.read_text())
    items.sort(key=lambda item: -known.get(_file(item.nodeid), 1.0))
    for item in items:
        if item.nodeid in RACES:
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """With `--record-durations`, record files that took longer than a second. Other files keep their entries."""
    if not config.getoption("--record-durations"):
        return
    took: Counter[str] = Counter()
    for report in (report for reports in terminalreporter.stats.values() for report in reports):
        if isinstance(report, pytest.TestReport):
            took[_file(report.nodeid)] += report.duration
    known = {**json.loads(DURATIONS.read_text()), **{file: round(seconds) for file, seconds in took.items()}}
    kept = {file: seconds for file, seconds in known.items() if seconds > 1 and (HERE / file).exists()}
    DURATIONS.write_text(json.dumps(dict(sorted(kept.items(), key=lambda each: -each[1])), indent=1) + "\n")


def _file(nodeid: str) -> str:
    """The file of a test, relative to the tests folder."""
    return nodeid.partition("::")[0].removeprefix("tests/")


def pytest_configure() -> None:
    """Become the subreaper, so that the check finds orphaned processes, and reduce the start cost of JVMs."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    # The second compiler costs more than it saves in a JVM that runs for a minute.
    os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")
    archives.use()


@pytest.fixture(scope="module")
def new_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Path]]:
    """Creates empty directories for servers. Afterwards only their logs are kept."""
    roots = []

    def make() -> Path:
        roots.append(tmp_path_factory.mktemp("servers"))
        return roots[-1]

    yield make
    for root in roots:
        _keep_logs(root)


@pytest.fixture(scope="module")
def start_cluster(new_root: Callable[[], Path]) -> Iterator[Callable[..., SandboxCluster]]:
    """Starts clusters, ``start_cluster(racks=..., kafka=True ...)``, and closes them at the end of the module.

    With ``daemons=False``, ``cluster.start("autorecovery")`` starts their AutoRecovery daemons.
    """
    started = []

    def start(daemons: bool = True, **options: object) -> SandboxCluster:
        cluster = SandboxCluster(new_root(), **options)
        started.append(cluster)
        cluster.up(autorecovery=daemons)
        return cluster

    yield start
    for cluster in started:
        cluster.close()


@pytest.fixture(scope="module")
def kafka(new_root: Callable[[], Path]) -> Iterator[Kafka]:
    """A broker for this module."""
    with Kafka(new_root()) as server:
        server.up()
        yield server


@pytest.fixture(scope="module")
def zookeeper(new_root: Callable[[], Path]) -> Iterator[ZooKeeper]:
    """A ZooKeeper for this module, without BookKeeper's znodes."""
    with ZooKeeper(new_root()) as server:
        server.up()
        yield server


@pytest.fixture(scope="module")
def _known_commands() -> set[tuple[str, ...]]:
    return set()


@pytest.fixture(autouse=True)
def _no_process_left(_known_commands: set[tuple[str, ...]]) -> Iterator[None]:
    """Fails a test that leaves a child process, unless the test only restarted a server of its module."""
    _known_commands |= set(_children().values())
    yield
    try:
        wait_until(lambda: not _strange(_known_commands), 60.0, "no child process left")
    except Retry:
        pytest.fail(f"left running: {_strange(_known_commands)}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Check for processes of module fixtures at the end, in the process that ran the tests."""
    if session.config.getoption("numprocesses", None):
        return  # pytest-xdist's workers are child processes
    try:
        wait_until(lambda: not _children(), 60.0, "no child process left")
    except Retry:
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
        print(f"\nleft running at the end: {_children()}")


def _strange(known: set[tuple[str, ...]]) -> dict[int, tuple[str, ...]]:
    return {pid: command for pid, command in _children().items() if command not in known}


def _children() -> dict[int, tuple[str, ...]]:
    found = {}
    for child in psutil.Process().children():
        try:
            if child.status() != psutil.STATUS_ZOMBIE and _PYSPARK not in child.cmdline():
                found[child.pid] = tuple(child.cmdline())
        except psutil.NoSuchProcess:
            continue
    return found


def _keep_logs(root: Path) -> None:
    for path in root.iterdir():
        if path.is_dir():
            _keep_logs(path)
            if not any(path.iterdir()):
                path.rmdir()
        elif path.suffix != ".log":
            path.unlink()
