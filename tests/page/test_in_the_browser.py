"""The page in a real Chromium: every panel shows the numbers of its run."""

from __future__ import annotations

import math
import re
import subprocess
import sys
import time
from itertools import combinations, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from monitor._made_runs import whole_run
from page._made import SLOW
from page.conftest import AT_MOST_MS
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Locator, Page


def card(page: Page, name: str) -> Locator:
    """A panel, filled: those out of view are empty."""
    found = page.locator(f"[data-card={name}]")
    found.scroll_into_view_if_needed()
    return found


def told(panel: Locator) -> str:
    """The text by which a chart describes itself to screen readers; it waits until there is some."""
    plot = panel.get_by_role("img").first
    plot.wait_for()
    return plot.get_attribute("aria-label") or ""


PAINTED = """canvas => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const grey = (at) => Math.max(...data.slice(at, at + 3)) - Math.min(...data.slice(at, at + 3)) < 90;
    let found = 0;
    for (let at = 0; at < data.length; at += 4) found += !grey(at);
    return found;
}"""  # pixels that are of a curve


def opened(page: Page, link: str, where: str) -> Page:
    page.goto(link + where)
    page.get_by_role("heading", level=1).wait_for()
    return page


def test_the_link_opens_the_table_of_runs_and_the_token_leaves_the_address(page, server):
    opened(page, server.link, "")
    page.get_by_role("link", name="lenet-digits-1").wait_for()
    assert "token" not in page.url
    text = page.get_by_role("row").filter(has_text="lenet-digits-1").inner_text()
    for part in ("finished", "accuracy 0.9733", "46", "640"):
        assert part in text
    page.get_by_text("all: bsp x allreduce x none x data, lenet on digits, 2 workers").wait_for()
    page.reload()
    page.get_by_role("link", name="sweep/lr-0.1").wait_for()  # the cookie is enough


def test_the_table_is_filtered_and_sorted_with_the_keyboard(page, server):
    from playwright.sync_api import expect

    opened(page, server.link, "")
    rows = page.locator("tbody tr")
    rows.nth(3).wait_for()
    page.get_by_role("searchbox").press_sequentially("failed")
    page.get_by_text("1 of 4 runs").wait_for()
    expect(rows).to_have_count(1)
    page.get_by_role("searchbox").fill("digits-1")
    expect(page.get_by_role("link", name="lenet-digits-1")).to_be_visible()
    expect(page.get_by_role("link", name="Compare")).to_have_count(0)
    page.get_by_role("searchbox").fill("finished")
    together = page.get_by_role("link", name="Compare 2 runs")
    expect(together).to_have_attribute(
        "href", re.compile(r"#/compare/(lenet-digits-1,sweep%2Flr-0\.1|sweep%2Flr-0\.1,lenet-digits-1)$")
    )
    together.click()
    page.get_by_role("heading", level=1, name="2 runs").wait_for()
    page.locator("[data-card=loss]").get_by_role("img", name="sweep/lr-0.1: newest 0.1 at step 20").wait_for()
    page.go_back()
    page.get_by_role("searchbox").fill("")
    page.get_by_role("button", name="best", exact=True).press("Enter")
    head = page.get_by_role("columnheader").filter(has_text="best")
    expect(head).to_have_attribute("aria-sort", "descending")
    expect(rows).to_have_count(4)
    best = rows.locator("[data-column=best]").all_inner_texts()
    assert best[-1] == "\N{EN DASH}"  # what has no value is last, whichever way
    assert best[:-1] == sorted(best[:-1], reverse=True)
    page.get_by_role("button", name="best", exact=True).press("Enter")
    expect(rows.locator("[data-column=best]").first).to_have_text("accuracy 0.8")


