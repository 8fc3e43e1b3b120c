"""`strategy.recover: memory` in loops of a user's own whose workers take steps of their own between two means."""

from __future__ import annotations

import random
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from faults._own_rounds import trained
from faults._running import VOLARY, events, last_step, running, state
from volary.run.database.reader import RunReader
from volary.train.state.state_file import unpacked

PROGRAM = """\
import sys
import time
import torch
import volary
from torch.utils.data import TensorDataset

sys.path.insert(0, TESTS)
from faults._own_deaths import deaths_of
from faults._own_rounds import data, network, optimizer_of


def train(worker, deaths=(), pace_s=0.0, epochs=4, deaf=()):
    model = network()
    optimizer = optimizer_of(model)
    model, optimizer = worker.distribute(model, optimizer)
    worker.restore(model=model, optimizer=optimizer)
    iterations = 0
    dies = deaths_of(worker.rank, deaths, deaf, lambda: iterations)

    for _ in worker.epochs(epochs):
        for inputs, targets in worker.feed(data(), batch_size=33, shuffle=False):
            time.sleep(pace_s)
            dies("forward")
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            dies("backward")
            optimizer.step()
            iterations += 1
            dies("step")
            if iterations % 5 == 0:
                worker.mean(loss)
    state = {name: value.detach().clone() for name, value in model.named_parameters()}
    return {"state": state, "iterations": iterations, "rank": worker.rank, "size": worker.world_size}


if __name__ == "__main__":
    volary.launch(train, name="it", workers=WORKERS, strategy=STRATEGY, kwargs=HOW)
"""
OUTER = {"name": "sgd", "lr": 0.7, "momentum": 0.9, "nesterov": True}
LOCAL = {"name": "local", "period": 3}
MODELS = [LOCAL, {**LOCAL, "outer": OUTER}, {"name": "elastic", "period": 3}, {"name": "gossip", "period": 2}]
STEPS = 32  # 4 epochs of 8 batches


def started(workers: int, model: dict[str, Any], how: dict[str, Any], **strategy: Any) -> Any:
    """A run of the program for a while."""
    text = PROGRAM.replace("STRATEGY", repr({"recover": "memory", "consistency": model, **strategy}))
    text = text.replace("TESTS", repr(str(Path(__file__).parents[1])))
    Path("own.py").write_text(text.replace("WORKERS", str(workers)).replace("HOW", repr(how)))
    return running(sys.executable, "own.py")


def values(run: Any) -> list[dict[str, Any]]:
    return [unpacked(file.read_bytes(), file) for file in sorted(run.directory.results.glob("rank-*.pt"))]


def assert_as_told(run: Any, model: dict[str, Any], workers: int) -> None:
    """Each worker has what it has in a process that computes all workers' steps, and loses those where the run did."""
    assert (run.ended().status, state(run.directory), last_step(run.directory)) == (0, "finished", STEPS), run.text()
    changes = [
        (one.step, set(one.data["lost"]) | set(one.data.get("left", []))) for one in events(run.directory, "recovered")
    ]
    expected = trained(model, workers, changes)
    found = values(run)
    assert [one["size"] for one in found] == [len(expected)] * len(found)
    assert len({one["iterations"] for one in found}) == 1
    for one, wanted in zip(found, expected.values(), strict=True):
        for name, value in one["state"].items():
            torch.testing.assert_close(value, wanted[name], rtol=0, atol=1e-9)
    assert_each_sample_once(run)


def assert_each_sample_once(run: Any) -> None:
    with RunReader(run.directory) as reader:
        rows = list(reader.steps())
    lost = {one.rank for one in events(run.directory, "lost")}
    for step in range(1, STEPS + 1):
        learnt = {row.rank: row.samples for row in rows if row.step == step}
        batch = 33 if step % 8 else 25
        assert sum(learnt.values()) == batch or (sum(learnt.values()) < batch and lost - learnt.keys()), step


