"""Checkpoints that are damaged: what is found, what is set aside, and what is left to the operator."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from trueup.state.common.errors import Stop
from trueup.streams.runtime.spark.checkpoints import MOST_ASIDE, damage, readable, started

BATCHES = 3


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Files as Spark 4.3 writes them, after three batches."""
    made = tmp_path / "placement-x"
    for folder in ("offsets", "commits", "state/0/0"):
        (made / folder).mkdir(parents=True)
    (made / "metadata").write_text(json.dumps({"id": "2f0c"}))
    for batch in range(BATCHES):
        offsets = ["v1", json.dumps({"batchWatermarkMs": 0}), json.dumps({"t": {"0": batch}})]
        (made / "offsets" / str(batch)).write_text("\n".join(offsets))
        (made / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
        (made / "state/0/0" / f"{batch}.changelog").write_bytes(b"x")
    return made


def empty(path: Path) -> None:
    path.write_bytes(b"")


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4])


def zeros(path: Path) -> None:
    """What some file systems leave after a power failure."""
    path.write_bytes(bytes(path.stat().st_size))


def test_a_sound_checkpoint_is_used(checkpoint: Path) -> None:
    assert (damage(checkpoint), readable(str(checkpoint), "placement", ""), started(str(checkpoint))) == (
        "",
        True,
        True,
    )


def test_a_checkpoint_that_does_not_exist_yet_is_used(tmp_path: Path) -> None:
    path = tmp_path / "new"
    assert (readable(f"file://{path}", "placement", ""), started(f"file://{path}")) == (True, False)


def test_a_batch_that_was_not_committed_is_no_damage(checkpoint: Path) -> None:
    (checkpoint / "commits" / "2").unlink()
    assert damage(checkpoint) == ""


def test_a_source_without_offsets_is_no_damage(checkpoint: Path) -> None:
    (checkpoint / "offsets" / "2").write_text('v1\n{"batchWatermarkMs":0}\n-')
    assert damage(checkpoint) == ""


@pytest.mark.parametrize("harm", [empty, half, zeros])
@pytest.mark.parametrize("name", ["metadata", "offsets/2", "commits/2"])
def test_a_file_that_is_not_whole_is_found(checkpoint: Path, name: str, harm: Callable[[Path], None]) -> None:
    harm(checkpoint / name)
    assert damage(checkpoint).startswith(name)


@pytest.mark.parametrize(
    ("missing", "found"),
    [
        ("metadata", "metadata is missing"),
        ("offsets", "its offsets are missing"),
        ("offsets/2", "batch 2 is committed, but its offsets are missing"),
    ],
)
def test_what_is_missing_is_found(checkpoint: Path, missing: str, found: str) -> None:
    path = checkpoint / missing
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert damage(checkpoint) == found


def test_a_damaged_checkpoint_is_set_aside_with_its_content(checkpoint: Path) -> None:
    empty(checkpoint / "offsets" / "2")
    assert readable(f"file://{checkpoint}", "placement", "") is False
    aside = checkpoint.with_name("placement-x.aside-1")
    assert (checkpoint.exists(), (aside / "offsets" / "1").exists()) == (False, True)


@pytest.mark.parametrize(
    "error",
    [
        "org.apache.spark.SparkException: [CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] Loading state failed.",
        "java.lang.IllegalStateException: Incomplete log file in version v1",
        "[KAFKA_DATA_LOSS.START_OFFSET_RESET] Some data may have been lost",
    ],
)
def test_a_checkpoint_that_spark_cannot_read_is_set_aside(checkpoint: Path, error: str) -> None:
    assert readable(str(checkpoint), "placement", error) is False


@pytest.mark.parametrize(
    "error",
    [
        "Spark: its JVM ended with signal SIGKILL",
        "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] Caused by: java.io.IOException: No space left on device",
        "org.apache.kafka.common.errors.TimeoutException: no response",
    ],
)
def test_another_error_of_the_query_keeps_the_checkpoint(checkpoint: Path, error: str) -> None:
    assert readable(str(checkpoint), "placement", error) is True


def test_a_disk_that_damages_every_checkpoint_is_left_to_the_operator(checkpoint: Path) -> None:
    for number in range(1, MOST_ASIDE + 1):
        checkpoint.with_name(f"placement-x.aside-{number}").mkdir()
    empty(checkpoint / "metadata")
    with pytest.raises(Stop, match=r"metadata is empty, and 5 were set aside before; check the disk"):
        readable(str(checkpoint), "placement", "")


def test_a_checkpoint_elsewhere_is_left_to_the_operator() -> None:
    with pytest.raises(Stop, match=r"move s3a://b/placement-x away"):
        readable("s3a://b/placement-x", "placement", "Incomplete log file in version v1")
