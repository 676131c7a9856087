"""`trueup support bundle` against an HTTP server with an in-memory cluster."""

import json
import tarfile
from pathlib import Path

from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_engine import FakeEngine
from trueup.state.common.errors import Retry


def contents(place: Path) -> dict[str, str]:
    """The files of a bundle, without their common folder."""
    with tarfile.open(place) as made:
        files = {member.name.partition("/")[2]: made.extractfile(member) for member in made.getmembers()}
        return {name: file.read().decode() for name, file in files.items() if file}


def test_it_has_what_the_application_shows(run: Run, tmp_path: Path) -> None:
    place = tmp_path / "bundle.tar.gz"
    assert run("support", "bundle", "--to", str(place)).code == 0
    found = contents(place)
    listed = json.loads(run("get", "bookies", "-o", "json").out)
    assert (json.loads(found["bookies.json"]), "trueup_" in found["metrics.txt"]) == (listed, True)


def test_only_its_owner_reads_it(run: Run, tmp_path: Path) -> None:
    place = tmp_path / "bundle.tar.gz"
    run("support", "bundle", "--to", str(place))
    assert place.stat().st_mode & 0o777 == 0o600


def test_a_file_that_exists_is_kept(run: Run, tmp_path: Path) -> None:
    place = tmp_path / "bundle.tar.gz"
    place.write_text("mine")
    assert (run("support", "bundle", "--to", str(place)).code, place.read_text()) == (1, "mine")


def test_a_part_that_cannot_be_read_is_an_error_beside_the_others(run: Run, engine: FakeEngine, tmp_path: Path) -> None:
    def rows(*_: object) -> None:
        raise Retry("the list", "no response", "retry")

    engine.rows = rows  # type: ignore[method-assign,assignment]
    place = tmp_path / "bundle.tar.gz"
    run("support", "bundle", "--to", str(place), "--log", str(tmp_path / "missing"))
    found = contents(place)
    errors = json.loads(found["errors.json"])
    assert ({"bookies.json", "trueup.log"} <= set(errors), "status.json" in found) == (True, True), errors


def test_the_end_of_a_log_is_added(run: Run, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("first\nlast\n")
    place = tmp_path / "bundle.tar.gz"
    run("support", "bundle", "--to", str(place), "--log", str(tmp_path / "log"))
    assert contents(place)["trueup.log"] == "first\nlast\n"