def test_one_runs_first_view_says_how_it_goes_and_what_is_wrong(page, server):
    opened(page, server.link, "#/run/slow-1")
    page.get_by_role("heading", level=1, name="slow-1 stopped").wait_for()
    figures = page.locator(".figures").inner_text()
    assert re.search(r"loss\s+0.02\b", figures)
    assert re.search(r"best accuracy\s+0.8 at 100", figures)
    assert re.search(r"communication\s+31 %", figures)
    assert SLOW in card(page, "wrong").inner_text()
    loss = told(card(page, "loss"))
    assert "training: newest 0.02 at step 100, least 0.02 at 100, greatest 2 at 1." in loss
    assert "validation: newest 0.6 at step 100, least 0.6 at 100, greatest 0.9 at 50." in loss
    assert "samples/s: newest 320 at step 100" in told(card(page, "throughput"))
    phases = told(card(page, "phases"))
    assert "forward: newest 80 ms" in phases
    assert "communication: newest 62 ms" in phases
    card(page, "phases").get_by_role("combobox", name="of").select_option("rank 1")
    card(page, "phases").get_by_role("img", name="of rank 1.").wait_for()
    phases = told(card(page, "phases"))
    assert "forward: newest 130 ms" in phases
    assert "communication: newest 12 ms" in phases
    assert "2 workers; rank 0 waits most: 56 % of a step on average." in told(card(page, "ranks"))
    page.get_by_text("steps 1 to 100; showing 100 of 200 points").wait_for()


def test_all_other_panels_show_their_numbers(page, server):
    opened(page, server.link, "#/run/slow-1")
    assert "accuracy: newest 0.8 at step 100, least 0.7 at 50" in told(card(page, "metrics"))
    assert "learning rate: newest 0.05" in told(card(page, "rate"))
    workers = card(page, "workers").get_by_role("row")
    workers.nth(2).wait_for()
    assert [text.strip() for text in workers.nth(2).locator("td").all_inner_texts()] == [
        "rank 1 bee", "200 ms", "", "3 ms", "130 ms", "45 ms", "12 ms", "6 ms", "1000 B", "1000 B", "100",
    ]  # fmt: skip
    timeline = card(page, "timeline")
    assert told(timeline) == "Step 90: 8 lanes over 75 milliseconds"
    spans = timeline.locator("rect title").all_text_contents()
    assert spans.count("exchange 10.weight: 19 ms from 41 ms, 1.5 MiB") == 2
    assert "10.weight" in timeline.get_by_role("table").inner_text()
    communication = card(page, "communication")
    told(communication)
    assert "sent 195.3 KiB and received 195.3 KiB" in communication.inner_text()
    assert (
        "quicker than as it is" in communication.get_by_role("table", name="the way of each layer").first.inner_text()
    )
    assert (
        "A worker sends 1000 B in a step; as 32-bit values these would be 3.9 KiB: 75 % less."
        in communication.inner_text()
    )
    over_time = communication.get_by_role("table", name="the way of each layer at each choice").inner_text()
    assert "10.weight\texact\tfactors" in over_time
    by_way = communication.get_by_role("table", name="what travels by each way").inner_text()
    assert "factors\t1\t1.5 MiB" in by_way
    by_route = communication.get_by_role("table", name="bytes of all workers by codec and route").inner_text()
    assert "none\tring\t117.2 KiB\t117.2 KiB\t234.4 KiB\t\N{EN DASH}" in by_route
    assert "onebit\tto owners and back\t78.1 KiB\t78.1 KiB\t4.9 MiB\t97 %, 32 times fewer" in by_route
    assert "all\t\t195.3 KiB\t195.3 KiB\t5.1 MiB\t93 %, 13.4 times fewer" in by_route
    network = card(page, "network")
    graph = network.get_by_role("listbox", name="Layers of the network by operations")
    graph.wait_for()
    assert "3 layers; 394 k parameters, 8.44 M operations" in network.inner_text()
    graph.get_by_role("option", name="0, Conv2d, operations 576 k").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    graph.get_by_role("option", name="10, Linear, operations 7.86 M", selected=True).wait_for()
    last = re.sub(r"\s+", " ", network.get_by_role("status").inner_text())
    assert "10 Linear, of 0, 1 shape 10 parameters 393 k operations of a sample 7.86 M" in last
    assert "forward of 2 samples 1 ms bytes 1.5 MiB communication 19 ms" in last
    assert "way factors quicker than as it is" in last
    straggler = card(page, "stragglers").get_by_role("row").nth(1).inner_text()
    assert straggler.split("\t")[:4] == ["rank 1", "from 40", "41 %", "data"]
    staleness = card(page, "staleness").inner_text()
    assert "40 counted, mean 0.50, most 2" in staleness
    assert "late: 3" in staleness
    spread = card(page, "histograms")
    assert told(spread) == "weights: at step 100 from -0.3 to 0.3"
    shown = [plot.get_attribute("aria-label") or "" for plot in spread.get_by_role("img").all()]
    assert "gradients of worker 0: at step 100 from -0.3 to 0.4" in shown
    assert any("0.weight: newest 0.002 at step 100" in one for one in shown), shown
    assert "10.weight: a step changes 0.05 of it, far more than 0.001" in spread.inner_text()
    spread.get_by_role("combobox").select_option("10.weight")
    spread.get_by_text("This layer's gradient is written where it travels from").wait_for()
    used = card(page, "usage")
    assert "rank 1: newest 1.5 at" in told(used)
    assert used.locator("canvas").first.evaluate(PAINTED) > 100, "lines, although workers look every two seconds"
    shown = [plot.get_attribute("aria-label") or "" for plot in used.get_by_role("img").all()]
    assert any("Processors busy, by machine of 8. ant: newest 2 at" in one for one in shown), shown
    assert any("Memory in use, by machine of 16.0 GiB. ant: newest 3.0 GiB" in one for one in shown)
    assert any("bee receives: newest 3.8 MiB/s" in one for one in shown)
    assert any("GPU0 busy. ant: newest 87 %" in one for one in shown)
    assert "None yet." in card(page, "checkpoints").inner_text()
    assert SLOW in card(page, "happened").inner_text()
    assert "name: lenet" in card(page, "session").locator("pre").first.inner_text()


