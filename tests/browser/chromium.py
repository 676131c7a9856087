"""Headless Chromium of the machine."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
"""Chromium asks nobody but the pages. Its sandbox does not run as root."""


@contextmanager
def launched() -> Iterator[Browser]:
    """A browser that ends with the context."""
    path = shutil.which("chromium")
    assert path, "these tests need Debian's chromium: run `make tools`"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=QUIET)
        yield browser
        browser.close()
