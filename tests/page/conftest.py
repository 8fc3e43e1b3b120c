"""Made runs, a server that shows them, and a browser, where one is found."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from page._asking import Server, served
from page._made import made_runs

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

BROWSERS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
AT_MOST_MS = 120_000  # of anything that is waited for: machines are busy


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of the folder that `made_runs` fills."""
    folder, home = tmp_path_factory.mktemp("page"), Path.cwd()
    os.chdir(folder)
    try:
        made_runs()
    finally:
        os.chdir(home)
    with served(folder / "runs") as found:
        yield found


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A Chromium of this machine's. Skips where there is none, or no Playwright."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None) or _playwrights_own()
    if path is None:
        pytest.skip("needs a Chromium: `make page-tests` installs one")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=path)
        yield opened
        opened.close()


def _playwrights_own() -> str | None:
    """What `make browser` has fetched."""
    return next(map(str, (Path(__file__).resolve().parents[2] / ".browser").glob("chromium-*/chrome-*/chrome")), None)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A tab of its own; a test fails if the page raised or complained in it."""
    context = browser.new_context(viewport={"width": 1300, "height": 900})
    context.set_default_timeout(AT_MOST_MS)
    opened = context.new_page()
    complaints: list[str] = []
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    yield opened
    context.close()
    assert complaints == []
