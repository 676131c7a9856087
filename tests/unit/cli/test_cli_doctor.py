"""The checks of trueup doctor that need no servers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.configuration import parse
from trueup.connectors.embedded.processes import free_port
from trueup.state.common.errors import Stop
from trueup.state.settings.settings import Settings
from trueup.streams.bookkeeper import worker_checks as workers
from trueup.streams.cli import machine
from trueup.streams.cli.main import invoke
from trueup.streams.runtime.checks import Check, ok, tried
from trueup.streams.runtime.spark.session import LINES

ZOOKEEPER = {"cluster": {"zookeeper": "zk:2181"}}


def made(**sections: Any) -> Settings:
    return parse({**ZOOKEEPER, **sections})


def test_an_error_is_a_failure_after_the_results_before_it() -> None:
    def look() -> Any:
        yield ok("a", "fine")
        raise Stop("a", "b", "c")

    assert tried("b", look) == [ok("a", "fine"), Check("b", "fail", "expected a; found b", "c")]


@pytest.mark.parametrize("kind", [KeyError, RuntimeError, AssertionError, OverflowError])
def test_a_defect_is_a_failure_after_the_results_before_it_too(kind: type[Exception]) -> None:
    def look() -> Any:
        yield ok("a", "fine")
        raise kind("endpoint_type")

    first, second = tried("b", look)
    assert (first, second.name, second.status) == (ok("a", "fine"), "b", "fail")
    assert (kind.__name__ in second.found, "endpoint_type" in second.found) == (True, True)


PULSARS = "org.apache.pulsar.bookie.rackawareness.IsolatedBookieEnsemblePlacementPolicy"
ZONES = "org.apache.bookkeeper.client.ZoneawareEnsemblePlacementPolicy"
RACKS, REGIONS = "RackawareEnsemblePlacementPolicy", "org.RegionAwareEnsemblePlacementPolicy"


@pytest.mark.parametrize(
    ("conf", "wrong"),
    [
        ({}, ["repairedPlacementPolicyNotAdheringBookieEnabled is false, expected true"]),
        ({workers.REPAIRS: "true"}, []),
        ({workers.REPAIRS: "TRUE", workers.MIN_RACKS: 2}, []),
        ({workers.REPAIRS: "true", workers.MIN_RACKS: "3"}, ["minNumRacksPerWriteQuorum is 3, expected 2"]),
        (
            {workers.REPAIRS: "true", workers.ENFORCE: "true"},
            ["enforceMinNumRacksPerWriteQuorum is true, expected false"],
        ),
        (
            {workers.REPAIRS: "true", workers.POLICY: f"org.apache.bookkeeper.client.{REGIONS}"},
            [f"{workers.POLICY} is {REGIONS[4:]}, expected {RACKS} because placement.policy is rack"],
        ),
    ],
)
def test_settings_of_a_worker(conf: dict[str, Any], wrong: list[str]) -> None:
    assert list(workers._settings(made(), conf)) == wrong


@pytest.mark.parametrize(
    ("placement", "conf", "wrong"),
    [
        ({"policy": "isolation"}, {workers.REPAIRS: "true", workers.POLICY: PULSARS}, 0),
        ({"policy": "isolation"}, {workers.REPAIRS: "true"}, 0),
        ({"policy": "isolation", "workers_isolate": True}, {workers.REPAIRS: "true"}, 1),
        (
            {"policy": "isolation", "workers_isolate": True},
            {workers.REPAIRS: "true", workers.POLICY: PULSARS, workers.GROUPS: ""},
            0,
        ),
        ({"policy": "zone"}, {workers.POLICY: ZONES}, 0),
        ({"policy": "zone"}, {workers.POLICY: ZONES, workers.REPAIRS: "true"}, 1),
        ({"policy": "zone", "min_zones": 3}, {workers.POLICY: ZONES}, 1),
        ({"policy": "region", "regions": ["a", "b"]}, {workers.POLICY: REGIONS, "reppRegionsToWrite": "a;b"}, 0),
        ({"policy": "region", "regions": ["a", "b"]}, {workers.POLICY: REGIONS}, 1),
        ({"policy": "region"}, {}, 1),
    ],
)
def test_settings_of_a_worker_under_another_policy(placement: dict[str, Any], conf: dict[str, Any], wrong: int) -> None:
    settings = made(placement=placement, racks={"source": "pulsar"})
    assert len(list(workers._settings(settings, conf))) == wrong


@pytest.mark.parametrize(
    ("source", "resolver", "status"),
    [
        ("pulsar", "org.apache.pulsar.bookie.rackawareness.BookieRackAffinityMapping", "ok"),
        ("pulsar", "org.apache.bookkeeper.net.ScriptBasedMapping", "fail"),
        ("none", "org.apache.pulsar.bookie.rackawareness.BookieRackAffinityMapping", "fail"),
    ],
)
def test_resolvers_must_be_of_one_kind(source: str, resolver: str, status: str) -> None:
    check = workers._racks("racks", made(racks={"source": source}), {workers.RESOLVER: resolver}, {}, {})
    assert check.status == status


def test_a_script_that_is_elsewhere_cannot_be_compared(tmp_path: Path) -> None:
    conf = {workers.SCRIPT: str(tmp_path / "racks.sh")}
    assert workers._racks("racks", made(), conf, {}, {}).status == "warn"


def test_many_differences_are_counted() -> None:
    ours = {f"b{n}": "/a" for n in range(9)}
    found = workers._compared("racks", ours, dict.fromkeys(ours, "/b")).found
    assert found.startswith("different racks of 9 bookies: b0 in /b, here /a;")
    assert found.endswith("and 6 more")


def test_the_jars_looked_for_are_those_that_spark_starts_with() -> None:
    assert {line.jars for line in LINES.values()} == {machine.SPARK_SET}


def test_java_is_found() -> None:
    assert machine.runtime().found.startswith("Java ")


def test_room_leaves_nothing_behind(tmp_path: Path) -> None:
    machine.room(made(data_dir=str(tmp_path / "not" / "there")))
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    assert machine.room(made(data_dir="/proc/trueup")).status == "fail"


def test_the_embedded_journal_needs_no_broker() -> None:
    assert machine.journal(made()).found == "embedded, in data_dir"


def test_the_last_line_of_a_failure_is_reported() -> None:
    last = "trueup.state.common.errors.Stop: expected a; found b; c"
    assert machine._last_error(f"Traceback (most recent call last):\n  File x\n    y\n{last}\n") == last


def test_a_spark_master_that_refuses_connections_is_named() -> None:
    master = f"spark://127.0.0.1:{free_port()}"
    chosen = made(journal={"bootstrap": "none:1"}, spark={"master": master, "checkpoint": "file:///shared"})
    (found,) = tried("spark", lambda: machine.spark(chosen))
    assert (found.status, found.todo) == ("fail", "start it, or correct spark.master")
    assert found.found == (
        f"expected a Spark master at {master}; found {master.removeprefix('spark://')}: Connection refused"
    )


@pytest.mark.parametrize(("words", "shown"), [([], ["warn"]), (["--all"], ["ok", "warn"])])
def test_what_is_wrong_is_shown_as_soon_as_it_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], shown: list[str]
) -> None:
    before = list[str]()

    def checks(*_: object) -> Iterator[Check]:
        yield ok("java", "21")
        yield Check("http", "warn", "0.0.0.0", "listen on 127.0.0.1")
        before.append(capsys.readouterr().out)
        yield ok("spark", "4.3.0")

    monkeypatch.setattr("trueup.streams.cli.commands.doctor.examined", checks)
    invoke(["doctor", *words, "--set", "cluster.zookeeper=zk:2181"])
    assert [line.split()[0] for line in before[0].splitlines()] == shown
