"""Spark's JVM keeps its temporary files in the data directory, and the next start deletes them. The path of the
directory is as long as the paths of Unix domain sockets in it allow."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from trueup.connectors.embedded.processes import Process

pytestmark = [pytest.mark.servers, pytest.mark.release]
WAIT_S = 240.0
LONGEST = 105 - len("tmp/.01234567-89ab-cdef-0123-456789abcdef.sock")
"""Bytes of the longest data directory that contains the sockets."""
USED = ("spark-", "artifacts-", "liblz4-java-", "librocksdbjni")
"""Prefixes of the file names that a session with a stateful query creates."""
WORK = """
import sys
import threading
from pathlib import Path
from tests.configuration import parse
from trueup.streams.cli.selftest import try_operator
from trueup.streams.runtime.spark.session import session

data, work = map(Path, sys.argv[1:])
settings = {"kafka": {"east": {"bootstrap": "none:1", "bit": 0}}, "logdirs": {"east": {}}}
spark = session(parse({**settings, "spark": {"memory": "512m", "master": "local[1]"}}), data)
try_operator(spark, f"file://{work}")
print("worked", flush=True)
threading.Event().wait()
"""


class Killed:
    """Two runs of a session on one data directory, each killed during its work. ``system``: the system's directory for
    temporary files. ``first`` and ``second``: file names in the JVM's directory after each run."""

    def __init__(self, root: Path) -> None:
        self.system = root / "system"
        self.system.mkdir()
        self.data = root / "data".ljust(LONGEST - len(os.fsencode(root)) - 1, "-")
        self.first, self.second = (self._run(root, number) for number in (1, 2))

    def _run(self, root: Path, number: int) -> set[str]:
        # Processes with a directory on their command line use that one, all others use this one.
        environment = {"TMPDIR": str(self.system), "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={self.system}"}
        command = [sys.executable, "-c", WORK, self.data, root / f"work{number}"]
        process = Process("session", command, root / f"session{number}.log", environment)
        process.start()
        try:
            process.wait_ready(lambda: "worked" in process.output(), WAIT_S)
        finally:
            process.kill()
        return {path.name for path in (self.data / "tmp").iterdir()}


@pytest.fixture(scope="module")
def killed(new_root: Callable[[], Path]) -> Killed:
    return Killed(new_root())


@pytest.mark.parametrize("begin", USED)
def test_a_session_puts_its_temporary_files_into_the_data_directory(killed: Killed, begin: str) -> None:
    assert any(name.startswith(begin) for name in killed.first), killed.first


def test_a_killed_session_leaves_nothing_in_the_systems_temporary_directory(killed: Killed) -> None:
    assert list(killed.system.iterdir()) == []


def test_the_next_start_clears_what_a_killed_session_left(killed: Killed) -> None:
    assert killed.first & killed.second == set()
