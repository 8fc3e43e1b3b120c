"""A run that trains in one terminal is followed, listed and ended from others."""

from __future__ import annotations

import csv
import io
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE

import pytest
from rich.console import Console

from monitor._made_runs import finished, journal, new_run, started, whole_run
from volary.monitor.tables.top import Top, drawing
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory

NETWORK = """\
import time

from torch import nn


class Net(nn.Sequential):
    def __init__(self, classes):
        super().__init__(nn.Flatten(), nn.Linear(784, classes))

    def forward(self, x):
        time.sleep(0.02)  # it trains while others speak, and leaves them the processor
        return super().forward(x)
"""
SESSION = (
    "network: net.py:Net\n"
    "data: {source: digits, batch_size: 16}\n"
    "train: {steps: 100000}\n"
    "evaluate: {every: never}\n"
    "checkpoint: {every: 10000 steps}\n"
    "run: {name: it}\n"
)


def wait_until(condition: Callable[[], bool], at_most_s: float = 120) -> None:
    until = time.monotonic() + at_most_s
    while not condition():
        assert time.monotonic() < until, "waited too long"
        time.sleep(0.05)


@dataclass
class Said:
    status: int
    out: str
    err: str


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def said(home: Path) -> Iterator[dict[str, Said]]:
    """Each terminal's output of one run: the one in which it trained, and those that watched, listed and stopped it."""
    (home / "session.yaml").write_text(SESSION)
    (home / "net.py").write_text(NETWORK)

    def terminal(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "volary", *words]
        return subprocess.Popen(command, cwd=home, stdout=PIPE, stderr=PIPE, text=True)

    def ended(process: subprocess.Popen[str]) -> Said:
        out, err = process.communicate(timeout=200)
        return Said(process.returncode, out, err)

    def steps() -> int:
        if not (home / "runs" / "it").exists():
            return 0
        with RunReader(RunDirectory(home / "runs" / "it")) as reader:
            return reader.last_step()

    training = terminal("train", "session.yaml", "--log", "csv")
    others: list[subprocess.Popen[str]] = []
    try:
        wait_until(lambda: steps() >= 3 or training.poll() is not None)
        watching, leaving = terminal("watch", "it"), terminal("watch", "it")
        others += [watching, leaving]
        assert watching.stdout is not None
        assert leaving.stdout is not None
        first, _ = watching.stdout.readline(), leaving.stdout.readline()
        leaving.send_signal(signal.SIGINT)
        left = ended(leaving)
        saved, changed = ended(terminal("save", "it")), ended(terminal("change", "it", "optimizer.lr=0.002"))
        refused = ended(terminal("change", "it", "train.steps=5", "optimizer.lr=0.1"))
        listed, removed = ended(terminal("top", "--json")), ended(terminal("rm", "it", "--yes"))
        stopped = ended(terminal("stop", "it"))
        watched = ended(watching)
        yield {
            "train": ended(training),
            "watch": Said(watched.status, first + watched.out, watched.err),
            "left": left,
            "top": listed,
            "rm": removed,
            "save": saved,
            "change": changed,
            "refused": refused,
            "stop": stopped,
        }
    finally:
        for process in (training, *others):
            process.kill()
            process.communicate()


def test_a_stopped_run_saves_and_says_how_to_resume_in_both_terminals(said, home):
    assert (said["stop"].status, said["train"].status) == (0, 130), said["train"].err
    step = RunReader(RunDirectory(home / "runs" / "it"))
    with step as reader:
        last, state = reader.last_step(), reader.state()
    assert state == "stopped"
    assert (home / "runs" / "it" / "checkpoints" / f"step-{last:08d}").is_dir()
    for terminal in ("train", "stop", "watch"):
        assert f"resume from step {last}: volary resume it" in said[terminal].out, terminal
    assert "stopping after this step" in said["train"].out
    assert not (home / "runs" / "it" / "stop.json").exists()


def test_a_checkpoint_is_written_when_it_is_asked_for(said, home):
    assert said["save"].status == 0, said["save"].err
    (step,) = re.fullmatch(r"checkpoint of step (\d+)\n", said["save"].out).groups()
    directory = RunDirectory(home / "runs" / "it")
    with RunReader(directory) as reader:
        assert int(step) in [event.step for event in reader.events(kind="checkpoint")]
    assert "asked to write a checkpoint" in said["train"].out


