"""`strategy.recover: memory` in loops of a user's own: a worker is lost, and the loops of the others go on."""

from __future__ import annotations

import random
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed import HashStore  # type: ignore[attr-defined]  # torch exports it untyped

from faults._running import VOLARY, events, last_step, running, state
from volary.comm.groups.group import Group
from volary.run.database.reader import RunReader
from volary.session.script import Script
from volary.train.member.bulletin import BoardBulletin
from volary.train.member.pulse import NoDriver
from volary.train.own.replicated_loop import ReplicatedLoop
from volary.train.own.worker import Worker
from volary.train.recording.recorder import Recorder
from volary.train.state.state_file import unpacked

PROGRAM = """\
import sys
import time
import torch
import volary
from torch.utils.data import TensorDataset

sys.path.insert(0, TESTS)
from faults._own_deaths import deaths_of

EPOCHS = 6  # of 8 steps, the last of 25 samples


def data():
    draws = torch.Generator().manual_seed(3)
    return TensorDataset(torch.randn(256, 16, generator=draws).double(), torch.randint(4, (256,), generator=draws))


def train(worker, deaths=(), pace_s=0.0, passes=1, calls=1, saves=False, looks=False, early=(), deaf=()):
    torch.manual_seed(1)
    layers = [torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)]
    model = torch.nn.Sequential(*layers).double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
    model, optimizer = worker.distribute(model, optimizer, passes=passes * calls)
    average = worker.average(model, 0.9)
    worker.restore(model=model, optimizer=optimizer, schedule=schedule, average=average)
    feed = worker.feed(data(), batch_size=33)
    iterations, passed, means = 0, 0, []
    dies = deaths_of(worker.rank, deaths, deaf, lambda: iterations)

    def step():
        dies("backward")
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        dies("step")

    def measured(batch):
        dies("evaluate")
        return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])

    for _ in worker.epochs(EPOCHS):
        for inputs, targets in feed:
            if iterations in early:
                step()
                passed = 0
            time.sleep(pace_s)
            dies("forward")
            for number in range(calls):
                if number:
                    dies("between")
                loss = torch.nn.functional.cross_entropy(model(inputs), targets)
                (loss / passes / calls).backward()
            if looks:
                model[0].weight.grad.norm()
            iterations, passed = iterations + 1, passed + 1
            if passed < passes:
                continue
            step()
            passed = 0
            if iterations % 5 == 0:
                dies("call")
                means.append(worker.mean(loss))
        dies("epoch")
        means.append(worker.evaluate(measured, data(), batch_size=33))
        if saves:
            dies("save")
            worker.save(model=model, optimizer=optimizer, schedule=schedule, average=average)
    worker.barrier()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    return {"state": state, "average": average.state_dict(), "lr": schedule.get_last_lr()[0], "iterations": iterations,
            "evaluated": means[-1], "rank": worker.rank, "size": worker.world_size}


if __name__ == "__main__":
    volary.launch(train, name="it", workers=WORKERS, strategy=STRATEGY, kwargs=HOW)
"""


def program() -> str:
    return PROGRAM.replace("TESTS", repr(str(Path(__file__).parents[1])))


def started(workers: int, how: dict[str, Any], **strategy: Any) -> Any:
    """A run of the program for a while."""
    text = program().replace("STRATEGY", repr({"recover": "memory", **strategy}))
    Path("own.py").write_text(text.replace("WORKERS", str(workers)).replace("HOW", repr(how)))
    return running(sys.executable, "own.py")


def alone(**how: Any) -> dict[str, Any]:
    """One process trains by itself; its result."""
    names: dict[str, Any] = {"__name__": "own"}
    exec(program(), names)
    script, recorder, cpu = Script(program="own.py"), Recorder.unheard(), torch.device("cpu")
    loop = ReplicatedLoop(script, Group(BoardBulletin(HashStore(), 0, 1, 0)), recorder, NoDriver(), cpu)
    with closing(Worker(loop, script, recorder, cpu, 0)) as worker:
        found: dict[str, Any] = names["train"](worker, **how)
        return found


