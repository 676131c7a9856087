"""What a session receives for a cluster, and for checkpoints in a bucket."""

import socket
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from trueup.connectors.embedded.processes import free_port
from trueup.state.common.errors import Retry, Stop
from trueup.state.settings.spark import SparkSettings
from trueup.streams.runtime.spark.checkpoints import folder_of, standby_of
from trueup.streams.runtime.spark.cluster import bucket_options, bundle, reach, shipped
from trueup.streams.runtime.spark.session import _joined_java

BUCKET = SparkSettings(
    checkpoint="s3a://states/trueup/",
    checkpoint_endpoint="http://s3:9000/",
    checkpoint_key_env="K",
    checkpoint_secret_env="S",
)
PREFIX = "spark.hadoop.fs.s3a.bucket.states."


def test_credentials_and_endpoint_are_settings_of_the_bucket_alone() -> None:
    found = bucket_options(BUCKET, {"K": "id", "S": "word"})
    chosen = {name: found.get(f"{PREFIX}{name}") for name in ("access.key", "secret.key", "endpoint")}
    assert chosen == {"access.key": "id", "secret.key": "word", "endpoint": "http://s3:9000"}
    assert all(name.startswith(PREFIX) for name in found)


def test_without_variables_the_providers_of_s3a_find_the_credentials() -> None:
    found = bucket_options(SparkSettings(checkpoint="s3a://states/x"), {})
    assert not any(name.endswith((".key", ".provider")) for name in found)


def test_a_variable_that_is_not_set_ends_the_start() -> None:
    with pytest.raises(Stop, match="the variable S"):
        bucket_options(BUCKET, {"K": "id"})


def test_other_locations_need_no_settings_of_a_bucket() -> None:
    assert bucket_options(SparkSettings(checkpoint="file:///shared"), {}) == {}


def test_jars_and_files_of_the_operator_are_shipped_with_those_of_trueup(tmp_path: Path) -> None:
    spark = SparkSettings(conf={"spark.jars": "/own.jar", "spark.submit.pyFiles": "/own.zip"})
    found = shipped(spark, [Path("/a.jar"), Path("/b.jar")], tmp_path)
    assert found == {"spark.jars": "/a.jar,/b.jar,/own.jar", "spark.submit.pyFiles": f"{tmp_path}/trueup.zip,/own.zip"}


def test_the_package_for_executors_runs_from_bytecode(tmp_path: Path) -> None:
    made = bundle(tmp_path / "trueup.zip")
    program = (
        f"import sys; sys.path.insert(0, {str(made)!r}); import trueup.state.settings.spark as m; print(m.__file__)"
    )
    done = subprocess.run([sys.executable, "-Ic", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{made}/trueup/state/settings/spark.pyc"


def test_every_source_for_executors_has_its_bytecode(tmp_path: Path) -> None:
    names = set(ZipFile(bundle(tmp_path / "trueup.zip")).namelist())
    assert {f"{name}c" for name in names if name.endswith(".py")} == {name for name in names if name.endswith(".pyc")}


def test_checkpoints_are_in_the_data_directory_unless_a_location_is_set(tmp_path: Path) -> None:
    assert (folder_of(SparkSettings(), tmp_path), folder_of(BUCKET, tmp_path)) == (
        f"file://{tmp_path}/checkpoints",
        "s3a://states/trueup",
    )


def test_standbys_that_share_a_location_have_names_of_their_own() -> None:
    assert len({standby_of(BUCKET, Path(place)) for place in ("/a", "/b")}) == 2


def test_java_options_of_an_operator_follow_those_of_the_application() -> None:
    assert _joined_java("-Xms64m -XX:+UseSerialGC", "-Xms1g") == "-Xms64m -XX:+UseSerialGC -Xms1g"


def test_a_collector_chosen_by_an_operator_replaces_that_of_the_application() -> None:
    assert _joined_java("-Xms64m -XX:+UseSerialGC", "-XX:+UseG1GC") == "-Xms64m -XX:+UseG1GC"


def test_a_master_that_refuses_connections_is_named_with_the_reason() -> None:
    url = f"spark://127.0.0.1:{free_port()},[::1]:{free_port()}"
    with pytest.raises(Retry) as caught:
        reach(url)
    addresses = url.removeprefix("spark://").split(",")
    assert (caught.value.expected, caught.value.todo) == (
        f"a Spark master at {url}",
        "start it, or correct spark.master",
    )
    assert [each.partition(": ")[0] for each in caught.value.found.split("; ")] == addresses
    assert "Connection refused" in caught.value.found


def test_one_master_that_accepts_connections_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        reach(f"spark://127.0.0.1:{free_port()},127.0.0.1:{listening.getsockname()[1]}")


@pytest.mark.parametrize("master", ["local[2]", "yarn", "k8s://https://none:1", "spark://none", "spark://none:99999"])
def test_other_masters_are_left_to_spark(master: str) -> None:
    reach(master)
