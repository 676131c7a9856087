"""Runs every command of the README, in order, except `make test`, which runs this test."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trueup.connectors.embedded.processes import wait_until

pytestmark = pytest.mark.servers

REPOSITORY = Path(__file__).parents[2]
README = (REPOSITORY / "README.md").read_text()
BLOCKS = [
    [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ")]
    for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL)
]
THIS = "make test"
END = "kill $! && wait $!"
"""Ends the last background process, and waits for its end."""
EXPECTED = {"trueup plan": 3, "trueup doctor": 1}
"""Exit codes other than 0: a plan with changes, and a check of servers that do not exist."""


def section(title: str) -> list[str]:
    """The commands in the section with this heading."""
    text = README.split(f"## {title}\n")[1].split("\n## ")[0]
    return [command for block in BLOCKS for command in block if f"$ {command}\n" in text]


def wanted(command: str) -> int:
    return next((code for start, code in EXPECTED.items() if command.startswith(start)), 0)


class Shell:
    """A shell in a temporary folder, in which all commands of a test run, as when a reader pastes them."""

    def __init__(self, place: Path) -> None:
        self._place = place
        env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "NO_COLOR": "1"}
        self._bash = subprocess.Popen(
            ["bash"], cwd=place, env=env, stdin=subprocess.PIPE, text=True, start_new_session=True
        )

    def run(self, command: str, timeout_s: float = 900.0) -> subprocess.CompletedProcess[str]:
        """Run a command. What one in the background prints goes to background.log."""
        code, out, err = (self._place / name for name in ("code", "out.log", "err.log"))
        code.unlink(missing_ok=True)
        if command.endswith("&"):
            out = err = self._place / "background.log"
        word = f"(cd {REPOSITORY} && {command})" if command.startswith("make ") else command
        assert self._bash.stdin is not None
        self._bash.stdin.write(f"{{ {word}\n}} >{out} 2>{err} </dev/null; echo $? >code.new; mv code.new code\n")
        self._bash.stdin.flush()
        wait_until(code.exists, timeout_s, f"the end of {command}")
        return subprocess.CompletedProcess(command, int(code.read_text()), out.read_text(), err.read_text())

    def close(self) -> None:
        """End what runs in the background, the sandbox, and the shell."""
        self.run("kill $(jobs -p); wait")
        self.run("trueup sandbox down")
        self._bash.communicate("exit\n", 60)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    made.close()


def finished(
    command: list[str], timeout_s: float, place: Path = REPOSITORY, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command. If it does not end in time, it is asked to, with its children."""
    with subprocess.Popen(
        command,
        cwd=place,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def check(done: subprocess.CompletedProcess[str], command: str, place: Path) -> None:
    log = place / "background.log"
    tail = log.read_text()[-2_000:] if log.exists() else ""
    assert done.returncode == wanted(command), f"{command}\n{done.stdout}\n{done.stderr}\n{tail}"


@pytest.mark.release
def test_the_demo_loses_nothing_with_trueup_and_something_without() -> None:
    (command,) = section("See it work")
    done = finished(command.split(), 1_100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"entries lost +0 +[1-9]", done.stdout), done.stdout


@pytest.mark.release
@pytest.mark.parametrize("title", ["Replicate Kafka", "Replicate RocketMQ"])
def test_every_record_exists_once_after_a_cluster_was_killed_and_returned(title: str) -> None:
    (command,) = section(title)
    done = finished(command.split(), 1_100)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.release
def test_the_steps_by_hand_find_and_repair_what_is_wrong(shell: Shell, tmp_path: Path) -> None:
    result = {}
    for command in section("Try it by hand"):
        done = shell.run(command)
        check(done, command, tmp_path)
        result[command] = done.stdout
    first, last = result["trueup status --wait 120 --ready"], result["trueup status --wait 120"]
    # The first status reports all six findings and that BookKeeper's Auditor is not bound.
    assert ("6 ledgers drifted" in first, "neither hold nor approve binds it" in first) == (True, True), first
    assert (last.startswith("Healthy: 6 ledgers true"), "Trueup holds the vote" in last) == (True, True), last
    assert "safe" in result["trueup get actions"]


@pytest.mark.release
def test_a_cluster_of_ones_own_is_checked_and_watched(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "conf").symlink_to(REPOSITORY / "conf")
    doctor, run = section("On your cluster")
    check(shell.run(doctor), doctor, tmp_path)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shell.run(f"{run} --set http.port={port} --set data_dir={tmp_path / 'data'} &")
    deadline = time.monotonic() + 420
    while shell.run(f"trueup status --api http://127.0.0.1:{port}").returncode == 4:
        assert shell.run("kill -0 $!").returncode == 0, (tmp_path / "background.log").read_text()[-2_000:]
        assert time.monotonic() < deadline
    assert shell.run(END).returncode == 0


@pytest.mark.release
@pytest.mark.parametrize("command", [c for c in section("Read the code") if c != THIS])
def test_the_commands_for_developers_work(command: str) -> None:
    done = finished(command.split(), 900)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("title", ["Try it by hand"])
def test_an_application_in_the_background_is_ended_before_its_sandbox(title: str) -> None:
    commands = section(title)
    (begun,) = (at for at, command in enumerate(commands) if command.endswith("&"))
    assert begun < commands.index(END) < commands.index("trueup sandbox down")


def test_no_command_of_the_readme_is_left_out() -> None:
    titles = (
        "See it work",
        "Try it by hand",
        "Replicate Kafka",
        "Replicate RocketMQ",
        "On your cluster",
        "Read the code",
    )
    assert [c for title in titles for c in section(title)] == [c for block in BLOCKS for c in block]
