"""Every page in Chromium: no complaint of the console, no finding of axe, no wider than the screen."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.browser.conftest import Visit
from tests.browser.picture import PICTURE, digest
from tests.unit.cli.fake_engine import FakeEngine

PATHS = (
    "/",
    "/findings",
    "/findings?rule=placement.too-few-racks",
    "/plan",
    "/timeline",
    "/racks",
    "/search?q=127.0",
    "/streams/placement",
    "/streams/replication",
    "/ledgers/21",
    "/ledgers/999",
    "/ledgers/21/deletion",
    "/bookies/127.0.0.5:3181",
    "/links/east-west",
    "/brokers/east/1",
)
SCREENS = ((390, "dark"), (768, "light"), (1600, "light"), (1280, "dark"))
FOR_ADDRESSES = "/ledgers/999"
"""Chromium writes the status 404 of a page to the console."""


@pytest.mark.parametrize("path", PATHS)
def test_a_page_is_accessible_and_the_console_is_silent(visit: Visit, complaints: list[str], path: str) -> None:
    found = []
    for width, scheme in ((390, "dark"), (1280, "light")):
        page = visit(path, width, scheme)
        result = Axe().run(page)
        found += [f"{scheme}: {one['id']}: {one['nodes'][0]['html'][:200]}" for one in result.response["violations"]]
    expected = {"Failed to load resource: the server responded with a status of 404 (NOT FOUND)"}
    assert (found, {*complaints}) == ([], expected if path == FOR_ADDRESSES else set())


@pytest.mark.parametrize("path", PATHS)
def test_a_page_is_no_wider_than_the_screen(visit: Visit, path: str) -> None:
    page = visit(path)
    wide = []
    for width, _ in SCREENS:
        page.set_viewport_size({"width": width, "height": 900})
        wide.append(page.evaluate("document.documentElement.scrollWidth") - width)
    assert wide == [0] * len(SCREENS)


@pytest.mark.parametrize("path", PATHS)
def test_a_page_is_complete_without_scripts(visit: Visit, path: str) -> None:
    with_script, without = visit(path).inner_text("h1"), visit(path, java_script_enabled=False).inner_text("h1")
    assert without == with_script


@pytest.mark.parametrize("path", ["/", "/streams/placement"])
def test_long_names_do_not_widen_a_page(visit: Visit, engine: FakeEngine, path: str) -> None:
    engine.judged[0] |= {"reason": "r" * 400, "stage": "s" * 400}
    engine.members[0] |= {"bookie": f"{'b' * 200}:3181", "rack": "/" + "r" * 200}
    engine.state["problems"] = ["p" * 400]
    page = visit(path, 390)
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_the_picture_of_the_readme_is_up_to_date() -> None:
    assert digest().encode() in PICTURE.read_bytes(), "run `make picture`"


@pytest.mark.parametrize(
    ("path", "order"),
    [
        ("/", ["health", "attention", "counts", "trends"]),
        ("/streams/placement", ["findings", "controls", "course", "counts"]),
    ],
)
def test_on_a_narrow_screen_what_needs_attention_is_first(visit: Visit, path: str, order: list[str]) -> None:
    page = visit(path, 390)
    tops = {name: page.locator(f"#{name}").bounding_box()["y"] for name in order}  # type: ignore[index]
    assert sorted(tops, key=lambda name: tops[name]) == order


def test_each_unit_has_a_chart_with_times_of_24_hours(visit: Visit) -> None:
    page = visit("/streams/placement")
    page.wait_for_selector("#chart canvas")
    charts = page.locator("#chart .uplot").all()
    assert len(charts) == 3
    for chart in charts:
        chart.locator(".u-over").hover()
        assert re.match(r"\d\d:\d\d$", chart.locator(".u-legend .u-value").first.inner_text())


def test_a_chart_shows_the_last_hours(visit: Visit) -> None:
    page = visit("/streams/placement")
    page.wait_for_selector("#chart canvas")
    assert page.inner_text("#chart .u-legend").count("drifted") == 1
