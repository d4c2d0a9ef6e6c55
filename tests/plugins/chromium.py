"""Debian's Chromium for tests in a browser, driven by Playwright. A browser that is missing fails the test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.plugins.azurite import REPOSITORY

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def chromium_binary() -> str:
    """Return what starts Chromium: the one of `make setup-servers`, or the one on PATH."""
    unpacked = REPOSITORY / ".make" / "chromium" / "chromium"
    found = str(unpacked) if unpacked.exists() else shutil.which("chromium")
    if found is None:
        pytest.fail("Chromium is not installed: make setup-servers")
    return found


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Yield a browser. For one module only: while it runs, so does the event loop of this thread."""
    from playwright.sync_api import sync_playwright

    # In a container Chromium cannot make a sandbox of its own. The pages come from the tests.
    arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_binary(), args=arguments)
        yield browser
        browser.close()
