"""The verbs on a real run: trained, stopped, resumed, evaluated."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from volary.run.directory import RunDirectory
from volary.run.reader import RunReader
from volary.session import Session

STEPS = 120


@pytest.fixture
def session() -> str:
    Path("session.yaml").write_text(
        "network: lenet\n"
        "data: {source: digits, batch_size: 64}\n"
        f"train: {{steps: {STEPS}}}\n"
        "evaluate: {every: 40 steps}\n"
        "checkpoint: {every: 40 steps}\n"
        "strategy: {workers: 2}\n"
        "run: {name: it}\n"
    )
    return "session.yaml"


def wait_until(condition: Callable[[], bool], at_most_s: float = 60) -> None:
    until = time.monotonic() + at_most_s
    while not condition():
        assert time.monotonic() < until, "waited too long"
        time.sleep(0.02)


def last_step() -> int:
    if not Path("runs/it/run.sqlite").exists():
        return 0
    with RunReader(RunDirectory("runs/it")) as reader:
        return reader.last_step()


def test_check_prints_a_session_that_reads_back_equal_and_what_it_comes_to(session, volary):
    said = volary("check", session, "optimizer.lr=0.02")
    assert said.status == 0, said.err
    Path("resolved.yaml").write_text(said.out)
    assert Session.read("resolved.yaml") == Session.read(session, ["optimizer.lr=0.02"])
    assert "# steps per epoch: 23" in said.err
    told = json.loads(volary("check", session, "--json").out)
    assert told["settings"]["strategy.workers"] == 2
    assert told["summary"]["steps"] == STEPS


def test_a_run_is_trained_shown_evaluated_and_exported(session, volary, fresh):
    said = fresh("-m", "volary", "train", session, "--json")
    assert said.status == 0, said.err
    result = json.loads(said.out)
    assert (result["state"], result["step"]) == ("finished", STEPS)
    assert "step 80: accuracy" in said.err
    assert "next      volary show it" in said.err
    measured = json.loads(volary("evaluate", "it", "--checkpoint", "last", "--json").out)
    assert (measured["step"], measured["metrics"]) == (STEPS, pytest.approx(result["metrics"]))
    shown = json.loads(volary("show", "it", "--verify", "--json").out)
    assert [row["step"] for row in shown["metrics"]] == [40, 80, 120]
    assert {row["condition"] for row in shown["checkpoints"]} == {"whole"}
    assert [worker["rank"] for worker in shown["workers"]] == [0, 1]
    assert shown["session"]["network"] == "lenet"
    assert volary("export", "it", "-o", "w.safetensors").status == 0
    again = volary("train", session)
    assert again.status == 2
    assert "exists already" in again.err
    over = volary("resume", "it")
    assert over.status == 2
    assert "finished" in over.err


def test_ctrl_c_stops_with_a_checkpoint_and_resume_goes_on(session, fresh):
    command = subprocess.Popen(
        [sys.executable, "-m", "volary", "train", session], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        wait_until(lambda: last_step() >= 3 or command.poll() is not None)
        command.send_signal(signal.SIGINT)
        out, err = command.communicate(timeout=60)
    finally:
        command.kill()
        command.wait()
    assert (command.returncode, err) == (130, ""), out
    assert "next      volary resume it" in out
    stopped_at = last_step()
    assert 3 <= stopped_at < STEPS
    said = fresh("-m", "volary", "resume", "it", "--quiet", "--json")
    assert said.status == 0, said.err
    assert json.loads(said.out)["step"] == STEPS
    with RunReader(RunDirectory("runs/it")) as reader:
        assert [event.data["from_step"] for event in reader.events(kind="resumed")] == [stopped_at]
