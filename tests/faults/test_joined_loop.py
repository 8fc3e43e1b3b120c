"""`volary join`, spare workers and ranges of workers where the loop is a user's own, over all-reduce."""

from __future__ import annotations

import random
import shutil
import signal
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from faults._running import VOLARY, events, last_step, learnt, running, state
from faults.test_recovered_loop import recovered, values
from volary.run.database.reader import RunReader
from volary.session.script import Script
from volary.train.member.pulse import NoDriver
from volary.train.own.replicated_loop import ReplicatedLoop
from volary.train.own.worker import Worker
from volary.train.recording.recorder import Recorder
from volary.train.worker.connect import alone as group_of_one

PROGRAM = """\
import os
import shutil
import signal
import time
import torch
import volary
from torch.utils.data import TensorDataset

EPOCHS = 30  # of 8 steps, the last of 25 samples


def data():
    draws = torch.Generator().manual_seed(3)
    return TensorDataset(torch.randn(256, 16, generator=draws).double(), torch.randint(4, (256,), generator=draws))


class Best:
    loss, more = 9.0, {}

    def state_dict(self):
        return {"loss": self.loss, **self.more}

    def load_state_dict(self, state):
        self.loss = state["loss"]


def train(worker, until=0, width=32, dies=(), early_call="", plain=False, restores=True, averages=True, odd=False):
    torch.manual_seed(1)
    layers = [torch.nn.Linear(16, width), torch.nn.ReLU(), torch.nn.Linear(width, 4)]
    model = torch.nn.Sequential(*layers).double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
    model, optimizer = worker.distribute(model, optimizer)
    best, began_as = Best(), [worker.rank, worker.world_size]
    if odd:
        best.more = {"who": {"a set"}}
    named = {"model": model, "optimizer": optimizer, "schedule": schedule, "best": best}
    average = worker.average(model, 0.9) if averages else best
    named["average"] = average
    if plain:
        named["tried"] = 0
    if early_call == "before restore":
        worker.barrier()
    if restores:
        worker.restore(**named)
    if early_call == "before the loop":
        worker.barrier()
    feed, seen = worker.feed(data(), batch_size=33), 0
    for epoch in worker.epochs(EPOCHS):
        for inputs, targets in feed:
            time.sleep(0.3 * (seen > 4 and worker.world_size < until and not os.path.exists("go")))  # to import torch
            if [began_as[0], schedule.last_epoch] in [list(one) for one in dies]:
                os.kill(os.getpid(), signal.SIGKILL)
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            seen += 1
            if os.path.exists("ends") and schedule.last_epoch == int(open("ends").read()):
                worker.save(**named)
                raise RuntimeError("told to end here")
            if schedule.last_epoch % 5 == 0:
                best.loss = min(best.loss, worker.mean(loss).item())
        worker.barrier()
        measured = worker.evaluate(lambda batch: (model(batch[0]).argmax(1) == batch[1]).double().mean(), data(), 33)
        if restores and not odd:
            worker.save(**named)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    return {"state": state, "average": average.state_dict(), "lr": schedule.get_last_lr()[0], "best": best.loss,
            "epoch": epoch, "evaluated": measured, "seen": seen, "rank": worker.rank, "size": worker.world_size,
            "began_as": began_as}


if __name__ == "__main__":
    volary.launch(train, name="it", strategy=STRATEGY, kwargs=HOW)
"""
STEPS = 30 * 8
JOIN = (*VOLARY, "join", "it")


def started(how: dict[str, Any], **strategy: Any) -> Any:
    """A run of the program for a while."""
    text = PROGRAM.replace("STRATEGY", repr({"workers": 2, "recover": "memory", **strategy}))
    Path("own.py").write_text(text.replace("HOW", repr(how)))
    return running(sys.executable, "own.py")


def alone() -> dict[str, Any]:
    """One process trains by itself; its result."""
    names: dict[str, Any] = {"__name__": "own"}
    exec(PROGRAM, names)
    script, recorder, cpu = Script(program="own.py"), Recorder.unheard(), torch.device("cpu")
    loop = ReplicatedLoop(script, group_of_one(), recorder, NoDriver(), cpu)
    with closing(Worker(loop, script, recorder, cpu, 0)) as worker:
        found: dict[str, Any] = names["train"](worker)
        return found


def assert_as_alone(run: Any, workers: int) -> list[dict[str, Any]]:
    """Workers' models are equal, and those of one process to rounding; each step has learnt from its samples once."""
    assert_each_sample_once(run)
    found, expected = values(run), alone()
    assert [(one["rank"], one["size"]) for one in found] == [(place, workers) for place in range(workers)], run.text()
    for one in found:
        for kind in ("state", "average"):
            for name, value in one[kind].items():
                assert torch.equal(value, found[0][kind][name]), name
                torch.testing.assert_close(value, expected[kind][name], rtol=0, atol=1e-9)
        assert (one["lr"], one["epoch"]) == (expected["lr"], expected["epoch"])
        assert one["best"] == pytest.approx(expected["best"], abs=1e-9)
    return found


