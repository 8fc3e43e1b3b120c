"""Sweeps: several runs at once, one of which fails; stopped and resumed; refused before anything starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from statistics import mean, stdev

import pytest

from volary.driver.sweep import SweepRunner, plan
from volary.driver.tasks.rungs import rungs
from volary.monitor.tables.comparison import compared
from volary.monitor.wording import number
from volary.run.database.journal import Journal
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory
from volary.session import Session

SESSION = (
    "network: lenet\n"
    "data: {source: digits, batch_size: 16}\n"
    "train: {steps: 6}\n"
    "evaluate: {every: 6 steps}\n"
    "checkpoint: {every: never}\n"
)


THREE = ["optimizer.lr=0.1,0.2,0.3", "--stop-early"]


def runs(folder: str) -> dict[str, str]:
    found = {}
    for run in RunDirectory.all_in(Path(folder)):
        with RunReader(run) as reader:
            found[run.name] = reader.state()
    return found


def test_a_sweep_runs_two_at_once_outlives_a_failed_one_and_ends_with_the_best(volary):
    Path("session.yaml").write_text(SESSION)
    said = volary("sweep", "session.yaml", "optimizer.lr=0.01,1e30", "--at-once", 2, "--name", "rates")
    assert said.status == 1
    assert runs("runs/rates") == {"lr-0.01": "finished", "lr-1e-30": "failed"}
    header, first, second, best = said.out.splitlines()
    assert header.split() == ["optimizer.lr", "state", "best", "accuracy", "time"]
    assert (first.split()[:2], second.split()[1]) == (["0.01", "finished"], "failed")
    assert best == "best: optimizer.lr=0.01, in runs/rates/lr-0.01"
    assert "2 runs in runs/rates, 2 at a time\n" in said.err
    assert "lr-1e-30: the loss of rank 0 is" in said.err
    assert "1 of 2 runs did not finish" in said.err
    assert Session.read("runs/rates/lr-0.01/session.yaml").optimizer.lr == 0.01

    again = volary("sweep", "rates", "--json")
    assert again.status == 1
    assert "queued" not in again.err, "what has finished, and what has failed, stays as it is"
    (top, _) = json.loads(again.out)["combinations"]
    assert (top["settings"], top["states"]) == ({"optimizer.lr": "0.01"}, {"lr-0.01": "finished"})


@pytest.mark.slow  # two runs
def test_a_sweep_of_data_in_folds_trains_each_and_shows_their_mean_and_spread(volary):
    Path("session.yaml").write_text(SESSION.replace("batch_size: 16", "batch_size: 16, folds: 2"))
    said = volary("sweep", "session.yaml", "--name", "crossed", "--at-once", 2)
    assert said.status == 0, said.err
    assert runs("runs/crossed") == {"fold-0": "finished", "fold-1": "finished"}
    header, row, *_ = said.out.splitlines()
    assert header.split() == ["runs", "best", "accuracy", "+-", "time"]
    assert row.startswith("2 finished")
    best = [compared(run).best.values["accuracy"] for run in RunDirectory.all_in(Path("runs/crossed"))]
    assert row.split()[2:4] == [number(mean(best)), number(stdev(best))]


@pytest.mark.slow  # four lives
def test_a_sweep_that_is_stopped_saves_what_is_under_way_and_is_resumed(volary):
    Path("session.yaml").write_text(SESSION.replace("steps: 6", "steps: 100"))
    command = [sys.executable, "-m", "volary", "sweep", "session.yaml", "optimizer.lr=0.01,0.02", "--name", "rates"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as sweep:
        try:
            until = time.monotonic() + 120
            while not _steps("runs/rates/lr-0.01"):
                assert time.monotonic() < until
                assert sweep.poll() is None
                time.sleep(0.05)
            sweep.send_signal(signal.SIGINT)
            out, err = sweep.communicate(timeout=120)
        finally:
            sweep.kill()
    assert sweep.returncode == 130
    assert "resume: volary sweep runs/rates" in err
    assert "not begun" in out
    assert runs("runs/rates") == {"lr-0.01": "stopped"}
    said = volary("sweep", "runs/rates")
    assert said.status == 0, said.err
    assert "1/2 lr-0.01 queued to be resumed" in said.err
    assert runs("runs/rates") == {"lr-0.01": "finished", "lr-0.02": "finished"}


@pytest.mark.slow  # of the ends of a sweep the rarest
def test_a_sweep_whose_runs_have_all_finished_when_it_is_stopped_is_finished():
    Path("session.yaml").write_text(SESSION)

    def tell(sentence: str) -> None:
        if sentence == "2/2 lr-0.02 queued":
            os.kill(os.getpid(), signal.SIGINT)
        if sentence.startswith("stopping"):  # said before the run is asked to stop, and it comes to its end meanwhile
            until = time.monotonic() + 300
            while runs("runs/rates").get("lr-0.02") != "finished":
                assert time.monotonic() < until
                time.sleep(0.05)

    SweepRunner(plan(Path("session.yaml"), ["optimizer.lr=0.01,0.02"], 1, "rates"), 1, tell).run()
    assert runs("runs/rates") == {"lr-0.01": "finished", "lr-0.02": "finished"}


def _steps(path: str) -> int:
    if not Path(path).exists():
        return 0
    with RunReader(RunDirectory(path)) as reader:
        return reader.last_step()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["optimizer.lr=0.1"], "a sweep varies something"),
        (["optimizer.lr=0.1,fast"], "with optimizer.lr=fast:\ncommand line: optimizer.lr: is 'fast'"),
        (["optimizer.rl=0.1,0.2"], "optimizer.rl: unknown; Known: lr, momentum"),
        (["optimizer.lr=0.1,0.2", "--at-once", "0"], "--at-once is '0'; accepted: auto, or a whole number"),
        (["optimizer.lr=0.1,0.2", "--name", "a/b"], "--name is 'a/b'; accepted: letters"),
        ([*THREE, "evaluate.every=never"], "evaluate.every is never; accepted: a period"),
        (["optimizer.lr=0.1,0.2", "--stop-early"], "--stop-early keeps one of 3; accepted: 3 combinations or more"),
        ([*THREE, "evaluate.every=3 steps"], "which have 6 steps, and evaluate.every is '3 steps'; accepted: at most"),
        ([*THREE, "evaluate.every=1 epoch"], "evaluate.every is '1 epoch'; accepted: train.epochs"),
        ([*THREE, "train.steps=6,9"], "--stop-early compares runs after the same steps; accepted: train.epochs"),
        ([*THREE, "train.stop_at=2 steps"], "accepted with it: train.stop_at=never"),
        ([*THREE, "data.source=own.py:one_part"], "own.py:one_part: takes no `split`, so there is no validation data"),
    ],
)
def test_a_sweep_that_cannot_be_is_refused_and_leaves_nothing(volary, words, sentence):
    Path("session.yaml").write_text(SESSION)
    Path("own.py").write_text("def one_part():\n    raise AssertionError('nobody calls it')\n")
    said = volary("sweep", "session.yaml", *words)
    assert said.status == 2
    assert sentence in said.err
    assert not list(Path("runs").glob("*/*"))


def test_a_sweep_is_resumed_as_it_is(volary):
    Path("runs/x").mkdir(parents=True)
    Path("runs/x/sweep.json").write_text("{}")
    assert "is resumed as it is" in volary("sweep", "x", "optimizer.lr=1,2").err


def test_values_that_are_drawn_are_the_settings_of_the_runs():
    Path("session.yaml").write_text(SESSION)
    found = plan(Path("session.yaml"), ["optimizer.lr=0.01..1", "train.steps=3..5"], 1, "drawn", 4)
    assert len(found.members) == 4
    for values in found.members.values():
        assert 0.01 <= float(values["optimizer.lr"]) <= 1
        assert values["train.steps"] in ("3", "4", "5")


@pytest.mark.parametrize(
    ("count", "more", "found"),
    [
        (40, {"train": {"epochs": 27}}, ["1 epoch", "3 epochs", "9 epochs"]),
        (9, {"train": {"epochs": 27}}, ["3 epochs", "9 epochs"]),
        (40, {"train": {"epochs": 10}}, ["1 epoch", "3 epochs"]),
        (3, {"train": {"steps": 1000}, "evaluate": {"every": "100 steps"}}, ["300 steps"]),
    ],
)
def test_rungs_are_evaluations_three_times_as_far_apart_from_each_other(count, more, found):
    assert [str(one) for one in rungs([Session(network="lenet", data={"source": "digits"}, **more)], count)] == found


def test_of_nine_runs_the_best_three_go_on_and_of_these_the_best_unless_it_failed():
    Path("session.yaml").write_text(SESSION.replace("steps: 6", "steps: 18", 1).replace("6 steps", "2 steps"))
    rates = [f"0.{number}" for number in range(1, 10)]
    sweep = plan(Path("session.yaml"), [f"optimizer.lr={','.join(rates)}"], 1, "nine", stops_early=True)
    assert [one.at for one in sweep.rungs()] == ["2 steps", "6 steps"]
    for rate, done in zip(rates, [2] * 5 + [6, 6, 18, 1], strict=True):  # as an interrupted sweep leaves them
        run = RunDirectory.create(sweep.folder, f"lr-{rate}", "", sweep.session.read_text())
        with closing(Journal(run.database)) as journal:
            journal.note(best=float(rate), best_step=done, metric="accuracy", higher_is_better=True, steps_done=done)
            state = {1: "failed", 18: "finished"}.get(done, "stopped")
            journal.end(state=state, message="", ended_at=1.0)
    said: list[str] = []
    SweepRunner(sweep, 1, said.append).run()
    assert said == ["3 of 9 runs go on from 2 steps", "1 of 3 runs go on from 6 steps"]
    assert [one.kept for one in sweep.rungs()] == [["lr-0.6", "lr-0.7", "lr-0.8"], ["lr-0.8"]]


@pytest.mark.slow  # five attempts, of which four are a sweep's
def test_a_run_of_a_sweep_that_stops_early_equals_one_of_its_own(volary):
    text = SESSION.replace("steps: 6}\ne", "steps: 9}\nschedule: cosine\ne").replace("6 steps", "3 steps")
    Path("session.yaml").write_text(text)
    said = volary("sweep", "session.yaml", "optimizer.lr=0.0001,0.001,0.05", "--stop-early", "--name", "rates")
    assert said.status == 0, said.err
    assert "1 of 3 runs go on from 3 steps" in said.err
    assert said.out.count("stopped early at 3 steps") == 2
    ended = {"lr-0.05": "finished", "lr-0.001": "stopped", "lr-0.0001": "stopped"}
    assert runs("runs/rates") == ended
    assert volary("train", "session.yaml", "optimizer.lr=0.05", "run.name=alone").status == 0
    for file in ("model.safetensors", "optimizer.pt"):
        parts, whole = (Path("runs", name, "checkpoints/step-00000009", file) for name in ("rates/lr-0.05", "alone"))
        assert parts.read_bytes() == whole.read_bytes()
    assert volary("sweep", "runs/rates").status == 0
    assert runs("runs/rates") == ended