def test_workers_that_take_local_steps_begin_the_round_again_without_a_lost_one():
    with started(3, LOCAL, {"deaths": [[1, 13, "forward"]]}) as run:
        assert_as_told(run, LOCAL, 3)
        assert [(one.step, one.data["lost"]) for one in events(run.directory, "recovered")] == [(11, [1])]
        assert values(run)[0]["iterations"] > STEPS


@pytest.mark.slow  # trains for seconds
@pytest.mark.parametrize("model", MODELS, ids=str)
@pytest.mark.parametrize(
    ("where", "rank", "at"),
    [("forward", 0, 8), ("backward", 1, 12), ("step", 0, 14), ("step", 2, 24), ("forward", 2, 30)],
)
def test_a_worker_may_be_killed_wherever_its_loop_is(model, where, rank, at):
    with started(3, model, {"deaths": [[rank, at, where]]}) as run:
        assert_as_told(run, model, 3)


@pytest.mark.slow  # trains for seconds
@pytest.mark.parametrize("model", MODELS, ids=str)
@pytest.mark.parametrize("deaf", [(), (1, 13)])
def test_a_round_that_some_have_gone_on_from_counts_for_one_that_has_not_heard_so(model, deaf):
    with started(3, model, {"deaths": [[2, 13, "heard"]], "deaf": deaf}) as run:  # step 14 ends a round of each
        assert_as_told(run, model, 3)


@pytest.mark.slow  # trains for seconds
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_a_worker_that_is_lost_in_the_first_round_ends_the_run(model):
    with started(3, model, {"deaths": [[2, 0, "forward"]]}) as run:
        ended = run.ended()
        assert (ended.status, state(run.directory)) == (1, "failed"), run.text()
        assert "before all workers had ended a first step, round or call" in ended.err


@pytest.mark.slow  # trains for seconds
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_two_may_be_killed_at_once_and_a_third_later_and_the_last_one_trains_alone(model):
    with started(4, model, {"deaths": [[0, 10, "forward"], [3, 10, "forward"], [1, 21, "step"]]}) as run:
        assert_as_told(run, model, 4)
        assert {one.rank for one in events(run.directory, "lost")} == {0, 1, 3}


@pytest.mark.slow  # trains for seconds
@pytest.mark.parametrize("seed", range(4))
def test_a_loss_while_the_others_meet_again_is_gone_on_from_as_well(seed):
    draw = random.Random(seed)
    model = MODELS[seed]
    with started(4, model, {"pace_s": 0.05}) as run:
        run.wait_for_step(10)
        first, second = draw.sample(range(4), 2)
        run.kill_as_others_meet(first, second, draw)
        assert_as_told(run, model, 4)


@pytest.mark.slow  # a stopped worker is lost after seconds
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_a_worker_that_is_stopped_is_done_without(model):
    with started(3, model, {"pace_s": 0.05}, suspect_after_s=1, give_up_after_s=3) as run:
        run.wait_for_step(6)
        run.kill(rank=1, number=signal.SIGSTOP)
        assert_as_told(run, model, 3)


@pytest.mark.slow  # trains for seconds
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_a_worker_leaves_between_two_rounds_and_nothing_is_made_again(model):
    with started(3, model, {"pace_s": 0.05}) as run:
        run.wait_for_step(4)
        with running(*VOLARY, "leave", "it", "0") as leaving:
            assert leaving.ended().status == 0, leaving.text()
        assert_as_told(run, model, 3)
        assert values(run)[0]["iterations"] == STEPS


@pytest.mark.slow  # trains for seconds
@pytest.mark.parametrize("at", [9, 13])
def test_with_fragments_a_lost_worker_is_done_without(at):
    model = {"name": "local", "period": 4, "fragments": 2}
    with started(3, model, {"deaths": [[1, at, "forward"]]}) as run:
        assert (run.ended().status, last_step(run.directory)) == (0, STEPS), run.text()
        assert [one["size"] for one in values(run)] == [2, 2]
        assert_each_sample_once(run)
