"""Load of a page on a run that trains, or on a very large one: for benchmarks/monitor.py."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median

import psutil
from playwright.sync_api import Browser, Page

from volary.run.database.journal import Journal, StepRow
from volary.run.database.reader import RunReader
from volary.run.database.spans import Span
from volary.run.directory import RunDirectory
from volary.session import Session

METRICS = 10_000
RANKS = 64
CHUNKS = 20  # of a worker's step, on the wire
WINDOW_S = 4.0
_SCROLL = """() => new Promise((done) => {
    const gaps = [];
    let before = null;
    const frame = (now) => {
        if (before !== null) gaps.push(now - before);
        before = now;
        window.scrollBy(0, 12);
        if (gaps.length < 120) requestAnimationFrame(frame); else done(gaps);
    };
    requestAnimationFrame(frame);
})"""
_SESSION = """\
network: lenet
data: {source: digits, batch_size: 64}
train: {steps: 1000000}
evaluate: {every: never}
checkpoint: {every: never}
run: {name: it}
"""


def run_of_metrics(folder: Path) -> None:
    """A run with METRICS metrics of ten steps."""
    with _made(folder, "metrics", 1) as journal:
        for step in range(1, 11):
            journal.metrics(step, {f"layer/{number:05d}/norm": number / step for number in range(METRICS)})


def run_of_ranks(folder: Path) -> None:
    """A run of RANKS workers, one step of which is recorded in full."""
    with _made(folder, "ranks", RANKS) as journal:
        for rank in range(RANKS):
            kinds = [("phase", "forward", 0.0, 0.03, 0), ("phase", "backward", 0.03, 0.08, 0)]
            kinds += [
                (kind, f"{chunk}.weight", 0.03 + chunk * 0.002, 0.04 + chunk * 0.002, 4096)
                for chunk in range(CHUNKS)
                for kind in ("ready", "exchange", "update")
            ]
            journal.spans(Span(rank, 5, kind, name, 1e9 + at, 1e9 + to, size) for kind, name, at, to, size in kinds)


@contextmanager
def _made(folder: Path, name: str, workers: int) -> Iterator[Journal]:
    session = Session(network="lenet", data={"source": "digits"}, strategy={"workers": workers})
    directory = RunDirectory.create(folder, name, "", session.to_yaml())
    journal = Journal(directory.database)
    journal.start_attempt(0)
    journal.note(state="finished", workers=workers, started_at=1e9, ended_at=1e9 + 60, steps_done=10, metric="accuracy")
    journal.steps(_row(step, rank) for step in range(1, 11) for rank in range(workers))
    yield journal
    journal.close()


def _row(step: int, rank: int) -> StepRow:
    return StepRow(step, rank, 1e9 + step, 0.1, 32, 2.0 / step, 0.05, 0.1, 0.003, 0.03, 0.045, 0.012, 0.006, 1000, 1000)


def scrolled_ms(browser: Browser, link: str) -> float:
    """The time that 95 % of frames take at most, while the page is scrolled from the timeline's first lane on."""
    page = browser.new_page(viewport={"width": 1300, "height": 900})
    page.goto(f"{link}#/run/ranks")
    timeline = page.locator("[data-card=timeline]")
    timeline.scroll_into_view_if_needed()
    timeline.locator("rect").first.wait_for()
    gaps = sorted(page.evaluate(_SCROLL))
    page.close()
    return float(gaps[int(0.95 * len(gaps))])


def update_s(browser: Browser, link: str, directory: RunDirectory, times: int = 10) -> float:
    """From writing a step until the page of its run shows it; the median of some."""
    page = browser.new_page(viewport={"width": 1300, "height": 900})
    page.goto(f"{link}#/run/{directory.name}")
    page.get_by_text(re.compile(r"^step 10\b")).wait_for()
    journal = Journal(directory.database)
    journal.continue_attempt()
    journal.note(state="running")
    spent = []
    for step in range(11, 11 + times):
        began = time.perf_counter()
        journal.steps([_row(step, 0)])
        page.get_by_text(re.compile(rf"^step {step}\b")).wait_for()
        spent.append(time.perf_counter() - began)
    journal.close()
    page.close()
    return median(spent)


def watched(
    browser: Browser, folder: Path, serve: Callable[[Path], object], times: int, core: int
) -> list[tuple[float, float]]:
    """Steps of a training while a tab looks at it, over those of the same one before and after: a second, and a second
    of processor time that its driver and its worker took, which does not count what others take of the core.

    core: that the training has for itself; the caller, with server and browser, is to have others.
    """
    (folder / "session.yaml").write_text(_SESSION)
    command = [sys.executable, "-m", "volary", "train", "session.yaml"]
    others = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    training = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.sched_setaffinity(0, others)
    directory = RunDirectory(folder / "runs" / "it")
    try:
        while not directory.database.exists() or _step(directory) < 20:
            time.sleep(0.1)
        parts = [psutil.Process(pid) for pid in _pids(directory)]
        with serve(folder / "runs") as (link, _server):  # type: ignore[attr-defined]
            windows = [_window(parts)]
            for _ in range(times):
                page = _looking(browser, link)
                _keep_to(others)
                windows.append(_window(parts))
                page.close()
                windows.append(_window(parts))
        time.sleep(WINDOW_S)  # until all steps of these are in the run
        ended_at = _ends_of_steps(directory)
    finally:
        training.terminate()
        training.wait()
    rates = [_steps_per_s(ended_at, began, ended) for began, ended, _ in windows]
    by_cpu = [rate * (ended - began) / spent for rate, (began, ended, spent) in zip(rates, windows, strict=True)]
    return list(zip(_over_those_beside(rates), _over_those_beside(by_cpu), strict=True))


def _over_those_beside(rates: list[float]) -> list[float]:
    return [2 * rates[at] / (rates[at - 1] + rates[at + 1]) for at in range(1, len(rates), 2)]


def _looking(browser: Browser, link: str) -> Page:
    page = browser.new_page(viewport={"width": 1300, "height": 900})
    page.goto(f"{link}#/run/it")
    page.locator("[data-card=loss] [role=img] canvas").first.wait_for()
    return page


def _keep_to(cores: set[int]) -> None:
    """Server and browser, which started on these cores: without a GPU Chromium draws by a thread on every core."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error, ProcessLookupError):  # ended meanwhile
            for thread in process.threads() if set(process.cpu_affinity()) == cores else ():
                os.sched_setaffinity(thread.id, cores)


def _window(parts: list[psutil.Process]) -> tuple[float, float, float]:
    """From when to when, and the processor time that these processes took."""
    began, before = time.time(), _cpu_s(parts)
    time.sleep(WINDOW_S)
    return began, time.time(), _cpu_s(parts) - before


def _cpu_s(parts: list[psutil.Process]) -> float:
    return sum(sum(part.cpu_times()[:2]) for part in parts)


def _pids(directory: RunDirectory) -> list[int]:
    with RunReader(directory) as reader:
        return [int(pid) for pid in json.loads(reader.info()["pids"])]


def _ends_of_steps(directory: RunDirectory) -> list[float]:
    with RunReader(directory) as reader:
        return [row.ended_at for row in reader.steps()]


def _steps_per_s(ended_at: list[float], began: float, ended: float) -> float:
    """Between the first and the last step that ended within."""
    within = [at for at in ended_at if began <= at <= ended]
    return (len(within) - 1) / (within[-1] - within[0])


def _step(directory: RunDirectory) -> int:
    with RunReader(directory) as reader:
        return reader.last_step()