def assert_each_sample_once(run: Any) -> None:
    """Each step has learnt from its samples once."""
    with RunReader(run.directory) as reader:
        rows = list(reader.steps())
    lost = {one.rank for one in events(run.directory, "lost")}
    for step in range(1, STEPS + 1):
        learnt_from = {row.rank: row.samples for row in rows if row.step == step}
        batch = 33 if step % 8 else 25
        # the newest rows of who is killed may be missing
        total = sum(learnt_from.values())
        assert total == batch or (total < batch and lost - learnt_from.keys()), (step, learnt_from)


def test_a_worker_joins_a_loop_between_two_steps_and_has_what_the_others_have():
    with started({"until": 3}) as run:
        run.wait_for_step(3)
        with running(*JOIN) as joining:
            run.wait_until(lambda: learnt(run, 2))
            assert run.ended().status == 0, run.text()
            assert joining.ended().out == "rank 2 left it, which has ended\n"
        assert (state(run.directory), last_step(run.directory)) == ("finished", STEPS)
        assert recovered(run) == [{"workers": 3, "lost": [], "joined": [2], "source": "memory"}]
        first, _, joined = assert_as_alone(run, 3)
        assert (first["began_as"], first["seen"]) == ([0, 2], STEPS), "no step of the others is made again"
        assert joined["began_as"] == [2, 3]
        assert 0 < joined["seen"] < STEPS


@pytest.mark.slow  # trains three times
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"exchange": {"name": "allreduce", "route": "ring"}},
        {"codec": "topk"},
        {"consistency": {"name": "local", "period": 3}},
        {"consistency": {"name": "local", "period": 3, "outer": {"name": "sgd", "lr": 0.7, "momentum": 0.9}}},
    ],
    ids=str,
)
def test_a_loop_that_a_worker_joined_equals_one_that_was_resumed_with_it(more):
    with started({"until": 3}, **more) as run:
        run.wait_for_step(3)
        with running(*JOIN):
            assert run.ended().status == 0, run.text()
        (step,) = [one.step for one in events(run.directory, "recovered")]
        joined = values(run)
    assert_told(joined, step, 3, **more)


@pytest.mark.slow  # trains for seconds
@pytest.mark.parametrize(
    "model",
    [
        {"name": "elastic", "period": 3},
        {"name": "gossip", "period": 2},
        {"name": "local", "period": 4, "fragments": 2, "outer": {"name": "sgd", "lr": 0.7, "momentum": 0.9}},
    ],
    ids=str,
)
def test_a_worker_joins_loops_whose_parameters_differ_between_two_rounds(model):
    with started({"until": 3, "averages": False}, consistency=model) as run:
        run.wait_for_step(3)
        with running(*JOIN) as joining:
            assert run.ended().status == 0, run.text()
            assert joining.ended().status == 0
        assert [data["workers"] for data in recovered(run)] == [3]
        assert_each_sample_once(run)
        first, *others = values(run)
        assert all(one["evaluated"] == first["evaluated"] for one in others), "of the model of all"


def assert_told(joined, step, workers, **more):
    """The workers' models are those of a run that ended after this step, and was resumed with so many workers."""
    Path("runs/it").rename("runs/joined")
    Path("ends").write_text(str(step))
    with started({}, **more) as told:
        assert told.ended().status != 0
        assert last_step(told.directory) == step
    Path("ends").unlink()
    with running(*VOLARY, "resume", "it", f"strategy.workers={workers}") as resumed:
        assert resumed.ended().status == 0, resumed.text()
        for one, other in zip(joined, values(resumed), strict=True):
            assert one["lr"] == other["lr"]
            for kind in ("state", "average"):
                assert all(torch.equal(value, other[kind][name]) for name, value in one[kind].items())


@pytest.mark.slow  # the other quick test has a worker join
def test_a_spare_takes_the_place_of_a_lost_worker_between_two_steps():
    with started({"dies": [[0, 20]], "until": 2}, spares=1) as run:
        assert run.ended().status == 0, run.text()
        lost, came = recovered(run)
        assert lost == {"workers": 1, "lost": [0], "source": "memory"}
        assert came == {"workers": 2, "lost": [], "spares": [2], "source": "memory"}
        _, spare = assert_as_alone(run, 2)
        assert spare["began_as"] == [2, 3]


