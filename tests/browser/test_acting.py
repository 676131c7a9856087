"""An operator acts in Chromium: approvals, modes, the hold, the session."""

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import TOKENS, Visit
from tests.unit.cli.fake_engine import FakeEngine
from trueup.state.placement.settings import PlacementSettings
from trueup.state.settings.roles import Role
from trueup.streams.web.access import Access

REFRESHED = "text => document.getElementById('link').textContent.includes(text)"


def placement(engine: FakeEngine) -> PlacementSettings:
    return engine.settings.section(PlacementSettings)


def press(page: Page, label: str) -> None:
    """Press a button, and wait for the question."""
    page.get_by_role("button", name=label, exact=True).first.click()
    page.wait_for_selector("#ask[open]")


def confirm(page: Page) -> None:
    page.get_by_role("button", name="Confirm").click()


def test_an_approval_asks_back_with_what_it_does(visit: Visit, engine: FakeEngine) -> None:
    page = visit("/ledgers/100")
    press(page, "Approve")
    assert (page.inner_text("#ask-says"), engine.approved) == (
        "Trueup writes an under-replication mark for ledger 100. BookKeeper's workers then copy its entries.",
        [],
    )


def test_a_confirmed_approval_is_executed(visit: Visit, engine: FakeEngine) -> None:
    page = visit("/ledgers/100")
    press(page, "Approve")
    confirm(page)
    page.wait_for_function(REFRESHED, arg="Done: Approve")
    assert engine.approved == ["repair-100-v3"]


def test_a_cancelled_approval_changes_nothing(visit: Visit, engine: FakeEngine) -> None:
    page = visit("/ledgers/100")
    press(page, "Approve")
    page.keyboard.press("Escape")
    page.wait_for_selector("#ask:not([open])", state="attached")
    assert engine.approved == []


def test_everything_shown_is_approved_at_once(visit: Visit, engine: FakeEngine) -> None:
    page = visit("/plan")
    press(page, "Approve these 17")
    confirm(page)
    page.wait_for_function(REFRESHED, arg="Done: Approve these 17")
    assert len(engine.approved) == 17


def test_a_keyboard_is_enough_to_approve(visit: Visit, engine: FakeEngine) -> None:
    page = visit("/ledgers/100")
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Approve":
            break
    page.keyboard.press("Enter")
    page.wait_for_selector("#ask[open]")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_function(REFRESHED, arg="Done: Approve")
    assert engine.approved == ["repair-100-v3"]


def test_the_question_begins_at_cancel(visit: Visit) -> None:
    page = visit("/ledgers/100")
    press(page, "Approve")
    assert page.evaluate("document.activeElement.id") == "ask-no"


def test_a_refusal_is_shown_with_its_remedy(visit: Visit, engine: FakeEngine) -> None:
    page = visit("/ledgers/100")
    press(page, "Approve")
    engine.judged = [row for row in engine.judged if row["ledger"] != 100]
    confirm(page)
    page.wait_for_function("() => document.getElementById('ask-problem').textContent")
    assert "run `trueup plan` again" in page.inner_text("#ask-problem")


def test_the_mode_is_changed(visit: Visit, engine: FakeEngine) -> None:
    page = visit("/streams/placement")
    press(page, "enforce")
    confirm(page)
    page.wait_for_selector("button[aria-pressed=true]:has-text('enforce')")
    assert placement(engine).mode == "enforce"


def test_a_stream_is_paused_and_continued(visit: Visit, engine: FakeEngine) -> None:
    page = visit("/streams/placement")
    press(page, "Pause")
    confirm(page)
    page.wait_for_selector("button:has-text('Continue')")
    paused = placement(engine).paused
    press(page, "Continue")
    confirm(page)
    page.wait_for_selector("button:has-text('Pause')")
    assert (paused, placement(engine).paused) == (True, False)


def test_a_hold_is_released(visit: Visit, engine: FakeEngine) -> None:
    engine.state["held"] = "3 of 6 bookies were lost at once"
    page = visit("/streams/placement")
    press(page, "Release the hold")
    says = page.inner_text("#ask-says")
    confirm(page)
    page.wait_for_function(REFRESHED, arg="Done: Release the hold")
    assert (placement(engine).release_hold, "3 of 6 bookies" in says) == (1, True)


class TestCallers:
    """With tokens."""

    @pytest.fixture
    def access(self, callers: Access) -> Access:
        return callers

    @staticmethod
    def log_in(visit: Visit, role: Role, path: str) -> Page:
        page = visit("/")
        page.fill("#token", TOKENS[role])
        page.keyboard.press("Enter")
        page.wait_for_selector("#logout")
        page.goto(page.url.rstrip("/") + path)
        return page

    def test_a_browser_without_a_session_gets_the_form(self, visit: Visit) -> None:
        assert visit("/plan").url.endswith("/login?to=%2Fplan")

    def test_a_login_leads_to_the_page_that_was_asked_for(self, visit: Visit) -> None:
        wanted = "/findings?rule=placement.too-few-racks"
        page = visit(wanted)
        page.fill("#token", TOKENS[Role.VIEWER])
        page.keyboard.press("Enter")
        page.wait_for_selector("#logout")
        assert page.url.endswith(wanted)

    def test_a_wrong_token_is_refused(self, visit: Visit) -> None:
        page = visit("/login")
        page.fill("#token", "wrong")
        page.keyboard.press("Enter")
        page.wait_for_function("() => document.getElementById('problem').textContent")
        assert page.inner_text("#problem") == "This token is not valid."

    def test_an_approver_approves(self, visit: Visit, engine: FakeEngine) -> None:
        page = self.log_in(visit, Role.APPROVER, "/ledgers/100")
        press(page, "Approve")
        confirm(page)
        page.wait_for_function(REFRESHED, arg="Done: Approve")
        assert engine.approved == ["repair-100-v3"]

    def test_a_viewer_cannot_press_a_button(self, visit: Visit) -> None:
        page = self.log_in(visit, Role.VIEWER, "/streams/placement")
        states = [button.is_disabled() for button in page.locator("#controls button").all()]
        assert states == [True] * 4

    def test_an_approver_pauses_and_sets_no_mode(self, visit: Visit) -> None:
        page = self.log_in(visit, Role.APPROVER, "/streams/placement")
        able = [button.inner_text() for button in page.locator("#controls button:enabled").all()]
        assert able == ["Pause"]

    def test_a_session_ends_with_the_logout(self, visit: Visit) -> None:
        page = self.log_in(visit, Role.VIEWER, "/")
        page.click("#logout")
        page.wait_for_url("**/login")
        page.goto(page.url.replace("/login", "/plan"))
        assert page.url.endswith("/login?to=%2Fplan")

    def test_a_session_that_ended_leads_to_the_form(self, visit: Visit, callers: Access) -> None:
        page = self.log_in(visit, Role.VIEWER, "/")
        callers.end(next(one["value"] for one in page.context.cookies() if one["name"] == "trueup-session"))
        page.wait_for_url("**/login?*")
        page.wait_for_selector("text=Your session ended")
        page.fill("#token", TOKENS[Role.VIEWER])
        page.keyboard.press("Enter")
        page.wait_for_selector("#logout")
        assert page.url.endswith("/")
