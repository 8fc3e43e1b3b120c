"""The page's first view of a run that finished, was held up, starts; of several beside each other."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from monitor._made_runs import finished, journal, new_run, row, rows, started, whole_run
from page._asking import Server, served
from page.conftest import AT_MOST_MS
from page.test_in_the_browser import card, opened, told
from volary.run.directory import RunDirectory
from volary.run.tags import Tags, write_tags
from volary.session import Session

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

SLOW = "rank 1 is the slowest"


@pytest.fixture(scope="module")
def looked_at(tmp_path_factory) -> Iterator[Server]:
    """A server of a run with a peak of loss and slow phases, one that starts, and one of each strategy."""
    folder, home = tmp_path_factory.mktemp("looks"), Path.cwd()
    os.chdir(folder)
    try:
        spiky_run()
        with journal(new_run("starting-1")) as run:
            started(run)
        with journal(new_run("growing-1")) as run:
            started(run)
            run.steps(rows(1, 10))
        whole_run("bsp")
        strategy(whole_run("backup"), "backup")
        strategy(whole_run("async"), "async", "strategy.consistency.push_every=3")
        (folder / "good.yaml").write_text("network: softmax\ndata: {source: digits}\n")
        (folder / "anchors.yaml").write_text("network: lenet\ndata: {source: digits}\ntrain: {steps: *none}\n")
        with served(folder / "runs") as found:
            yield found
    finally:
        os.chdir(home)


def spiky_run() -> RunDirectory:
    directory = new_run("spiky-1")
    with journal(directory) as run:
        started(run, steps=100)
        run.steps([*rows(1, 29), *(row(30, rank, 0.0, 0.0, loss=1000.0) for rank in (0, 1)), *rows(31, 100)])
        run.metrics(100, {"accuracy": 0.9})
        run.note(best=0.9, best_step=100)
        for at, share in ((20, 0.34), (60, 0.2)):
            run.event("slow", 1, at, reason=SLOW, cause="data", share=share)
            run.event("not_slow", 1, at + 10)
        finished(run, 100)
    return directory


def strategy(directory: RunDirectory, consistency: str, *more: str) -> None:
    words = [f"strategy.consistency={consistency}", "strategy.exchange=server", *more]
    directory.session.write_text(Session.read(directory.session, words).to_yaml())


def test_a_chart_is_enlarged_and_made_small_again(page, looked_at):
    from playwright.sync_api import expect

    opened(page, looked_at.link, "#/run/spiky-1")
    throughput = card(page, "throughput")
    small = throughput.locator(".u-over").evaluate("one => [one.clientWidth, one.clientHeight]")
    throughput.get_by_role("button", name="enlarge Samples per second of all workers").press("Enter")
    expect(throughput.get_by_role("button", name="close Samples per second of all workers")).to_be_focused()
    larger = """small => { const one = document.querySelector("figure.large .u-over");
        return one.clientWidth > 2 * small[0] && one.clientHeight > 2 * small[1]; }"""
    page.wait_for_function(larger, arg=small)
    page.keyboard.press("Escape")
    throughput.get_by_role("button", name="enlarge Samples").wait_for()
    as_before = "small => document.querySelector('[data-card=throughput] .u-over').clientHeight === small[1]"
    page.wait_for_function(as_before, arg=small)


def spread(plot: Locator) -> float:
    """How much of a chart's height the first tenth of its curves takes."""
    picture = Image.open(io.BytesIO(plot.screenshot())).convert("RGB")
    beginning = np.asarray(picture, dtype=int)[:, : picture.width // 10]
    curve = (beginning.max(axis=2) - beginning.min(axis=2) > 90).any(axis=1)
    return float(curve.sum() / len(curve))


def wait_for_spread(page: Page, wanted: Callable[[float], bool]) -> None:
    plot, until = card(page, "loss").locator(".u-over"), time.monotonic() + AT_MOST_MS / 1000
    while not wanted(spread(plot)):
        assert time.monotonic() < until, spread(plot)
        page.wait_for_timeout(100)  # it draws meanwhile


def test_a_peak_does_not_flatten_the_rest_of_a_chart_and_is_said_below_it(page, looked_at):
    opened(page, looked_at.link, "#/run/spiky-1")
    loss = card(page, "loss")
    assert "greatest 1,000 at 30" in told(loss)
    loss.get_by_text("1 point above, up to 1,000").wait_for()
    wait_for_spread(page, lambda part: part > 0.3)
    loss.get_by_role("button", name="show all").press("Enter")
    wait_for_spread(page, lambda part: part < 0.1)
    loss.get_by_role("button", name="leave peaks out").press("Enter")
    wait_for_spread(page, lambda part: part > 0.3)


def test_a_legend_says_the_newest_step_while_nobody_points_at_the_chart(page, looked_at):
    opened(page, looked_at.link, "#/run/spiky-1")
    told(card(page, "loss"))
    legend = "".join(card(page, "loss").locator(".legend").inner_text().split())
    assert legend.startswith("step100training")


def test_a_legend_goes_on_with_the_run(page, looked_at):
    opened(page, looked_at.link, "#/run/growing-1")
    told(card(page, "loss"))
    with journal(RunDirectory(Path(looked_at.ask("runs")["folder"]) / "growing-1")) as run:
        run.steps(rows(11, 20))
    card(page, "loss").get_by_role("img", name="training: newest 0.1 at step 20").wait_for()
    legend = card(page, "loss").locator(".legend")
    assert "".join(legend.inner_text().split()).startswith("step20training0.1")


def test_a_finished_run_that_was_held_up_is_not_called_faultless(page, looked_at):
    opened(page, looked_at.link, "#/run/spiky-1")
    said = card(page, "wrong").inner_text()
    assert "2 times a worker held the others up, the others waited for up to 34% of a step (see Stragglers)" in said
    assert "communication blocks compute for 12% of a step" in said
    assert "Nothing is wrong" not in said


def test_a_run_that_starts_has_no_empty_charts(page, looked_at):
    opened(page, looked_at.link, "#/run/starting-1")
    page.get_by_text("No step yet.").wait_for()
    assert page.locator("[data-card=loss], [data-card=throughput], [data-card=workers]").count() == 0
    card(page, "session").get_by_text("name: lenet").wait_for()


@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_every_card_fills_its_row(page, looked_at, width):
    """Whatever a run has to show: no row of cards ends before the others do, and no card is filled with white."""
    page.set_viewport_size({"width": width, "height": 900})
    opened(page, looked_at.link, "#/run/spiky-1")
    told(card(page, "phases"))
    edges = page.evaluate("""() => [...document.querySelectorAll(".cards")].flatMap((row) => {
        const right = row.getBoundingClientRect().right;
        const boxes = [...row.children].map((one) => one.getBoundingClientRect());
        return boxes.filter((box, at) => !boxes[at + 1] || boxes[at + 1].top > box.top).map((box) => right - box.right);
    })""")
    assert max(map(abs, edges)) < 2
    white = "one => one.getBoundingClientRect().bottom - one.lastElementChild.getBoundingClientRect().bottom"
    for name in ("loss", "metrics", "rate", "throughput", "phases"):
        assert card(page, name).evaluate(white) < 30, name


def test_the_table_of_runs_says_once_what_all_have_alike_and_fits_a_desktop(page, looked_at):
    page.set_viewport_size({"width": 1440, "height": 900})
    opened(page, looked_at.link, "#/")
    page.get_by_text("all: lenet on digits, 2 workers, codec none, partition data").wait_for()
    heads = page.locator("thead th").evaluate_all("all => all.map((one) => one.dataset.column)")
    assert heads[1:6] == ["id", "state", "best", "elapsed_s", "step"]
    assert "network" not in heads
    assert "tags" not in heads
    cells = page.locator("[data-column=strategy]").all_inner_texts()
    assert "async x server" in cells
    table = page.locator("table.runs")
    assert table.evaluate("one => one.scrollWidth <= one.parentElement.clientWidth")


def test_compared_runs_begin_with_results_and_leave_defaults_of_plugins_out(page, looked_at):
    opened(page, looked_at.link, "#/compare/bsp,backup,async")
    card(page, "compared").get_by_text("Settings that differ").wait_for()
    labels = card(page, "compared").locator("tbody th").all_inner_texts()
    at = labels.index("Settings that differ")
    assert labels[0] == "state"
    assert "validation accuracy" in labels[:at]
    assert set(labels[at + 1 :]) == {"strategy.consistency", "strategy.exchange", "strategy.consistency.push_every"}
    top = [card(page, name).bounding_box() for name in ("compared", "loss")]
    assert top[0] is not None
    assert top[1] is not None
    assert top[0]["y"] < top[1]["y"]


def test_compared_runs_are_hidden_and_smoothed_in_all_charts(page, looked_at):
    opened(page, looked_at.link, "#/compare/backup,spiky-1")
    loss = card(page, "loss")
    assert "spiky-1: newest 0.02 at step 100" in told(loss)
    page.get_by_role("checkbox", name="backup").press("Space")
    loss.get_by_role("img", name="Training loss. spiky-1: newest").wait_for()
    card(page, "throughput").get_by_role("img", name="Throughput, samples per second. spiky-1").wait_for()
    assert card(page, "parallel").locator("polyline").count() == 1
    page.get_by_role("checkbox", name="backup").press("Space")
    loss.get_by_role("img", name="Training loss. backup: newest").wait_for()
    page.get_by_role("slider", name="Smooth").fill("0.9")
    loss.get_by_role("img", name="greatest 1").wait_for()
    assert "greatest 1,000 at 30" not in told(loss)


def test_a_new_run_begins_with_a_session_that_is_valid_and_a_broken_one_is_named_with_its_line(page, looked_at):
    from playwright.sync_api import expect

    opened(page, looked_at.link, "#/new")
    choice = page.get_by_role("combobox", name="Session file")
    expect(choice).to_have_value("good.yaml")
    choice.select_option("anchors.yaml")
    page.get_by_text("anchors.yaml:3:").wait_for()


def test_tags_are_a_column_once_a_run_has_some(page, looked_at):
    directory = RunDirectory(Path(looked_at.ask("runs")["folder"]) / "bsp")
    write_tags(directory, Tags(("kept",)))
    try:
        opened(page, looked_at.link, "#/")
        page.get_by_role("row").filter(has_text="kept").wait_for()
    finally:
        write_tags(directory, Tags())
