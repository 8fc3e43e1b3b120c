"""Made runs, a server that shows them, and a browser, where one is found."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from page._asking import Server, served
from page._made import made_runs

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Error, Page, ViewportSize

BROWSERS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
AT_MOST_MS = 120_000  # of anything that is waited for: machines are busy
SCREEN: ViewportSize = {"width": 1300, "height": 900}


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of the folder that `made_runs` fills; all tests ask it, and none changes a run."""
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
    playwright.expect.set_options(timeout=AT_MOST_MS)
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=path)
        yield opened
        opened.close()


def _playwrights_own() -> str | None:
    """The browser that `make browser` has fetched."""
    return next(map(str, (Path(__file__).resolve().parents[2] / ".browser").glob("chromium-*/chrome-*/chrome")), None)


@pytest.fixture(scope="session")
def tabs(browser: Browser) -> Iterator[Callable[[], Page]]:
    """`tabs()`: the tab of all tests, or another if that was closed. A new one each would take three times as long."""
    context = browser.new_context(viewport=SCREEN)
    context.set_default_timeout(AT_MOST_MS)
    yield lambda: next(iter(context.pages), None) or context.new_page()
    context.close()


@pytest.fixture
def page(tabs: Callable[[], Page]) -> Iterator[Page]:
    """An empty tab, that nobody has given a cookie; a test fails if the page raised or complained in it."""
    opened = tabs()
    opened.context.clear_cookies()
    opened.set_viewport_size(SCREEN)
    opened.emulate_media(color_scheme="light")
    complaints: list[str] = []

    def raised(error: Error) -> None:
        complaints.append(str(error))

    def said(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            complaints.append(message.text)

    opened.on("pageerror", raised)
    opened.on("console", said)
    yield opened
    if not opened.is_closed():
        opened.goto("about:blank")  # before its server is gone: it would ask for it again, and complain
        opened.remove_listener("pageerror", raised)
        opened.remove_listener("console", said)
    assert complaints == []