def test_the_learning_rate_changes_while_the_run_trains_and_stays_so(said, home):
    assert said["change"].status == 0, said["change"].err
    (step,) = re.fullmatch(
        r"step (\d+): optimizer.lr is 0.002 from here on; it was 0.01\n", said["change"].out
    ).groups()
    directory = RunDirectory(home / "runs" / "it")
    with RunReader(directory) as reader:
        rates = {row.step: row.lr for row in reader.steps()}
    assert (rates[int(step)], rates[int(step) + 1], set(rates.values())) == (0.01, 0.002, {0.01, 0.002})
    assert "\n  lr: 0.002\n" in directory.session.read_text()
    with RunReader(directory) as reader:
        assert int(step) in [event.step for event in reader.events(kind="checkpoint")], "a resumed run begins with it"


def test_what_cannot_change_while_a_run_trains_is_refused(said):
    assert said["refused"].status == 2
    assert "train.steps: cannot change while the run trains; accepted: optimizer.lr, or to stop" in said["refused"].err


def test_who_watches_sees_the_run_to_its_end_and_learns_how_it_ended(said):
    watched = said["watch"]
    assert watched.status == 130
    assert "run it: 1 worker" in watched.out
    assert "stopped   at step" in watched.out


def test_who_looks_away_does_not_end_the_run(said):
    assert said["left"].status == 0
    assert said["left"].err == "it continues; to end it: volary stop it\n"
    assert "stopped" not in said["left"].out


def test_every_step_was_copied_to_the_logger_beside_the_run(home, said):
    with RunReader(RunDirectory(home / "runs" / "it")) as reader:
        last = reader.last_step()
    with (home / "runs" / "it" / "csv" / "steps.csv").open(newline="") as file:
        assert [int(row["step"]) for row in csv.DictReader(file)] == list(range(1, last + 1))


def test_a_run_under_way_is_listed_with_how_far_it_is(said):
    (run,) = json.loads(said["top"].out)
    assert run["run"].endswith("runs/it")
    assert run["step"] >= 3
    assert run["steps_planned"] == 100000
    assert run["samples_per_s"] > 0


def test_a_run_under_way_is_not_removed(said):
    assert said["rm"].status == 2
    assert "is running; end it first: volary stop" in said["rm"].err


def test_a_run_that_nobody_runs_is_neither_stopped_nor_waited_for(volary):
    whole_run("a")
    said = volary("stop", "a")
    assert said.status == 2
    assert "nobody runs" in said.err
    said = volary("watch", "a")
    assert said.status == 0
    assert "finished  at step 46" in said.out
    assert "no run is under way" in volary("top").out


def test_who_watches_a_run_that_failed_learns_why_with_its_exit_code(volary):
    directory = new_run("a")
    with journal(directory) as run:
        started(run)
        run.note(error="NotFinite", exit_code=6)
        finished(run, 7, "failed", "the loss of rank 0 is NaN at step 7")
    said = volary("watch", "a")
    assert said.status == 6
    assert said.err == "the loss of rank 0 is NaN at step 7\n"


def test_top_lists_runs_one_level_below_too_and_lets_go_of_those_that_ended(tmp_path):
    whole_run("ended")
    (tmp_path / "runs" / "sweep").mkdir()
    inner = whole_run("inner")
    inner.path.rename(tmp_path / "runs" / "sweep" / "inner")
    inner = RunDirectory(tmp_path / "runs" / "sweep" / "inner")
    top = Top(Path("runs"))
    with inner.lock():
        (found,) = top.look()
        row = top.row(found)
        assert row[:3] == ("sweep/inner", "46/46", "100%")
        screen = Console(file=io.StringIO(), width=100)
        screen.print(drawing([row]))
        header, line = screen.file.getvalue().splitlines()
        assert header.split()[:4] == ["run", "step", "done", "left"]
        assert line.startswith("sweep/inner  46/46  100%")
    assert top.look() == []
    top.close()