def test_the_confusion_matrix_is_a_picture_whose_cells_are_read_by_pointing_and_texts_are_read_by_step(page, server):
    opened(page, server.link, "#/run/slow-1")
    matrix = card(page, "confusion")
    assert told(matrix) == "Confusion matrix of 2 classes: 26 of 30 are right"
    assert matrix.locator("canvas").evaluate(PAINTED) > 1000
    width = matrix.locator("canvas").evaluate("one => one.clientWidth")
    matrix.locator("canvas").hover(position={"x": width - 20, "y": 20})
    matrix.get_by_text("3 of ant are taken for bee: 15 %").wait_for()
    matrix.get_by_text("most frequent mistakes", exact=True).click()
    rows = matrix.get_by_role("row").all_inner_texts()
    assert [row.split("\t") for row in rows[1:]] == [["ant", "bee", "3", "15 %"], ["bee", "ant", "1", "10 %"]]
    texts = card(page, "texts")
    texts.get_by_text("or 100").wait_for()
    texts.get_by_role("slider").fill("0")
    texts.get_by_text("or 50").wait_for()
    opened(page, server.link, "#/run/lenet-digits-1")
    card(page, "metrics")
    assert page.locator("[data-card=confusion]").count() + page.locator("[data-card=texts]").count() == 0


def test_the_first_error_of_the_worker_that_failed_first_stands_above_the_logs(page, server):
    opened(page, server.link, "#/run/failed-1")
    assert "my_net.py:15 in forward" in card(page, "wrong").inner_text()
    logs = card(page, "logs")
    logs.get_by_text("worker-1 on bee failed first, at step 5, in forward").wait_for()
    lines = logs.get_by_role("log").get_by_role("row")
    assert lines.first.inner_text().split("\t") == ["all 2", "loading the data"]
    logs.get_by_role("searchbox").fill("runtimeerror")
    logs.get_by_text("1 of 1 lines").wait_for()
    assert lines.count() == 1


def test_zooming_reads_again_and_all_charts_follow(page, server):
    opened(page, server.link, "#/run/slow-1")
    plot = card(page, "loss").locator(".u-over")
    width = plot.evaluate("plot => plot.clientWidth")
    halfway, later = ({"x": share * width, "y": 50} for share in (0.5, 0.8))
    plot.drag_to(plot, source_position=halfway, target_position=later)  # wherever it is by then
    page.get_by_text(re.compile(r"steps (49|50|51) to (79|80|81|82); showing 3\d of 6\d points")).wait_for()
    page.get_by_role("button", name="all steps").press("Enter")
    page.get_by_text("steps 1 to 100; showing 100 of 200 points").wait_for()
    page.get_by_role("button", name="zoom in").press("Enter")
    page.get_by_text("showing 50 of 100 points").wait_for()
    card(page, "loss").get_by_role("img", name="training: newest 0.02667 at step 75,").wait_for()


