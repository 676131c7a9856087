import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from trueup.connectors.embedded.processes import Port, Process, free_port, wait_until
from trueup.state.common.errors import Retry, Stop

FOREVER = "while :; do sleep 60; done"


@pytest.fixture
def shell(tmp_path: Path) -> Iterator["Shells"]:
    shells = Shells(tmp_path)
    yield shells
    for process in shells.made:
        process.kill()


class Shells:
    def __init__(self, root: Path) -> None:
        self.root, self.made = root, list[Process]()

    def __call__(self, script: str) -> Process:
        process = Process("child", ["sh", "-c", script], self.root / "child.log")
        self.made.append(process)
        process.start()
        return process


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_child_that_exits_before_it_is_ready_shows_its_log(shell: Shells) -> None:
    with pytest.raises(Stop, match=r"(?s)exit code 3.*no such disk"):
        shell("echo no such disk; exit 3").wait_ready(lambda: False, 10.0)


def test_a_child_that_is_late_shows_its_log(shell: Shells) -> None:
    process = shell(f"echo waiting for a disk; {FOREVER}")
    wait_until(process.output, 180.0, "its first line")
    with pytest.raises(Retry, match="waiting for a disk"):
        process.wait_ready(lambda: False, 0.0)


def test_output_is_that_of_the_last_start(shell: Shells) -> None:
    process = shell("echo $$")
    first = process.pid
    wait_until(lambda: not process.alive, 180.0, "its end")
    process.run(10.0)
    assert process.output().strip() == str(process.pid) != str(first)


def test_a_command_that_fails_is_an_error_with_what_it_wrote(tmp_path: Path) -> None:
    with pytest.raises(Stop, match=r"(?s)exit code 2.*bad flag"):
        Process("tool", ["sh", "-c", "echo bad flag; exit 2"], tmp_path / "log").run(10.0)


def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Stop, match="no-such-command"):
        Process("tool", ["no-such-command"], tmp_path / "log").start()


def test_one_that_runs_is_not_started_twice(shell: Shells) -> None:
    with pytest.raises(Stop, match="not running"):
        shell(FOREVER).start()


def test_stop_lets_it_end_in_order(shell: Shells) -> None:
    process = shell(f"trap 'exit 7' TERM; echo ready; {FOREVER.replace('60', '0.05')}")
    process.wait_ready(process.output, 10.0)
    process.stop(10.0)
    assert process.exit_code == 7


def test_one_that_ignores_stop_is_killed(shell: Shells) -> None:
    process = shell(f"trap '' TERM; echo ready; {FOREVER}")
    process.wait_ready(process.output, 10.0)
    process.stop(0.0)
    assert process.exit_code == -9


def test_what_it_started_ends_with_it(shell: Shells) -> None:
    process = shell("sleep 600 & echo $!; wait")
    process.wait_ready(process.output, 10.0)
    process.kill()
    wait_until(lambda: gone(int(process.output())), 180.0, "the grandchild gone")


def test_it_outlives_the_thread_that_started_it(shell: Shells) -> None:
    made: list[Process] = []
    thread = threading.Thread(target=lambda: made.append(shell("sleep 1; echo still here")))
    thread.start()
    thread.join()
    wait_until(lambda: not made[0].alive, 180.0, "its end")
    assert made[0].exit_code == 0


def test_a_port_is_given_once() -> None:
    port = Port()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((port.host, port.number))
    port.release()


def test_a_server_may_listen_on_its_port() -> None:
    port = Port()
    with socket.create_server((port.host, port.number)):
        assert port.open()
    port.release()


def test_a_port_in_use_is_refused() -> None:
    with socket.create_server(("127.0.0.1", free_port())) as server, pytest.raises(Retry):
        Port(number=server.getsockname()[1])


def test_an_unused_port_is_not_one_that_is_reserved() -> None:
    port = Port()
    with pytest.raises(Retry, match=str(port.number)):
        Port(number=port.number, unused=True)
    port.release()


def test_a_server_may_listen_on_an_unused_port() -> None:
    port = Port(number=free_port(), unused=True)
    with socket.create_server((port.host, port.number)):
        assert port.open()
    port.release()


def test_waiting_ends_with_what_was_waited_for() -> None:
    with pytest.raises(Retry, match="a bookie in /rack2"):
        wait_until(lambda: False, 0.0, "a bookie in /rack2")
