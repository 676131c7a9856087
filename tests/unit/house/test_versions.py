"""The matrix of versions and its page."""

from pathlib import Path

import pytest

from tests.versions import LOCKS, page, results
from tests.versions.matrix import MATRIX, WITH_ZOOKEEPER, names, split
from trueup.connectors.embedded.jars import lock_text

REPORT = """<testsuites><testsuite>
<testcase name="test_a_copy[batches-from]"/>
<testcase name="test_a_copy[batches-to]"><failure message="assert 1 == 2&#10;more">long</failure></testcase>
<testcase name="test_a_doctor"><properties><property name="words" value="it lacks x"/></properties></testcase>
<testcase name="test_a_group"/>
</testsuite></testsuites>"""
FIRST = MATRIX["kafka"][0]


def test_the_page_agrees_with_the_results() -> None:
    assert page.PLACE.read_text() == page.rendered(results.kept()), "run: make versions"


@pytest.mark.parametrize("name", names())
def test_every_version_has_a_lock_and_a_suite(name: str) -> None:
    assert (lock_text(name.removesuffix(WITH_ZOOKEEPER)) != "", (LOCKS.parent / f"{split(name)[0]}.py").exists()) == (
        True,
        True,
    )


def test_every_lock_is_of_a_version_that_is_tried() -> None:
    assert sorted(path.stem for path in LOCKS.glob("*.lock") if path.stem not in names()) == []


def test_results_are_of_versions_that_are_tried() -> None:
    assert [name for name in results.kept() if name not in names()] == []


def test_a_test_that_fails_with_one_of_its_parameters_has_failed() -> None:
    found = results.parsed(REPORT)["test_a_copy"]
    assert found == {"failed": ["batches-to"], "why": "assert 1 == 2", "words": ""}


def test_cells_say_what_works_and_what_was_not_tried() -> None:
    lines = page.rendered({f"kafka-{FIRST}": results.parsed(REPORT)}).splitlines()
    found = {line.split(" | ")[0]: line.split(" | ")[1:3] for line in lines if line.startswith("| a ")}
    assert found == {
        "| a copy": ["no", "not tried"],
        "| a doctor": ["in part", "not tried"],
        "| a group": ["yes", "not tried"],
    }


def test_reasons_are_below_the_table() -> None:
    text = page.rendered({f"kafka-{FIRST}": results.parsed(REPORT)})
    assert f"- a copy ({FIRST}): fails with batches-to: `assert 1 == 2`\n- a doctor ({FIRST}): it lacks x" in text


def test_the_suites_are_none_of_those_that_are_collected() -> None:
    assert [*Path(LOCKS.parent).glob("test_*.py")] == []