def values(run: Any) -> list[dict[str, Any]]:
    return [unpacked(file.read_bytes(), file) for file in sorted(run.directory.results.glob("rank-*.pt"))]


def recovered(run: Any) -> list[dict[str, Any]]:
    return [one.data for one in events(run.directory, "recovered")]


def assert_as_alone(run: Any, expected: dict[str, Any], left: int, passes: int = 1) -> None:
    """Workers' models are equal, and those of one process to rounding; each step has learnt from its samples once."""
    found = values(run)
    assert [(one["rank"], one["size"]) for one in found] == [(place, left) for place in range(left)]
    for one in found:
        for kind in ("state", "average"):
            for name, value in one[kind].items():
                assert torch.equal(value, found[0][kind][name]), name
                torch.testing.assert_close(value, expected[kind][name], rtol=0, atol=1e-9)
        assert one["lr"] == expected["lr"]
        assert one["evaluated"] == pytest.approx(expected["evaluated"], abs=1e-9)
        assert one["iterations"] == found[0]["iterations"] >= expected["iterations"]
    with RunReader(run.directory) as reader:
        rows = list(reader.steps())
    lost = {one.rank for one in events(run.directory, "lost")}
    for step in range(1, last_step(run.directory) + 1) if passes == 1 else ():  # else rows are of the last batches
        learnt = {row.rank: row.samples for row in rows if row.step == step}
        batch = 33 if step % 8 else 25
        # the newest rows of who is killed may be missing
        assert sum(learnt.values()) == batch or (sum(learnt.values()) < batch and lost - learnt.keys()), step


def test_the_loops_of_the_others_go_on_and_make_the_step_again():
    expected = alone()
    with started(3, {"deaths": [[0, 20, "forward"]]}) as run:
        ended = run.ended()
        assert (ended.status, state(run.directory), last_step(run.directory)) == (0, "finished", 48), run.text()
        assert recovered(run) == [{"workers": 2, "lost": [0], "source": "memory"}]
        assert_as_alone(run, expected, left=2)
        assert values(run)[0]["iterations"] == 49, "the one that was left out is made again"


@pytest.mark.slow  # trains for seconds
@pytest.mark.parametrize(
    ("where", "rank", "at"),
    [
        ("forward", 2, 1),
        ("forward", 1, 15),
        ("forward", 0, 16),  # with the first batch of an epoch, whose order is drawn just before
        ("backward", 0, 17),
        ("backward", 2, 16),
        ("word", 1, 12),  # once all have the sums, before all have heard that all have
        ("step", 1, 12),
        ("call", 0, 15),
        ("call", 2, 40),
        ("evaluate", 1, 16),
        ("epoch", 0, 24),
        ("save", 0, 16),
        ("save", 2, 24),
    ],
)
@pytest.mark.parametrize("route", ["auto", "ring", "torch"])
def test_a_worker_may_be_killed_wherever_its_loop_is(where, rank, at, route):
    expected = alone()
    exchange = {"name": "allreduce", "route": route}
    with started(3, {"deaths": [[rank, at, where]], "saves": where == "save"}, exchange=exchange) as run:
        assert run.ended().status == 0, run.text()
        assert [data["lost"] for data in recovered(run)] == [[rank]]
        assert_as_alone(run, expected, left=2)


@pytest.mark.slow  # trains for seconds
@pytest.mark.parametrize("codec", ["none", "factors"])
def test_a_step_that_some_have_gone_on_from_counts_for_one_that_has_not_heard_so(codec):
    expected = alone()
    with started(3, {"deaths": [[2, 12, "heard"]], "deaf": [1, 12]}, codec=codec) as run:
        assert run.ended().status == 0, run.text()
        assert [data["lost"] for data in recovered(run)] == [[2]]
        assert_as_alone(run, expected, left=2)