@pytest.mark.slow  # imports torch in four processes
@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"plain": True}, "worker.restore was given tried, a int, and nobody who joins the run learns what"),
        ({"restores": False}, "the loop begins without worker.restore, at which a worker that joins gets what"),
        ({"early_call": "before restore"}, "worker.barrier was called by a worker that joins, before its first batch"),
    ],
)
def test_a_loop_in_whose_middle_nobody_can_begin_refuses_a_joiner_and_goes_on(how, sentence):
    with started({"until": 3, **how}) as run:
        run.wait_for_step(3)
        with running(*JOIN) as joining:
            assert joining.ended().status == 2, joining.text()
            assert sentence in joining.text()
        assert last_step(run.directory) < STEPS and not recovered(run)
        run.process.send_signal(signal.SIGINT)
        assert run.ended().status == 0 and state(run.directory) == "stopped", run.text()


@pytest.mark.slow  # imports torch in four processes
def test_a_joiner_that_calls_the_others_before_its_first_batch_is_done_without():
    with started({"until": 3, "early_call": "before the loop"}) as run:
        run.wait_for_step(3)
        with running(*JOIN) as joining:
            assert joining.ended().status == 2, joining.text()
        run.wait_until(lambda: len(recovered(run)) == 2)
        run.process.send_signal(signal.SIGINT)
        assert run.ended().status == 0 and state(run.directory) == "stopped", run.text()


@pytest.mark.slow  # imports torch in four processes
def test_a_joiner_of_a_loop_whose_state_cannot_be_sent_ends_with_a_sentence_and_the_others_train_on():
    with started({"until": 3, "odd": True}) as run:
        run.wait_for_step(3)
        with running(*JOIN) as joining:
            said = joining.ended()
        assert said.status == 2, said.err
        assert "nobody can join this run: of what worker.restore is given, a checkpoint's state holds a set" in said.err
        run.wait_until(lambda: [data["workers"] for data in recovered(run)][-1:] == [2])
        at = last_step(run.directory)
        run.wait_for_step(at + 3)
        run.process.send_signal(signal.SIGINT)
        assert run.ended().status == 0 and state(run.directory) == "stopped", run.text()


@pytest.mark.slow  # imports torch in four processes
@pytest.mark.parametrize("other", ["width=32|width=16", "EPOCHS = 30|EPOCHS = 31"])
def test_a_joiner_with_another_loop_is_refused_with_a_table_and_the_run_notices_nothing(other):
    with started({"until": 3}) as run:
        run.wait_for_step(3)
        Path("own.py").write_text(Path("own.py").read_text().replace(*other.split("|")))
        with running(*JOIN) as joining:
            said = joining.ended()
        assert said.status == 5
        assert "rank 2 differs from the run's first worker, so it does not take part:\n  code of function: " in said.err
        assert not recovered(run)
        run.process.send_signal(signal.SIGINT)
        assert run.ended().status == 0 and state(run.directory) == "stopped", run.text()


@pytest.mark.slow  # trains for seconds
@pytest.mark.parametrize("seed", range(4))
def test_a_joiner_that_is_killed_at_any_moment_of_its_join_is_done_without(seed):
    draw = random.Random(seed)
    with started({"until": 9}) as run:
        run.wait_for_step(3)
        with running(*JOIN) as joining:
            run.wait_until(lambda: events(run.directory, "joined"))
            if seed:
                run.wait_until(lambda: [one for one in recovered(run) if one["workers"] == 3])
            time.sleep(draw.uniform(0, 0.1 if seed else 6))  # no condition: any moment of the joining is a case
            run.kill(2)
            assert joining.ended().status != 0
        Path("go").touch()
        assert run.ended().status == 0, run.text()
        assert_as_alone(run, 2)


@pytest.mark.slow  # imports torch in four processes
def test_who_is_invited_joins_a_loop_of_one_to_three_workers_and_more_are_not_let_in():
    with started({"until": 3}, workers=3, between="1..3") as run:
        run.wait_for_step(3)
        begun = len(learners(run))
        with running(*JOIN, "--workers", "3") as refused:
            said = refused.ended()
        assert said.status == 2 and "and strategy.workers is 1..3" in said.err
        with running(*VOLARY, "invite", "it", "--for", "5min") as inviting:
            line = inviting.ended().out.split()[2]
        Path("elsewhere").mkdir()
        shutil.copy("own.py", "elsewhere")
        with running(*VOLARY, "join", line, cwd="elsewhere") as joining:
            run.wait_until(lambda: learnt(run, begun))
            assert run.ended().status == 0, run.text()
            assert joining.ended().status == 0, joining.text()
        assert [data["workers"] for data in recovered(run)] == [begun + 1]
        assert_each_sample_once(run)


def learners(run: Any) -> set[int]:
    """The ranks that have learnt from anything."""
    with RunReader(run.directory) as reader:
        return {row.rank for row in reader.steps()}
