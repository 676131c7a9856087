"""The ports that a broker of this machine had in its last run."""

from pathlib import Path

import pytest

from trueup.connectors.embedded.kafka import _recorded


@pytest.mark.parametrize("content", ["", "{", "null", '["x"]', "[70000]", "7"])
def test_a_file_without_ports_ends_no_start(tmp_path: Path, content: str) -> None:
    file = tmp_path / "ports.json"
    file.write_text(content)
    assert _recorded(file) == []


def test_ports_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "ports.json"
    file.write_text("[19092, 19093]")
    assert _recorded(file) == [19092, 19093]
