"""A report is one file: it opens from disk, without a server, and has the run's numbers in it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from monitor._made_runs import new_run, whole_run
from page._made import SLOW, failed_run, slow_run
from volary.cli.command.main import run as volary
from volary.page.report.html import report_page
from volary.page.report.markdown import report_markdown
from volary.run.directory import RunDirectory

if TYPE_CHECKING:
    from playwright.sync_api import Request


def test_a_report_opens_from_disk_and_shows_the_runs_numbers(page):
    slow_run()
    assert volary(["report", "slow-1"]) == 0
    asked: list[str] = []

    def asks(request: Request) -> None:
        asked.append(request.url)

    page.on("request", asks)
    page.goto(Path("runs/slow-1/report.html").absolute().as_uri())
    page.get_by_role("heading", level=1, name="slow-1 stopped").wait_for()
    assert SLOW in page.locator("[data-card=wrong]").inner_text()
    loss = page.locator("[data-card=loss]").get_by_role("img")
    loss.wait_for()
    assert "training: newest 0.02 at step 100" in (loss.get_attribute("aria-label") or "")
    for name, text in (
        ("workers", "130 ms"),
        ("timeline", "sent to received"),
        ("communication", "quicker than as it is"),
        ("metrics", "2 of 2"),
        ("staleness", "40 counted"),
        ("session", "name: lenet"),
        ("logs", "Nothing was printed"),
        ("ranks", "2 workers"),
    ):
        card = page.locator(f"[data-card={name}]")
        card.scroll_into_view_if_needed()
        card.get_by_text(text).first.wait_for()
    page.locator("[data-card=phases]").get_by_role("combobox").select_option("rank 1")
    page.locator("[data-card=phases]").get_by_role("img", name="forward: newest 130 ms").wait_for()
    page.get_by_role("button", name="zoom in").click()
    page.get_by_text("steps 26 to 75").wait_for()
    assert page.get_by_role("button", name="Delete").count() == 0
    page.remove_listener("request", asks)
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []


@pytest.mark.slow  # a tab more; tests/page/test_in_the_browser.py compares runs
def test_a_report_of_several_runs_begins_with_them_side_by_side(page):
    for made in (whole_run("a"), slow_run()):
        assert made.path.is_dir()
    assert volary(["report", "a", "slow-1", "--out", "both.html"]) == 0
    page.goto(Path("both.html").absolute().as_uri())
    page.get_by_role("heading", level=1, name="2 runs").wait_for()
    page.get_by_text("Settings that differ").wait_for()
    page.locator("[data-card=metric-accuracy]").get_by_role("img", name="slow-1: newest 0.8 at step 100").wait_for()
    page.get_by_role("link", name="slow-1").click()
    page.get_by_role("heading", level=1, name="slow-1 stopped").wait_for()


def test_what_a_run_says_of_itself_cannot_become_a_part_of_the_page(page):
    directory = new_run("evil")
    words = "</script><script>document.title = 'taken'</script><!-- <img src=x onerror=alert(1)>"
    directory.log(0).write_text(words)
    Path("evil.html").write_bytes(report_page([directory]))
    page.goto(Path("evil.html").absolute().as_uri())
    page.locator("[data-card=logs]").scroll_into_view_if_needed()
    page.locator("[data-card=logs]").get_by_text(words).wait_for()
    assert page.title() != "taken"


def test_a_report_does_not_hold_the_runs_key():
    directory = whole_run("a")
    assert directory.key().hex() not in report_page([directory]).decode()


def test_markdown_has_the_figures_and_what_is_wrong():
    text = report_markdown([slow_run()])
    assert "| best | accuracy 0.8 at step 100 |" in text
    assert f"- step 40: {SLOW}" in text
    assert "| 100 | 0.8 | 0.6 |" in text
    assert "| rank 1 | 200 | 3 | 130 | 45 | 12 | 6 | 1000 B |" in text
    both = report_markdown([RunDirectory("runs/slow-1"), whole_run("a")])
    assert both.startswith("# Runs compared\n\n|  | slow-1 | a |\n")


def test_markdown_takes_what_a_run_says_for_text():
    text = report_markdown([failed_run()])
    assert re.search(r"^- my\\_net.py:15 in forward", text, re.MULTILINE)


def test_a_report_of_several_runs_has_its_markdown_beside_it(capsys):
    whole_run("a"), whole_run("b")
    assert volary(["report", "a", "b", "--out", "both.html"]) == 0
    assert Path("both.html").read_text().startswith("<!doctype html>")
    assert Path("both.md").read_text().startswith("# Runs compared\n\n|  | a | b |\n")
    assert volary(["report", "a", "b", "--out", "other.md"]) == 0
    assert not Path("other.html").exists()
    Path("both.html").unlink()
    assert volary(["report", "a", "b", "--out", "both.html"]) == 2
    assert "both.md exists already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("a", "b"), "--out"),
        (("a", "--out", "x.pdf"), "accepted: a name that ends with .html or .md"),
        (("a", "--out", "there.md"), "exists already"),
    ],
)
def test_a_report_is_refused_in_a_sentence(words, why, capsys):
    whole_run("a"), whole_run("b")
    Path("there.md").touch()
    assert volary(["report", *words]) == 2
    assert why in capsys.readouterr().err
