"""The page follows the application, and does not disturb its reader."""

import pytest

from tests.browser.conftest import Visit
from tests.browser.scene import everything
from tests.unit.cli.fake_engine import FakeEngine
from tests.unit.cli.fake_rows import healthy_status
from trueup.streams.catalog import all_metrics
from trueup.streams.web.api import create_app, serve


def test_title_and_icon_follow_the_state(visit: Visit, engine: FakeEngine) -> None:
    page = visit("/")
    before = page.title(), page.get_attribute("#icon", "href")
    engine.state = healthy_status()
    engine.judged = []
    page.wait_for_function("() => document.title.startsWith('Healthy')")
    after = page.get_attribute("#icon", "href")
    assert (before[0], before[1] == after, after and "18794e" in after) == ("Attention · east – Trueup", False, True)


def test_what_the_reader_opened_and_typed_stays(visit: Visit, engine: FakeEngine) -> None:
    page = visit("/ledgers/21")
    page.click("summary")
    engine.done[0]["detail"] = "ar2 took it"
    page.wait_for_selector("text=ar2 took it")
    assert page.locator("details").get_attribute("open") is not None


def test_typed_text_stays(visit: Visit, engine: FakeEngine) -> None:
    page = visit("/timeline")
    page.fill("#timeline input[name=q]", "half a wo")
    engine.done[0]["detail"] = "ar2 took it"
    page.wait_for_selector("text=ar2 took it")
    assert page.input_value("#timeline input[name=q]") == "half a wo"


def test_the_focus_stays(visit: Visit, engine: FakeEngine) -> None:
    page = visit("/ledgers/100")
    page.get_by_role("button", name="Approve", exact=True).focus()
    engine.done[0] |= {"ledger": 100, "detail": "ar2 took it"}
    page.wait_for_selector("text=ar2 took it")
    assert page.evaluate("document.activeElement.textContent") == "Approve"


class TestOutages:
    """The application stops while its page is open."""

    @pytest.fixture
    def url(self) -> str:
        return "about:blank"

    def test_without_a_response_nothing_is_green(self, visit: Visit) -> None:
        engine = everything()
        engine.state = healthy_status()
        server = serve(create_app(engine, all_metrics()), "127.0.0.1", 0)
        page = visit("")
        page.goto(f"http://127.0.0.1:{server.port}/")
        server.stop()
        page.wait_for_selector("body.old")
        shown = (
            page.title()[0],
            page.get_attribute("#icon", "href"),
            page.locator("main").evaluate("main => getComputedStyle(main).filter"),
        )
        assert (shown[0], "888" in (shown[1] or ""), shown[2]) == ("?", True, "grayscale(1)")

    def test_the_page_goes_on_when_the_application_is_back(self, visit: Visit) -> None:
        engine = everything()
        server = serve(create_app(engine, all_metrics()), "127.0.0.1", 0)
        page = visit("")
        page.goto(f"http://127.0.0.1:{server.port}/")
        server.stop()
        page.wait_for_selector("body.old")
        again = serve(create_app(engine, all_metrics()), "127.0.0.1", server.port)
        page.wait_for_selector("body:not(.old)")
        title = page.title()
        again.stop()
        assert title == "Attention · east – Trueup"
