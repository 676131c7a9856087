"""The pages in headless Chromium, served by a scripted engine."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from tests.browser.scene import everything
from tests.unit.cli.fake_engine import FakeEngine
from trueup.state.settings.roles import Role
from trueup.state.settings.tokens import line_of
from trueup.streams.catalog import all_metrics
from trueup.streams.web.access import Access, TokenFile
from trueup.streams.web.api import create_app, serve

TOKENS = {role: f"token-of-{role.text}" for role in Role}
WAIT_MS = 60_000
"""Sufficient on a machine with several times the load that it can handle."""
Visit = Callable[..., Page]


@pytest.fixture
def engine() -> FakeEngine:
    return everything()


@pytest.fixture
def access() -> Access | None:
    """Callers are not authenticated; tests with callers override it."""
    return None


@pytest.fixture
def callers(tmp_path: Path) -> Access:
    file = tmp_path / "tokens"
    file.write_text("".join(f"{line_of(role.text, role, token)}\n" for role, token in TOKENS.items()))
    return Access(TokenFile(file), lambda _: None)


@pytest.fixture
def url(engine: FakeEngine, access: Access | None) -> Iterator[str]:
    server = serve(create_app(engine, all_metrics(), access), "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.port}"
    server.stop()


@pytest.fixture
def complaints() -> list[str]:
    """What Chromium's console shows."""
    return []


@pytest.fixture
def visit(chromium: Browser, url: str, complaints: list[str]) -> Iterator[Visit]:
    """Opens a path in a window of its own."""
    contexts: list[BrowserContext] = []

    def opened(path: str, width: int = 1280, scheme: str = "light", **options: bool) -> Page:
        context = chromium.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,  # type: ignore[arg-type]
            **options,  # type: ignore[arg-type]
        )
        contexts.append(context)
        context.set_default_timeout(WAIT_MS)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"{url}{path}")
        return page

    yield opened
    for context in contexts:
        context.close()
