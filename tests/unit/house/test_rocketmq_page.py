"""The tables of docs/rocketmq.md name tests that exist, in every row."""

import re
from pathlib import Path

import pytest

from tests.integration.rocketmq.test_between_systems import TO_KAFKA, TO_ROCKETMQ
from trueup.state.replication.settings import LinkSettings
from trueup.state.settings.rocketmq import RocketMqCluster

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "rocketmq.md").read_text()
NAMED = re.compile(r"`(test_\w+)(?:\[([\w-]+)\])?`")
FILES = ROOT.glob("tests/**/test_*.py")
TESTS = {name for path in FILES for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)}
CASES = {"test_a_record_becomes_this_message": set(TO_ROCKETMQ), "test_a_message_becomes_this_record": set(TO_KAFKA)}


def rows(heading: str) -> list[str]:
    """The rows of the first table under a heading."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\|.*\|$", section, re.MULTILINE)[2:]


@pytest.mark.parametrize("heading", ["Between systems", "What went wrong elsewhere"])
def test_every_row_names_a_test(heading: str) -> None:
    assert (len(rows(heading)) > 10, [row for row in rows(heading) if not NAMED.search(row)]) == (True, [])


def test_every_named_test_exists() -> None:
    assert [name for name, _ in NAMED.findall(PAGE) if name not in TESTS] == []


def test_every_case_between_systems_is_in_the_table() -> None:
    named = {name: {case for test, case in NAMED.findall(PAGE) if test == name} for name in CASES}
    assert named == CASES


def test_settings_beside_those_of_the_merged_replicator_exist() -> None:
    cells = [row.split("|")[2] for row in rows("Move off the merged replicator")]
    named = {word for cell in cells for word in re.findall(r"`([a-z_]+)(?=[`:])", cell)}
    known = {*LinkSettings.__dataclass_fields__, *RocketMqCluster.__dataclass_fields__}
    assert (len(named) > 10, named - known) == (True, set())
