"""The password of the embedded journal, without a broker."""

from pathlib import Path

from trueup.connectors.kafka.journal.embedded import EmbeddedKafka


def password(root: Path) -> str:
    return Path(EmbeddedKafka(root).security["sasl.password.file"]).read_text()


def test_the_password_is_kept(tmp_path: Path) -> None:
    assert password(tmp_path) == password(tmp_path) != ""


def test_a_password_that_was_lost_with_the_power_is_created_again(tmp_path: Path) -> None:
    password(tmp_path)
    (tmp_path / "password").write_text("")
    assert password(tmp_path) != ""