def test_a_drag_is_not_lost_when_the_chart_would_be_drawn_anew_meanwhile(page, server):
    opened(page, server.link, "#/run/slow-1")
    loss = card(page, "loss")
    plot = loss.locator(".u-over")
    width = plot.evaluate("plot => plot.clientWidth")
    plot.hover(position={"x": 0.5 * width, "y": 50})
    page.mouse.down()
    loss.get_by_label("log").evaluate("box => box.click()")
    page.emulate_media(color_scheme="dark")
    plot.hover(position={"x": 0.8 * width, "y": 50})
    page.mouse.up()
    page.get_by_text(re.compile(r"steps (49|50|51) to (79|80|81|82);")).wait_for()
    assert loss.get_by_label("log").is_checked()


def test_loss_is_drawn_once_whichever_of_its_curves_comes_first(page, server):
    page.route("**/api/steps*", lambda _: None)  # not answered
    with page.expect_response("**/api/metric?*name=loss*"):
        opened(page, server.link, "#/run/slow-1")
    loss = card(page, "loss")
    loss.get_by_text("reading …").wait_for()
    assert loss.locator(".u-over").count() == 0
    page.unroute("**/api/steps*")
    page.reload()
    assert "training: newest 0.02 at step 100" in told(loss)


@pytest.mark.slow  # a tab more
def test_a_metric_is_found_smoothed_and_drawn_on_a_log_scale(page, server):
    opened(page, server.link, "#/run/slow-1")
    metrics = card(page, "metrics")
    metrics.get_by_role("searchbox").fill("los")
    metrics.get_by_role("combobox").select_option("loss")
    metrics.get_by_role("slider").fill("0.5")
    metrics.get_by_label("log").check()
    metrics.get_by_role("img", name="loss, smoothed: newest 0.7 at step 100").wait_for()


def test_runs_are_chosen_and_compared_over_steps_samples_time_and_bytes(page, server):
    opened(page, server.link, "")
    for name in ("lenet-digits-1", "slow-1"):
        page.get_by_role("checkbox", name=f"compare {name}").press("Space")
    page.get_by_role("link", name="Compare 2 runs").press("Enter")
    page.get_by_role("heading", level=1, name="2 runs").wait_for()
    loss = told(card(page, "loss"))
    assert "lenet-digits-1: newest 0.04348 at step 46, least 0.04348 at 46, greatest 2 at 1." in loss
    assert "slow-1: newest 0.02 at step 100, least 0.02 at 100, greatest 2 at 1." in loss
    assert "slow-1: newest 320 at step 100" in told(card(page, "throughput"))
    assert "slow-1: newest 0.8 at step 100, least 0.7 at 50" in told(card(page, "metric-accuracy"))
    for over, place in (("samples", "samples 6,400"), ("time", "seconds 9.9"), ("bytes", "bytes sent 200,000")):
        page.get_by_role("radio", name=over).check()
        card(page, "loss").get_by_role("img", name=f"slow-1: newest 0.02 at {place}").wait_for()
        card(page, "metric-accuracy").get_by_role("img", name=f"slow-1: newest 0.8 at {place}").wait_for()
    lines = card(page, "parallel")
    axes = "optimizer.lr, training loss, validation accuracy, validation loss"
    lines.get_by_role("img", name=f"Lines of 2 runs through {axes}; the table below has the values").wait_for()
    assert lines.locator("polyline").first.get_attribute("points").startswith("0,0 "), "of the greater learning rate"
    assert lines.locator(".mark").all_inner_texts()[:2] == ["0.02", "0.05"]
    names = lines.locator(".name").evaluate_all("all => all.map((one) => one.getBoundingClientRect().toJSON())")
    assert all(one["right"] <= other["left"] for one, other in pairwise(names)), "they do not overlap"
    marks = lines.locator(".mark").evaluate_all("all => all.map((one) => one.getBoundingClientRect().toJSON())")
    for one, other in combinations(marks, 2):
        assert one["left"] != other["left"] or abs(one["top"] - other["top"]) > 12, "nor do values on one axis"
    rows = card(page, "compared").get_by_role("table").inner_text()
    assert "validation accuracy\t0.9733\t0.8" in rows


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
@pytest.mark.parametrize("width", [390, pytest.param(1300, marks=pytest.mark.slow)])
def test_nothing_is_wider_than_the_screen(page, server, width, scheme):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    for where in ("#/", "#/run/failed-1", "#/run/slow-1"):
        opened(page, server.link, where)
        page.locator("table").first.wait_for(state="attached")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    lanes, ticks = card(page, "timeline").get_by_role("region", name="timeline"), page.locator(".tick:visible")
    ticks.last.wait_for()
    (edge,) = lanes.evaluate_all("all => all.map((one) => one.getBoundingClientRect().right)")
    places = ticks.evaluate_all("all => all.map((one) => one.getBoundingClientRect().toJSON())")
    assert max(one["right"] for one in places) <= edge + 1, "the last moment is seen"
    assert all(one["right"] < other["left"] for one, other in pairwise(places)), "moments do not overlap"
    heads = card(page, "workers").get_by_role("columnheader")
    heads.first.wait_for()
    assert max(heads.evaluate_all("all => all.map((one) => one.clientHeight)")) < 60, "words are not cut into letters"