@pytest.mark.slow  # trains for seconds
@pytest.mark.parametrize("passes", [1, 2, 4])
def test_two_may_be_killed_at_once_and_a_third_later_and_the_last_one_trains_alone(passes):
    how = {"deaths": [[0, 14, "forward"], [3, 14, "forward"], [1, 30, "forward"]], "passes": passes}
    expected = alone(passes=passes)
    with started(4, how) as run:
        assert run.ended().status == 0, run.text()
        assert {one.rank for one in events(run.directory, "lost")} == {0, 1, 3}
        assert_as_alone(run, expected, left=1, passes=passes)


@pytest.mark.slow  # trains for seconds
@pytest.mark.parametrize(
    ("passes", "looks", "deaths", "early"),
    [
        (3, False, [[1, 8, "forward"]], [8]),  # the step of batches 7 and 8 of the epoch before, and this one
        (3, False, [[0, 8, "forward"]], [8]),
        (3, False, [[0, 16, "forward"]], [16]),  # of batch 8, and of two of this epoch
        (3, False, [[2, 17, "forward"]], [16]),
        (3, False, [[0, 8, "epoch"]], []),  # with a call of all workers between the two
        (3, False, [[1, 10, "forward"]], []),  # within an epoch
        (3, False, [[2, 8, "forward"], [0, 17, "forward"]], [8, 16]),
        (6, False, [[1, 9, "forward"]], [8]),
        (2, True, [[0, 11, "forward"]], [11]),  # gradients that agree before the step as they are looked at
    ],
)
def test_a_step_that_had_begun_before_what_is_left_out_is_made_of_what_had_agreed(passes, looks, deaths, early):
    expected = alone(passes=passes, looks=looks, early=early)
    with started(4, {"passes": passes, "looks": looks, "deaths": deaths}) as run:
        assert run.ended().status == 0, run.text()
        assert sorted(one.rank for one in events(run.directory, "lost")) == sorted(rank for rank, *_ in deaths)
        assert_as_alone(run, expected, left=4 - len(deaths), passes=passes)


@pytest.mark.slow  # trains for seconds
@pytest.mark.parametrize("deaths", [[[1, 10, "between"]], [[0, 9, "between"], [2, 20, "between"]]])
def test_a_batch_with_several_calls_of_backward_is_made_again_from_the_first(deaths):
    expected = alone(calls=3)
    with started(4, {"calls": 3, "deaths": deaths}) as run:
        assert run.ended().status == 0, run.text()
        assert_as_alone(run, expected, left=4 - len(deaths))
        assert values(run)[0]["iterations"] == expected["iterations"] + len(deaths)


@pytest.mark.slow  # trains for seconds
@pytest.mark.parametrize("seed", range(4))
def test_a_loss_while_the_others_meet_again_is_gone_on_from_as_well(seed):
    draw = random.Random(seed)
    expected = alone()
    with started(4, {"pace_s": 0.02}, exchange={"name": "allreduce", "route": draw.choice(["ring", "auto"])}) as run:
        run.wait_for_step(10)
        first, second = draw.sample(range(4), 2)
        run.kill_as_others_meet(first, second, draw)
        assert run.ended().status == 0, run.text()
        assert_as_alone(run, expected, left=2)


@pytest.mark.slow  # trains for seconds
def test_a_worker_leaves_between_two_steps_and_nothing_is_made_again():
    expected = alone()
    with started(3, {"pace_s": 0.05}) as run:
        run.wait_for_step(4)
        with running(*VOLARY, "leave", "it", "0") as leaving:
            assert leaving.ended().status == 0, leaving.text()
        assert run.ended().status == 0, run.text()
        assert [(one["workers"], one["left"]) for one in recovered(run)] == [(2, [0])]
        assert_as_alone(run, expected, left=2)
        assert values(run)[0]["iterations"] == expected["iterations"]
