"""Generated pages match the code, and links resolve."""

import re
from pathlib import Path

import click
import pytest

from tests import structure
from tests.unit.cli.fake_engine import FakeEngine
from trueup.streams.catalog import all_metrics
from trueup.streams.docs import PAGES, write
from trueup.streams.web.api import create_app

ROOT = Path(__file__).parents[3]
TEXTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").glob("*.md")),
]


def anchors(page: Path) -> set[str]:
    """Anchors of the page's headings, as code hosts derive them."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


def links(page: Path) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", page.read_text())


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_agrees_with_the_code(name: str) -> None:
    assert (ROOT / name).read_text() == PAGES[name](), "run: python -m trueup.streams.docs"


def test_writing_the_pages_again_changes_nothing(tmp_path: Path) -> None:
    for name in PAGES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
    assert (sorted(write(tmp_path)), write(tmp_path)) == (sorted(PAGES), [])


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for link in links(page):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_every_path_that_a_contributor_is_pointed_to_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = set(re.findall(r"`((?:\w+/)+[\w.]*)`", text))
    assert (len(named) > 20, sorted(name for name in named if not (ROOT / name).exists())) == (True, [])


def test_every_path_of_the_api_is_in_the_manual() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    paths = create_app(FakeEngine(), all_metrics()).test_client().get("/api").get_json()
    lost = [
        f"{method} `{path}`"
        for path, methods in paths.items()
        for method in methods
        if f"{method} `{path}`" not in text
    ]
    assert lost == []


def test_every_command_in_the_manual_exists() -> None:
    from trueup.streams.cli.main import cli

    text = "\n".join(page.read_text() for page in TEXTS if page.name != "commands.md")
    named = {match.strip() for match in re.findall(r"(?<!from )trueup ([a-z]+(?:-[a-z]+)*)\b", text)}
    assert named - set(cli.list_commands(click.Context(cli))) == set()


def test_every_setting_in_the_manual_exists() -> None:
    from trueup.state.settings.settings import possible_keys
    from trueup.streams.catalog import sections

    named_sections = "cluster|racks|placement|journal|spark|http"
    text = "\n".join(page.read_text() for page in TEXTS)
    named = set(re.findall(rf"`((?:{named_sections})\.[a-z_]+)[`: ]", text))
    assert named - {name for name, _, _ in possible_keys(sections())} == {"spark.log"}  # a file


def test_the_page_of_the_structure_agrees_with_the_imports() -> None:
    assert structure.PAGE.read_text() == structure.page()
