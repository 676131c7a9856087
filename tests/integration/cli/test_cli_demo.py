import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from trueup.connectors.embedded.processes import wait_until
from trueup.streams.terminal.codes import INTERRUPTED

pytestmark = pytest.mark.servers


def test_a_demo_that_is_ended_leaves_no_server_and_no_file(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trueup.streams.cli.main", "demo", "rack-drill", "--control"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: len(psutil.Process(process.pid).children()) > 1, 120, "servers of the demo")
        process.terminate()
        code = process.wait(120)
    assert (code, [*tmp_path.iterdir()]) == (INTERRUPTED, [])
