"""Checks of the addresses, files and variables that a configuration names."""

from pathlib import Path
from typing import Any

import pytest

from tests.configuration import parse
from trueup.streams.cli.main import invoke
from trueup.streams.config.check import problems

ZOOKEEPER = {"zookeeper": "zk1:2181,zk2:2181/chroot"}
STORE = {"bucket": "pulsar", "key_env": "STORE_KEY", "secret_env": "STORE_SECRET"}
BUCKET = {"checkpoint": "s3a://b-1/trueup", "checkpoint_key_env": "STORE_KEY", "checkpoint_secret_env": "STORE_SECRET"}
SET = {"STORE_KEY": "a", "STORE_SECRET": "b"}


def found(**sections: Any) -> list[str]:
    """Keys that the reported problems name."""
    return [line.partition(":")[0] for line in problems(parse({"cluster": ZOOKEEPER, **sections}), SET)]


def test_what_holds_is_no_problem() -> None:
    assert found(stores={"archive": STORE}, spark=BUCKET, journal={"bootstrap": "k1:9092,[::1]:9092"}) == []


@pytest.mark.parametrize(
    ("sections", "key"),
    [
        ({"cluster": {"zookeeper": "zk1"}}, "cluster.zookeeper"),
        ({"cluster": {**ZOOKEEPER, "autorecovery": ["http://ar1"]}}, "cluster.autorecovery"),
        ({"journal": {"bootstrap": "k1:9092,k2"}}, "journal.bootstrap"),
        ({"racks": {"source": "static", "table": {"a:1": "/r1", "b:1": "/dc/r2"}}}, "racks.table"),
        ({"racks": {"source": "static", "table": {"a:1": "r1"}}}, "racks.table"),
        ({"racks": {"source": "script", "script": "missing.sh"}}, "racks.script"),
        ({"stores": {"archive": {**STORE, "key_env": "UNSET"}}}, "stores.archive.key_env"),
        ({"stores": {"archive": {**STORE, "endpoint": "https://s:9000", "ca": "missing"}}}, "stores.archive.ca"),
        ({"spark": {**BUCKET, "checkpoint_secret_env": "UNSET"}}, "spark.checkpoint_secret_env"),
        ({"cluster": {**ZOOKEEPER, "security": {"tls.ca": "missing"}}}, "cluster.security.tls.*"),
        ({"cluster": {**ZOOKEEPER, "bookies": {"tls.ca": "missing"}}}, "cluster.bookies.tls.*"),
    ],
)
def test_what_does_not_hold_is_named(sections: dict[str, Any], key: str) -> None:
    assert found(**sections) == [key]


def test_a_script_has_to_be_executable(tmp_path: Path) -> None:
    (tmp_path / "racks.sh").write_text("#!/bin/sh\n")
    assert found(racks={"source": "script", "script": str(tmp_path / "racks.sh")}) == ["racks.script"]


def test_the_command_exits_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = invoke(["config", "check", "--set", "cluster.zookeeper=zk1"])
    assert (code, "cluster.zookeeper: expected host:port" in capsys.readouterr().err) == (2, True)


@pytest.mark.parametrize(
    ("memory", "good"), [("lots", False), ("2g", True), ("512M", True), ("1500mb", True), ("-1g", False)]
)
def test_memory_is_a_size(memory: str, good: bool) -> None:
    code = invoke(["config", "check", "--set", "cluster.zookeeper=zk1:2181", "--set", f"spark.memory={memory}"])
    assert code == (0 if good else 2)