@pytest.mark.slow  # a tab more: the browser itself complains of what is refused
def test_comparing_with_a_run_that_cannot_be_read_says_so_once(browser, server):
    from playwright.sync_api import expect

    page = browser.new_page()
    page.set_default_timeout(AT_MOST_MS)
    with page.expect_response("**/api/steps?run=gone-1*"), page.expect_response("**/api/compare*"):
        opened(page, server.link, "#/compare/slow-1,gone-1")
    expect(page.get_by_role("alert")).to_have_count(1)
    expect(page.get_by_role("alert")).to_contain_text("gone-1")
    expect(page.get_by_text("reading …")).to_have_count(0)
    page.close()


@pytest.mark.slow  # a tab more
def test_the_page_says_that_its_server_is_gone(browser, tmp_path):
    from page._asking import served
    from page._made import slow_run

    slow_run()
    context = browser.new_context()
    context.set_default_timeout(AT_MOST_MS)
    page = context.new_page()
    with served(Path("runs")) as own:
        opened(page, own.link, "#/run/slow-1")
        told(card(page, "loss"))
    page.get_by_text("The server does not answer").wait_for()
    context.close()


SESSION = """
network: "held.py:Held"
data: {source: digits, batch_size: 64}
optimizer: {name: sgd, lr: 0.01}
train: {steps: 40, trace: 10 steps}
evaluate: {every: 20 steps}
checkpoint: {every: 20 steps}
strategy: {workers: 2, exchange: {name: server, servers: 1}, consistency: ssp}
run: {name: live}
"""
HELD = """
import time
from pathlib import Path

from torch import nn

SEEN = Path(__file__).with_name("seen")


class Held(nn.Sequential):
    def __init__(self, classes):
        super().__init__(nn.Conv2d(1, 4, 5), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 24 * 24, classes))
        self.calls = 0

    def forward(self, x):
        self.calls += self.training
        until = time.monotonic() + 200
        while self.calls == 15 and not SEEN.exists() and time.monotonic() < until:
            time.sleep(0.01)  # until somebody has seen the run train
        return super().forward(x)
"""


def test_a_run_that_trains_is_seen_live_and_every_panel_has_its_real_numbers(page):
    Path("session.yaml").write_text(SESSION)
    Path("held.py").write_text(HELD)
    command = [sys.executable, "-m", "volary", "train", "session.yaml", "--quiet", "--ui"]
    training = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert training.stderr is not None
    try:
        word, link = training.stderr.readline().split()
        assert (word, link.partition("#")[2]) == ("page", "/run/live")
        whole_run("begun-later")  # the link is to the run that was started, not to the newest
        page.goto(link)
        page.get_by_role("heading", level=1, name="live").wait_for()
        page.get_by_text(re.compile(r"step [1-3]?\d of 40")).wait_for()
        Path("seen").touch()
        page.get_by_text("step 40 of 40").wait_for()  # nobody reloaded the page
        page.get_by_role("heading", level=1, name="live finished").wait_for()
        assert_it_shows(page, RunDirectory("runs/live"))
        page.close()  # the page ends with its last tab
        training.communicate(timeout=120)
    finally:
        with training:  # closes its pipes, and waits
            if training.poll() is None:
                training.terminate()
    assert training.returncode == 0


