"""trueup sandbox: start in the background, status, faults, repair, and shutdown."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.configuration import load
from trueup.streams.cli.main import invoke

pytestmark = pytest.mark.servers
Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def root(new_root: Callable[[], Path]) -> Iterator[Path]:
    place = new_root() / "sandbox"
    assert invoke(["sandbox", "up", "--dir", str(place), "--racks", "1,1", "--autorecovery", "1", "--detach"]) == 0
    yield place
    invoke(["sandbox", "down", "--dir", str(place)])


def alive(answer: dict[str, Any]) -> set[str]:
    return {name for name, server in answer["servers"].items() if server["alive"]}


def test_everything_is_up(ask: Ask) -> None:
    assert alive(ask("status")) == {"zookeeper", "bookie1", "bookie2", "autorecovery1"}


def test_the_table_names_racks_and_addresses(root: Path, ask: Ask, capsys: pytest.CaptureFixture[str]) -> None:
    bookie = ask("status")["bookies"]["bookie2"]["id"]
    invoke(["sandbox", "status", "--dir", str(root)])
    lines = [line.split()[:4] for line in capsys.readouterr().out.splitlines()]
    assert ["bookie2", "up", "/rack2", bookie] in lines


def test_its_configuration_fits(root: Path, ask: Ask) -> None:
    settings = load(root / "trueup.yaml", {}, {})
    result = ask("status")
    assert (settings.cluster.zookeeper, settings.racks.script) == (result["zookeeper"], result["rack_script"])


def test_doctor_finds_nothing_wrong_with_it(root: Path, ask: Ask) -> None:
    assert invoke(["doctor", "-c", str(root / "trueup.yaml"), "--skip-spark", "--set", "http.port=0"]) == 0


def test_a_rack_is_killed_and_comes_back(ask: Ask) -> None:
    without = alive(ask("kill", "/rack2"))
    assert (alive(ask("start", "/rack2")) - without) == {"bookie2"}


def test_a_name_that_is_none(root: Path, ask: Ask, capsys: pytest.CaptureFixture[str]) -> None:
    code = invoke(["sandbox", "kill", "bookie9", "--dir", str(root)])
    assert (code, "found    'bookie9'" in capsys.readouterr().err) == (1, True)


def test_a_second_one_in_the_same_place_is_refused(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = invoke(["sandbox", "up", "--dir", str(root)])
    assert (code, "sandbox down" in capsys.readouterr().err) == (1, True)


def test_down_ends_every_server(ask: Ask, root: Path) -> None:
    assert alive(ask("down")) == set()
