"""The verbs on a real run: trained, stopped, resumed, evaluated."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from volary.run.checkpoints import Checkpoints
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory
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


@pytest.mark.slow  # tests/docs tries each verb on runs of its own
def test_a_run_is_trained_stopped_resumed_shown_evaluated_and_exported(session, volary, fresh):
    status, result, told = interrupted("train", session, "--json")
    assert (status, result["state"]) == (130, "stopped")
    stopped_at = last_step()
    assert "stopping after this step; Ctrl-C again stops now" in told
    assert f"next      resume from step {stopped_at}: volary resume it" in told
    assert 3 <= result["step"] == stopped_at < STEPS

    said = fresh("-m", "volary", "resume", "it", "--json")
    assert said.status == 0, said.err
    result = json.loads(said.out)
    assert (result["state"], result["step"]) == ("finished", STEPS)
    assert f"resumed from step {stopped_at}" in said.err
    assert f"step {STEPS}: accuracy" in said.err
    assert "next      volary show it" in said.err

    shown = json.loads(volary("show", "it", "--verify", "--json").out)
    assert [row["step"] for row in shown["metrics"]] == [40, 80, 120]
    assert {row["condition"] for row in shown["checkpoints"]} == {"whole"}
    assert [worker["rank"] for worker in shown["workers"]] == [0, 1]
    assert (shown["session"]["network"], shown["state"]) == ("lenet", "finished")

    evaluated = json.loads(volary("evaluate", "it", "--checkpoint", "last", "--json").out)
    assert (evaluated["step"], evaluated["metrics"]) == (STEPS, pytest.approx(result["metrics"]))
    assert volary("export", "it", "-o", "w.safetensors").status == 0

    again, over = volary("train", session), volary("resume", "it")
    assert (again.status, over.status) == (2, 2)
    assert "exists already" in again.err
    assert "finished" in over.err


WALK = {  # by the last step of each part: who keeps what from there on
    4: ("strategy.partition=sharded", "strategy.exchange={name: allreduce, route: ring}"),
    8: ("strategy.partition=data", "strategy.exchange=server"),
    12: (
        "strategy.partition={name: sharded, level: 2}",
        "strategy.exchange={name: allreduce, route: ring}",
        "strategy.workers=3",
    ),
    16: ("strategy.partition=data", "strategy.workers=2"),
    20: ("strategy.partition=sharded", "strategy.exchange={name: allreduce, route: shared}"),
    24: ("strategy.partition=data", "strategy.exchange=server", "strategy.workers=1"),
    28: ("strategy.partition=sharded", "strategy.exchange={name: allreduce, route: ring}", "strategy.workers=2"),
}


@pytest.mark.slow  # eight runs
def test_a_run_is_resumed_with_shares_servers_and_whole_replicas_in_turn_as_if_one_worker_had_trained_it(fresh):
    Path("net.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.layers = nn.Sequential(nn.Linear(6, 33), nn.Tanh(), nn.Linear(33, 4)).double()\n"
        "    def forward(self, x):\n"
        "        return self.layers(x.double())\n"
    )
    Path("adam.yaml").write_text(
        "network: net.py:Net\n"
        "data: {source: {name: synthetic, shape: [6], classes: 4, samples: 95, kind: blobs}, batch_size: 12}\n"
        "optimizer: {name: adam, lr: 0.01}\n"
        "evaluate: {every: never}\n"
        "strategy: {workers: 2}\n"
    )
    alone = ("train.steps=28", "strategy.workers=1", "run.name=alone")
    said = fresh("-m", "volary", "train", "adam.yaml", *alone, "--quiet")
    assert said.status == 0, said.err
    for steps, settings in WALK.items():
        verb = ("train", "adam.yaml", "run.name=it") if steps == 4 else ("resume", "it")
        said = fresh("-m", "volary", *verb, f"train.steps={steps}", *settings, "--quiet")
        assert said.status == 0, (steps, said.err)
    saved = [Checkpoints(RunDirectory(f"runs/{name}").checkpoints).path(28) for name in ("alone", "it")]
    expected, found = (load_file(folder / "model.safetensors") for folder in saved)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-11)


def interrupted(*arguments: str) -> tuple[int, dict[str, Any], str]:
    """The command with Ctrl-C after some steps: its status, its JSON, what it told."""
    command = subprocess.Popen(
        [sys.executable, "-m", "volary", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        wait_until(lambda: last_step() >= 3 or command.poll() is not None)
        command.send_signal(signal.SIGINT)
        out, told = command.communicate(timeout=300)
    finally:
        command.kill()
        command.wait()
    return command.returncode, json.loads(out), told
