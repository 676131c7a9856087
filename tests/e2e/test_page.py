"""An operator works with the page of a running application in Chromium, on a real cluster. The tests depend on their
order."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.e2e.trueup import SETTINGS, WAIT_S, Trueup, on_one_rack
from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.writer import LedgerWriter

pytestmark = [pytest.mark.servers, pytest.mark.release]
LEDGERS, ENTRIES = 6, 20


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., SandboxCluster]) -> SandboxCluster:
    return start_cluster(racks={"/rack1": 2, "/rack2": 2}, settings=SETTINGS)


@pytest.fixture(scope="module")
def narrow(cluster: SandboxCluster, writer: LedgerWriter) -> list[int]:
    return on_one_rack(cluster, writer, LEDGERS, ENTRIES)


@pytest.fixture(scope="module")
def trueup(cluster: SandboxCluster, narrow: list[int], new_root: Callable[[], Path]) -> Iterator[Trueup]:
    with Trueup(cluster, new_root()) as made:
        made.start()
        made.wait("the narrow ledgers to be found", lambda status: status["counts"]["drifted"] == LEDGERS)
        yield made


@pytest.fixture(scope="module")
def page(chromium: Browser, trueup: Trueup) -> Page:
    made = chromium.new_page()
    made.set_default_timeout(WAIT_S * 1_000)
    made.goto(trueup.url)
    return made


def press(page: Page, label: str) -> None:
    page.get_by_role("button", name=label).first.click()
    page.get_by_role("button", name="Confirm").click()


def test_the_map_shows_what_the_loss_of_a_rack_would_cost(page: Page, trueup: Trueup) -> None:
    page.goto(f"{trueup.url}/racks")
    page.wait_for_selector("#map td.bad")
    lost = {
        row.locator("th").inner_text(): row.locator("td").nth(1).inner_text()
        for row in page.locator("#map tbody tr:not(.members)").all()
    }
    assert lost == {"/rack1": str(LEDGERS), "/rack2": "0"}


def test_the_mode_is_set_on_the_page(page: Page, trueup: Trueup) -> None:
    page.goto(f"{trueup.url}/streams/placement")
    press(page, "approve")
    page.wait_for_selector("button[aria-pressed=true]:has-text('approve')")
    assert trueup.json("config", "get", "placement.mode") == "approve"


def test_one_repair_is_approved_on_the_page_of_its_ledger(page: Page, trueup: Trueup, narrow: list[int]) -> None:
    page.goto(f"{trueup.url}/ledgers/{narrow[0]}")
    page.wait_for_selector("button:has-text('Approve')")
    press(page, "Approve")
    page.wait_for_selector("#done b:text-is('safe')")
    assert [ledger for ledger in narrow if ledger not in trueup.findings()] == narrow[:1]


def test_all_that_is_shown_is_approved_on_the_plan(page: Page, trueup: Trueup) -> None:
    page.goto(f"{trueup.url}/plan")
    page.wait_for_selector(f"text=Approve these {LEDGERS - 1}")
    press(page, f"Approve these {LEDGERS - 1}")
    status = trueup.wait("the ledgers to be true", lambda status: status["counts"]["true"] == LEDGERS)
    assert status["counts"]["drifted"] == 0


def test_the_timeline_names_the_caller(page: Page, trueup: Trueup) -> None:
    page.goto(f"{trueup.url}/timeline?q=approved")
    callers = {row.inner_text().rpartition(" by ")[2] for row in page.locator("ol.rows .facts").all()}
    assert callers == {"anonymous at 127.0.0.1"}


def test_after_the_repairs_the_loss_of_a_rack_costs_no_ledger(page: Page, trueup: Trueup) -> None:
    def lost() -> set[str]:
        page.goto(f"{trueup.url}/racks")
        rows = page.locator("#map tbody tr:not(.members)").all()
        return {row.locator("td").nth(1).inner_text() for row in rows if row.locator("td").count() > 1}

    trueup.until("a later reading of the ledgers", lambda: lost() == {"0"})
    assert page.locator("#map td.bad").count() == 0
