import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from kazoo.client import KazooClient

from trueup.connectors.embedded.processes import wait_until
from trueup.sandbox.control import Remote
from trueup.state.common.errors import Stop, TrueupError

pytestmark = pytest.mark.servers

SUPERVISOR = """
import sys
from pathlib import Path
from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.control import serve
with SandboxCluster(Path(sys.argv[1]), {"/rack1": 1}, autorecovery=0) as cluster:
    cluster.up()
    serve(cluster)
"""


@pytest.fixture(scope="module")
def root(new_root: Callable[[], Path]) -> Path:
    return new_root()


@pytest.fixture(scope="module")
def started(root: Path) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Sandboxes in separate processes, one after the other in the same directory."""
    made = [start(root)]
    yield made
    made[-1].kill()
    made[-1].wait()


@pytest.fixture
def supervisor(root: Path, started: list["subprocess.Popen[bytes]"]) -> "subprocess.Popen[bytes]":
    """The running sandbox. It is restarted if a test ended it."""
    if started[-1].poll() is not None:
        started.append(start(root))
    return started[-1]


def start(root: Path) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen([sys.executable, "-c", SUPERVISOR, str(root)])
    wait_until(lambda: answers(root) or process.poll() is not None, 180.0, "the sandbox to answer")
    return process


def answers(root: Path) -> bool:
    try:
        Remote(root).request("status")
    except TrueupError:
        return False
    return True


def pids(root: Path) -> list[int]:
    return [server["pid"] for server in Remote(root).request("status")["servers"].values() if server["alive"]]


def running(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_servers_are_killed_and_started_from_another_process(supervisor: "subprocess.Popen[bytes]", root: Path) -> None:
    killed = Remote(root).request("kill", "bookie1")["servers"]["bookie1"]
    started = Remote(root).request("start", "bookie1")["servers"]["bookie1"]
    assert (killed["alive"], started["alive"], killed["pid"] != started["pid"]) == (False, True, True)


def test_a_kill_returns_when_no_client_is_sent_to_the_bookie(supervisor: "subprocess.Popen[bytes]", root: Path) -> None:
    zookeeper = KazooClient(Remote(root).request("kill", "bookie1")["zookeeper"])
    zookeeper.start()
    registered = zookeeper.get_children("/ledgers/available")
    zookeeper.stop()
    Remote(root).request("start", "bookie1")
    assert registered == ["readonly"]


def test_an_unknown_name_is_refused_with_the_reason(supervisor: "subprocess.Popen[bytes]", root: Path) -> None:
    with pytest.raises(Stop, match="bookie1"):
        Remote(root).request("kill", "bookie2")


def test_down_ends_the_supervisor_and_all_servers(supervisor: "subprocess.Popen[bytes]", root: Path) -> None:
    before = pids(root)
    Remote(root).request("down")
    assert (supervisor.wait(180), len(before), [pid for pid in before if running(pid)]) == (0, 2, [])


def test_sigterm_ends_all_servers(supervisor: "subprocess.Popen[bytes]", root: Path) -> None:
    before = pids(root)
    supervisor.terminate()
    assert (supervisor.wait(180), [pid for pid in before if running(pid)]) == (0, [])


def test_nothing_outlives_a_killed_supervisor(supervisor: "subprocess.Popen[bytes]", root: Path) -> None:
    before = pids(root)
    supervisor.kill()
    supervisor.wait()
    wait_until(lambda: not any(map(running, before)), 180.0, "all servers gone")


def test_without_a_sandbox_the_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(Stop, match=str(tmp_path)):
        Remote(tmp_path).request("status")
