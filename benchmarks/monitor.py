"""What does watching cost, and how soon is something seen?

    python benchmarks/monitor.py [--quick] [--only NAME] [--json FILE]

`rows`: steps of workers, of 15 figures each, that the driver's journal takes in a second of one core, beside what
SQLite takes of them without the journal's groups; `events`: named events with two figures. 256 a commit: as many as a
worker's beat brings of a thousand steps a second.
`events-step`: time of one core that a worker spends on recording a step of five phases with 10 events.
`paint-run`: from opening the link of a run of 10 million points (--quick: 1 million) in a fresh tab until its loss is
drawn. `paint-runs`: of the table of 1,000 runs (--quick: 200) until there are rows.
`ready-run`: from starting the server until the loss of that run is drawn, beside TensorBoard, from starting it until it
has the newest step of the same curve, a value for each of our steps.
`paint-metrics`: as `paint-run`, of a run with 10,000 metrics, until one of them is drawn too. `scroll-lanes`: with the
timeline of 64 workers in view, the longest frame of 95 in 100 while the page is scrolled. `update`: from the moment at
which a step is in the run until the page shows it. `watched`: steps a second of a training while a tab looks at it,
over those before and after; the training has a core of its own, and Chromium's drawing and the server the others.
`watched-cpu`, beside it: the same of steps in a second of processor time, of driver and worker.
`memory`: what the server takes at most in all of this. The peer is the bound that is wanted, where no other is named.

Painting needs a Chromium and Playwright. TENSORBOARD_PYTHON names a Python that has TensorBoard; without it `ready-run`
is left out.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import psutil
from playwright.sync_api import Browser, sync_playwright

from _monitor_data import WORKERS, event_files, large_run, many_runs
from _monitor_live import run_of_metrics, run_of_ranks, scrolled_ms, update_s, watched
from _report import Row, arguments, report
from volary.run.database.journal import STEP_FIELDS, Journal, StepRow
from volary.run.database.traffic import Traffic
from volary.run.directory import RunDirectory
from volary.train.recording.recorder import STEP_PHASES, Recorder

NAMES = (
    "rows",
    "events",
    "events-step",
    "paint-run",
    "paint-runs",
    "ready-run",
    "memory",
    "paint-metrics",
    "scroll-lanes",
    "update",
    "watched",
)
BROWSERS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
TURNS = 5
TOGETHER = 256
AT_MOST_S = 900
DRAWN = "[data-card=loss] [role=img] canvas"
PAINTED, LIVE = NAMES[3:7], NAMES[7:]


def main() -> None:
    """Measure what was asked for."""
    options = arguments(__doc__, NAMES)
    rows = []
    if options.wants("rows"):
        turns = [(_rows_per_s(), _sqlite_rows_per_s()) for _ in range(TURNS)]
        ours, alone = (median(turn) for turn in zip(*turns, strict=True))
        peer = f"the bound; SQLite alone {alone:,.0f}"
        rows.append(Row("rows", ours, "rows/s", peer, 200_000, ours / 200_000, "at least 1", "higher"))
    if options.wants("events"):
        rows.append(_bound("events", median(_events_per_s() for _ in range(TURNS)), "events/s", 200_000, "higher"))
    if options.wants("events-step"):
        rows.append(_bound("events-step", median(_step_s() for _ in range(TURNS)) * 1e6, "us", 50, "lower"))
    if any(map(options.wants, LIVE)):
        with tempfile.TemporaryDirectory() as folder:
            rows += _live(Path(folder), options.wants, 3 if options.quick else 11)
    if any(map(options.wants, PAINTED)):
        with tempfile.TemporaryDirectory() as folder:
            found = _painted(Path(folder), 10**6 if options.quick else 10**7, 200 if options.quick else 1000)
        rows += [row for row in found if options.wants(row.name)]
    report(rows, options.json)


def _bound(name: str, value: float, unit: str, bound: float, better: str) -> Row:
    wanted = "at least 1" if better == "higher" else "at most 1"
    return Row(
        name, value, unit, "the bound", bound, value / bound, wanted, "higher" if better == "higher" else "lower"
    )


def _events_per_s(count: int = 40_000) -> float:
    made = [("something", i % WORKERS, 1 + i // WORKERS, {"share": 0.25, "number": i}) for i in range(count)]
    return count / _spent_s(lambda journal, at: journal.events(made[at : at + TOGETHER]), count)


def _rows_per_s(count: int = 40_000) -> float:
    made = _step_rows(count)
    return count / _spent_s(lambda journal, at: journal.steps(made[at : at + TOGETHER]), count)


def _sqlite_rows_per_s(count: int = 40_000) -> float:
    """The same rows into a table of the same columns and key, by `executemany` and nothing else."""
    made = [tuple(row) for row in _step_rows(count)]
    with tempfile.TemporaryDirectory() as folder:
        database = sqlite3.connect(Path(folder) / "plain.sqlite", isolation_level=None)
        database.executescript(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"
            f"CREATE TABLE steps ({', '.join(STEP_FIELDS)}, PRIMARY KEY (step, rank)) WITHOUT ROWID"
        )
        before = time.process_time()
        for at in range(0, count, TOGETHER):
            database.execute("BEGIN IMMEDIATE")
            database.executemany(
                f"INSERT INTO steps VALUES ({', '.join('?' * len(STEP_FIELDS))})", made[at : at + TOGETHER]
            )
            database.execute("COMMIT")
        spent = time.process_time() - before
        database.close()
    return count / spent


def _step_rows(count: int) -> list[StepRow]:
    values = (1.0, 32, 2.0, 0.05, 0.1, 0.003, 0.03, 0.045, 0.012, 0.006, 1000, 1000)
    return [StepRow(1 + i // WORKERS, i % WORKERS, float(i), *values) for i in range(count)]


def _spent_s(write: Callable[[Journal, int], None], count: int) -> float:
    """Seconds of a core for so many, written a part at a time."""
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "run.sqlite")
        journal.start_attempt(0)
        before = time.process_time()
        for at in range(0, count, TOGETHER):
            write(journal, at)
        spent = time.process_time() - before
        journal.close()
    return spent


def _step_s(steps: int = 2000, events: int = 10) -> float:
    recorder = Recorder(0)
    before = time.thread_time()
    for step in range(steps):
        recorder.begin_step()
        for phase in STEP_PHASES:
            recorder.enter(phase)
        for number in range(events):
            recorder.event("something", number=number)
        traffic = (Traffic("none", "ring", step, step, 2 * step),)
        recorder.end_step(epoch=0.0, samples=32, loss=1.0, lr=0.1, traffic=traffic)
    spent = time.thread_time() - before
    recorder.take()
    return spent / steps


def _live(folder: Path, wants: Callable[[str], bool], pairs: int) -> list[Row]:
    run_of_metrics(folder)
    run_of_ranks(folder)
    rows = []
    with _chromium() as browser, _served(folder) as (link, _):
        if wants("paint-metrics"):
            drawn = "[data-card=metrics] [role=img] canvas"
            spent = median(_paint_s(browser, f"{link}#/run/metrics", drawn) for _ in range(TURNS))
            rows.append(_bound("paint-metrics", spent, "s", 1.0, "lower"))
        if wants("scroll-lanes"):
            frame_ms = median(scrolled_ms(browser, link) for _ in range(TURNS))
            rows.append(_bound("scroll-lanes", frame_ms, "ms", 33.4, "lower"))
        if wants("update"):
            rows.append(_bound("update", update_s(browser, link, RunDirectory(folder / "metrics")), "s", 1.0, "lower"))
    if wants("watched"):
        all_cores = os.sched_getaffinity(0)
        core = min(all_cores)
        os.sched_setaffinity(0, (all_cores - {core}) or all_cores)
        with _chromium() as browser:
            found = watched(browser, folder, _served, pairs, core)
        os.sched_setaffinity(0, all_cores)
        for name, ratios in zip(("watched", "watched-cpu"), zip(*found, strict=True), strict=True):
            print(f"{name}: {len(ratios)} windows from {min(ratios):.4f} to {max(ratios):.4f}", file=sys.stderr)
            rows.append(_bound(name, median(ratios), "of it", 0.99, "higher"))
    return rows


@contextmanager
def _chromium() -> Iterator[Browser]:
    path = next(found for name in BROWSERS if (found := shutil.which(name)))
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path)
        yield browser
        browser.close()


def _painted(folder: Path, points: int, runs: int) -> list[Row]:
    large_run(folder / "large", points)
    many_runs(folder / "many", runs)
    with _chromium() as browser:
        turns = [_turn(browser, folder) for _ in range(TURNS)]
    one, table, ready, memory = (median(turn[part] for turn in turns) for part in range(4))
    rows = [
        _bound("paint-run", one, "s", 1.0, "lower"),
        _bound("paint-runs", table, "s", 1.0, "lower"),
        _bound("memory", memory, "MiB", 200, "lower"),
    ]
    if python := os.environ.get("TENSORBOARD_PYTHON"):
        event_files(python, folder / "events", points // WORKERS)
        theirs, their_memory = _tensorboard(python, folder / "events", points // WORKERS)
        peer = f"TensorBoard, {their_memory:.0f} MiB"
        rows.append(Row("ready-run", ready, "s", peer, theirs, ready / theirs, "at most 1", "lower"))
    return rows


def _turn(browser: Browser, folder: Path) -> tuple[float, float, float, float]:
    """Seconds to the run's first paint, to the table's, to the run's from the server's start; MiB of the servers."""
    began = time.perf_counter()
    with _served(folder / "large") as (link, server):
        one = _paint_s(browser, f"{link}#/run/large", DRAWN)
        ready, memory = time.perf_counter() - began, server.memory_info().rss
    with _served(folder / "many") as (link, server):
        table = _paint_s(browser, link, "tbody tr")
        time.sleep(3)  # until all runs are read
        memory = max(memory, server.memory_info().rss)
    return one, table, ready, memory / 2**20


def _paint_s(browser: Browser, link: str, what: str) -> float:
    context = browser.new_context(viewport={"width": 1300, "height": 900})
    page = context.new_page()
    began = time.perf_counter()
    page.goto(link)
    page.locator(what).first.wait_for(timeout=1000 * AT_MOST_S)
    page.evaluate("new Promise((then) => requestAnimationFrame(() => requestAnimationFrame(then)))")
    spent = time.perf_counter() - began
    context.close()
    return spent


@contextmanager
def _served(folder: Path) -> Iterator[tuple[str, psutil.Process]]:
    command = [sys.executable, "-m", "volary", "ui", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip(), psutil.Process(process.pid)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _tensorboard(python: str, folder: Path, steps: int) -> tuple[float, float]:
    """Seconds until it has the newest step, and MiB of it and its children then."""
    command = [python, "-m", "tensorboard.main", "--logdir", str(folder), "--port", "0", "--reload_interval", "1"]
    with tempfile.TemporaryFile("w+") as said:
        began = time.perf_counter()
        process = subprocess.Popen(command, stderr=said, stdout=said)
        try:
            while time.perf_counter() - began < AT_MOST_S:
                time.sleep(0.2)
                said.seek(0)
                address = next((word for word in said.read().split() if word.startswith("http://")), None)
                if address and _newest(address) == steps:
                    parts = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
                    return time.perf_counter() - began, sum(part.memory_info().rss for part in parts) / 2**20
            raise TimeoutError(f"TensorBoard has not read {steps} steps in {AT_MOST_S} s")
        finally:
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()
            process.wait()


def _newest(address: str) -> int:
    try:
        with urllib.request.urlopen(f"{address}data/plugin/scalars/scalars?run=.&tag=loss", timeout=60) as answer:
            return int(json.load(answer)[-1][1])
    except (urllib.error.URLError, OSError, ValueError, LookupError):
        return 0


if __name__ == "__main__":
    main()
