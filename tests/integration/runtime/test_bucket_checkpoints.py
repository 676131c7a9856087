"""Checkpoints in a bucket, in a process of their own: what Trueup finds, refuses and deletes there."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trueup.sandbox.servers.objects import REGION, Objects

pytestmark = [pytest.mark.servers, pytest.mark.release]
WAIT_S = 300.0
WORK = """
import json
import sys
from pathlib import Path
from tests.configuration import parse
from trueup.state.common.errors import Stop
from trueup.streams.cli.selftest import try_operator
from trueup.streams.runtime.spark.checkpoints import forget, readable, started
from trueup.streams.runtime.spark.session import session

job = json.loads(sys.argv[1])
folder, data = job["spark"]["checkpoint"], Path(sys.argv[2])
settings = {"kafka": {"east": {"bootstrap": "none:1", "bit": 0}}, "logdirs": {"east": {}}}
spark = session(parse({**settings, "spark": job["spark"]}), data)
query = f"{folder}/old-1/checkpoint"
found = {"before": [readable(query, "q", "", spark), started(query, spark)]}
try_operator(spark, f"{folder}/old-1")
try_operator(spark, f"{folder}/old-2")
found["after"] = [readable(query, "q", "", spark), started(query, spark)]
forget(spark, f"{query}", "offsets")
try:
    found["damaged"] = readable(query, "q", "", spark)
except Stop as error:
    found["damaged"] = str(error)
forget(spark, folder, "old-*", keep="old-2")
found["kept"] = [started(f"{folder}/old-{number}/checkpoint", spark) for number in (1, 2)]
print(json.dumps(found), flush=True)
"""


@pytest.fixture(scope="module")
def found(new_root: Callable[[], Path]) -> dict[str, Any]:
    root = new_root()
    with Objects(root / "objects", buckets=["states"]) as objects:
        objects.up()
        spark = {
            "memory": "512m",
            "master": "local[1]",
            "checkpoint": "s3a://states/trueup",
            "checkpoint_key_env": "KEY",
            "checkpoint_secret_env": "SECRET",
            "checkpoint_endpoint": objects.endpoint,
            "checkpoint_region": REGION,
        }
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KEY", "a key")
            patch.setenv("SECRET", "a secret")
            command = [sys.executable, "-c", WORK, json.dumps({"spark": spark}), str(root / "data")]
            done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    made: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return made


def test_a_checkpoint_that_does_not_exist_yet_is_used(found: dict[str, Any]) -> None:
    assert found["before"] == [True, False]


def test_a_checkpoint_with_batches_is_used_and_has_begun(found: dict[str, Any]) -> None:
    assert found["after"] == [True, True]


def test_a_state_without_its_offsets_is_left_to_the_operator(found: dict[str, Any]) -> None:
    assert "its offsets are missing" in found["damaged"]


def test_old_checkpoints_are_deleted_and_others_stay(found: dict[str, Any]) -> None:
    assert found["kept"] == [False, True]
