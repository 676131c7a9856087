"""Real servers for tests, and a check that no test leaves a process behind."""

import ctypes
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from xdist.scheduler import LoadFileScheduling, LoadScopeScheduling

from tests.conformance.rocketmq import RocketMqPair
from tests.replication.pair import Pair
from trueup.connectors.embedded.processes import wait_until
from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.servers.zookeeper import ZooKeeper
from trueup.state.common.errors import Retry
from trueup.streams.runtime.spark import class_data

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# The load of the machine varies.
hypothesis.settings.register_profile("no deadline", deadline=None)
hypothesis.settings.load_profile("no deadline")
HERE = Path(__file__).parent
_PR_SET_CHILD_SUBREAPER = 36
_PYSPARK = "pyspark-shell"
"""The JVM of pyspark. It serves every session of this process and ends with it."""
_CRASHPAD = "/chrome_crashpad_handler"
"""Chromium's handlers of crashes. They detach from a browser some time after its start and end with it."""
ENDS_S = 90.0
"""Spark replaces the daemon of its Python workers if a task is cancelled while it asks for one. A worker that this
daemon had just forked stays, without a parent, until it was idle for a minute."""

DURATIONS = HERE / "durations.json"
"""Seconds per group of tests when it was last recorded. `--record-durations` rewrites the file."""
SPLIT = ("conformance/test_connectors.py",)
"""Files whose tests form a group per first parameter. One group of them would take longer than a worker's share."""
TOGETHER = ("integration/topic_reader/",)
"""Folders whose files share servers and form one group."""
RACES: dict[str, str] = {}
"""Tests that are rerun once after a failure: node id and the race that is the reason."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-durations", action="store_true", help=f"write {DURATIONS.name} anew from this run")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the slowest groups first, so that no worker of `pytest -n` finishes much later than the others."""
    known = json.loads(DURATIONS.read_text())
    items.sort(key=lambda item: (-known.get(_group(item.nodeid), 1.0), _group(item.nodeid)))
    for item in items:
        if item.nodeid in RACES:
            item.add_marker(pytest.mark.flaky(reruns=1))


class _Groups(LoadFileScheduling):
    """Runs each group of tests on one worker."""

    def _split_scope(self, nodeid: str) -> str:
        return _group(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """With `--dist loadfile`, distribute groups."""
    return _Groups(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """With `--record-durations`, record groups that took longer than a second. Other groups keep their entries."""
    if not config.getoption("--record-durations"):
        return
    took: Counter[str] = Counter()
    for report in (report for reports in terminalreporter.stats.values() for report in reports):
        if isinstance(report, pytest.TestReport):
            took[_group(report.nodeid)] += report.duration
    known = {**json.loads(DURATIONS.read_text()), **{group: round(seconds) for group, seconds in took.items()}}
    kept = {group: s for group, s in known.items() if s > 1 and (HERE / group.partition("[")[0]).exists()}
    DURATIONS.write_text(json.dumps(dict(sorted(kept.items(), key=lambda each: -each[1])), indent=1) + "\n")


def _group(nodeid: str) -> str:
    """The tests that one worker runs together: a file, relative to the tests folder, or a parameter of a split file."""
    file, _, test = nodeid.removeprefix("tests/").partition("::")
    if shared := next((folder for folder in TOGETHER if file.startswith(folder)), ""):
        return shared
    parameter = test.partition("[")[2].rstrip("]").partition("-")[0]
    return f"{file}[{parameter}]" if file in SPLIT else file


def pytest_configure() -> None:
    """Become the subreaper, so that the check finds orphaned processes, and reduce the start cost of JVMs."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    # The second compiler costs more than it saves in a JVM that runs for a minute.
    os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")
    os.environ.setdefault(class_data.OPTIONS, class_data.flags())  # of sessions that Trueup does not start


@pytest.fixture(scope="module")
def chromium() -> Iterator["Browser"]:
    """Headless Chromium."""
    from tests.browser.chromium import launched

    with launched() as browser:
        yield browser


@pytest.fixture
def reads_here() -> Iterator[None]:
    """For tests that use the reader in this process: its session would look for its servers during later tests."""
    from trueup.streams.topic_reader.topics import end_kept  # only processes that read import it

    yield
    end_kept()


@pytest.fixture(scope="session")
def shared_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Path]]:
    """Creates empty directories for servers that the tests of a worker share. Afterwards only their logs are kept."""
    yield from _roots(tmp_path_factory)


@pytest.fixture(scope="module")
def new_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Path]]:
    """Creates empty directories for servers of a module. Afterwards only their logs are kept."""
    yield from _roots(tmp_path_factory)


def _roots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Path]]:
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
def pair(new_root: Callable[[], Path]) -> Iterator[Pair]:
    """Two brokers for the tests of a module. Idle brokers use more CPU time than another start."""
    with Pair(new_root) as made:
        yield made


@pytest.fixture(scope="module")
def rocketmq(new_root: Callable[[], Path]) -> Iterator[RocketMqPair]:
    """Two clusters of RocketMQ, as `pair`."""
    with RocketMqPair(new_root) as made:
        yield made


@pytest.fixture(scope="session")
def zookeeper(shared_root: Callable[[], Path]) -> Iterator[ZooKeeper]:
    """A ZooKeeper that all tests of this worker share, without BookKeeper's znodes. Each test uses its `own_root`."""
    with ZooKeeper(shared_root()) as server:
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
        wait_until(lambda: not _strange(_known_commands), ENDS_S, "no child process left")
    except Retry:
        pytest.fail(f"left running: {_strange(_known_commands)}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Check for processes of module fixtures at the end, in the process that ran the tests."""
    if session.config.getoption("numprocesses", None):
        return  # pytest-xdist's workers are child processes
    try:
        wait_until(lambda: not _children(), ENDS_S, "no child process left")
    except Retry:
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
        print(f"\nleft running at the end: {_children()}")


def _strange(known: set[tuple[str, ...]]) -> dict[int, tuple[str, ...]]:
    return {
        pid: command
        for pid, command in _children().items()
        if command not in known and not command[0].endswith(_CRASHPAD)
    }


def _children() -> dict[int, tuple[str, ...]]:
    """Running children with their command lines. Every test asks; psutil would read all processes of the machine."""
    return {pid: command for pid in _child_ids() if (command := _command(pid)) and _PYSPARK not in command}


def _child_ids() -> Iterator[int]:
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # the thread ended
            yield from map(int, (task / "children").read_text().split())


def _command(pid: int) -> tuple[str, ...]:
    """Empty for a process that ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return tuple(Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1])
    return ()


def _keep_logs(root: Path) -> None:
    for path in root.iterdir():
        with suppress(FileNotFoundError):  # a process that ends removes its own files
            if path.is_dir():
                _keep_logs(path)
                if not any(path.iterdir()):
                    path.rmdir()
            elif path.suffix != ".log":
                path.unlink()
