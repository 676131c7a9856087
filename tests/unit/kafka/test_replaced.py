"""Files of a section security that are replaced while clients use them."""

from pathlib import Path

import pytest

from trueup.connectors.replaced import Replaced, state_of


def test_a_file_that_is_written_again_is_noticed_once(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("one")
    replaced = Replaced({"sasl.password.file": str(file), "tls.ca": "system", "sasl.username": "u"})
    before = replaced.renewed(object)
    file.write_text("another")
    assert (before, replaced.renewed(lambda: "new"), replaced.renewed(object)) == (None, "new", None)


def test_a_client_that_could_not_be_made_is_made_at_the_next_call(tmp_path: Path) -> None:
    file = tmp_path / "key.pem"
    replaced = Replaced({"tls.key": str(file)})
    file.write_text("half a")
    with pytest.raises(FileNotFoundError):
        replaced.renewed((tmp_path / "none").read_text)
    assert replaced.renewed(lambda: "new") == "new"


def test_a_file_that_is_renamed_into_place_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    (tmp_path / "b").write_text("two")
    replaced = Replaced({"tls.key": str(tmp_path / "a")})
    (tmp_path / "b").replace(tmp_path / "a")
    assert replaced.renewed(lambda: "new") == "new"


def test_a_missing_file_is_no_error(tmp_path: Path) -> None:
    replaced = Replaced({"tls.certificate": str(tmp_path / "none")})
    (tmp_path / "none").write_text("now")
    assert replaced.renewed(lambda: "new") == "new"


def test_a_file_that_becomes_readable_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "key.pem"
    file.write_text("key")
    file.chmod(0)
    before = state_of(file)
    file.chmod(0o600)
    assert state_of(file) != before