def comes_to(page: Page, name: str, wanted: Callable[[str], bool]) -> None:
    """A chart comes to say what is wanted: what a run has told is drawn a moment later."""
    until = time.monotonic() + AT_MOST_MS / 1000
    while not wanted(words := told(card(page, name))):
        assert time.monotonic() < until, (name, words)
        page.wait_for_timeout(100)  # it draws meanwhile


def newest(page: Page, name: str, label: str, value: float, step: int) -> None:
    """A chart comes to this newest value, in four digits, at this step."""
    expected = (pytest.approx(value, rel=1e-3), step)

    def wanted(words: str) -> bool:
        match = re.search(rf"{label}: newest (\S+) at step ([\d,]+)", words)
        return match is not None and (float(match[1]), int(match[2].replace(",", ""))) == expected

    comes_to(page, name, wanted)


def kib(count: int) -> str:
    """Rounded as the page does it: 24.25 becomes 24.3, and in Python 24.2."""
    return f"{math.floor(count * 10 / 1024 + 0.5) / 10:.1f} KiB"


def assert_it_shows(page: Page, directory: RunDirectory) -> None:
    """Every panel, by what the run itself has recorded."""
    from playwright.sync_api import expect

    with RunReader(directory) as reader:
        rows, metrics, counts = list(reader.steps()), reader.metrics(), reader.counts()
        spans = list(reader.spans(21, 21))
        course = reader.course(1, None, 1000).groups  # workers number contributions of their own
    losses = [(one.loss_sum or 0) / one.count for one in course if one.column == 39]
    newest(page, "loss", "training", sum(losses) / len(losses), 40)
    newest(page, "loss", "validation", metrics["loss"][-1][1], 40)
    comes_to(page, "throughput", lambda words: "samples/s: newest" in words)
    comes_to(page, "phases", lambda words: "backward: newest" in words)
    comes_to(page, "ranks", lambda words: words.startswith("2 workers"))
    newest(page, "metrics", "accuracy", metrics["accuracy"][-1][1], 40)
    comes_to(page, "rate", lambda words: "learning rate: newest 0.01" in words)
    workers = card(page, "workers").get_by_role("row")
    for rank in (0, 1):
        steps = str(sum(row.rank == rank for row in rows))
        expect(workers.nth(1 + rank).locator("td").last).to_have_text(steps)
    timeline = card(page, "timeline")
    timeline.get_by_role("combobox").select_option("21")
    timeline.get_by_role("img", name="Step 21:").wait_for()
    assert spans
    expect(timeline.locator("rect")).to_have_count(len(spans))
    with RunReader(directory) as reader:
        graph = reader.network()
    assert graph is not None
    drawn = card(page, "network").get_by_role("listbox").get_by_role("option")
    expect(drawn).to_have_count(len(graph.layers))
    shown = [one.get_attribute("aria-label") or "" for one in drawn.all()]
    assert [name.split(",")[0] for name in shown] == [one.name for one in graph.layers]
    sent, received = sum(row.sent_bytes for row in rows), sum(row.received_bytes for row in rows)
    card(page, "communication").get_by_text(f"sent {kib(sent)} and received {kib(received)}").wait_for()
    comes_to(page, "usage", lambda words: "Processors busy, by worker. rank 0: newest" in words)
    staleness = [one for one in counts if one.kind == "staleness"]
    counted = sum(one.count for one in staleness)
    mean = sum(one.value * one.count for one in staleness) / counted
    card(page, "staleness").get_by_text(f"{counted} counted, mean {mean:.2f}").first.wait_for()
    kept = card(page, "checkpoints").locator("tbody tr").all_inner_texts()
    assert [int(row.split()[0]) for row in kept] == sorted(
        int(path.name[5:]) for path in directory.checkpoints.glob("step-*")
    )
    assert f"step 40: accuracy {metrics['accuracy'][-1][1]:.4g}" in card(page, "happened").inner_text()
    assert "consistency:\n    name: ssp" in card(page, "session").locator("pre").first.inner_text()
    card(page, "logs").get_by_text("Nothing was printed").wait_for()
