"""Whole runs, from a session to the end: killed and resumed, refused, stopped by a NaN."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from train._training import session
from volary.data.order import epoch_order
from volary.driver.ending import NoWatcher
from volary.driver.resume import resume
from volary.driver.start import start
from volary.errors import NotFinite, RanksDiffer, WorkerLost
from volary.run.checkpoints import Checkpoints
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory
from volary.session import Session

STEPS = 16


def logged(name: str) -> Session:
    """Dropout, batch norm, momentum, and a data set that writes down what it is asked for."""
    Path(name).mkdir()
    return session(
        "Dropping",
        source={"name": "LoggedPoints", "log": str(Path(name).absolute()), "samples": 44, "hold_after": 30},
        optimizer={"name": "sgd", "lr": 0.1, "momentum": 0.9},
        train={"steps": STEPS},
        evaluate={"every": "4 steps"},
        checkpoint={"every": "4 steps"},
        strategy={"workers": 2},
        run={"name": name},
    )


class KillAt(NoWatcher):
    """Kills every worker as a power cut would, once they are so far: the data set then holds them up."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.directory: Any = None

    def started(self, directory: RunDirectory) -> None:
        self.directory = directory

    def look(self) -> None:
        with RunReader(self.directory) as reader:
            if reader.last_step() >= self.step:
                for pid in json.loads(reader.info()["pids"])[1:]:
                    os.kill(pid, signal.SIGKILL)


def asked_for(name: str, rank: int) -> list[list[int]]:
    """Which samples the worker of that rank asked for, in each attempt of the run, oldest first."""
    logs = sorted(Path(name).glob(f"rank-{rank}-*"), key=lambda file: file.stat().st_mtime)
    # each begins by looking at sample 0, for its shape; rank 0 then tries the first and the last
    looked_at = [0, 0, 43] if rank == 0 else [0]
    lives = [[int(line) for line in log.read_text().split()] for log in logs]
    assert all(attempt[: len(looked_at)] == looked_at for attempt in lives)
    return [attempt[len(looked_at) :] for attempt in lives]


@pytest.mark.slow
def test_a_killed_and_resumed_run_equals_an_uninterrupted_one_bit_for_bit():
    one = logged("whole")
    Path("whole/go").touch()
    whole = start(one, NoWatcher())
    assert (whole.state, whole.step) == ("finished", STEPS)
    with pytest.raises(WorkerLost, match="SIGKILL"):
        start(logged("killed"), KillAt(5))
    Path("killed/go").touch()
    directory = RunDirectory("runs/killed")
    begun = Checkpoints(directory.checkpoints).steps()[-1]
    assert 4 <= begun < STEPS
    resumed = resume(directory, NoWatcher())
    assert (resumed.state, resumed.step) == ("finished", STEPS)

    for rank in range(2):
        (everything,) = asked_for("whole", rank)
        before, after = asked_for("killed", rank)
        assert before == everything[: len(before)]
        assert after == everything[len(everything) - len(after) :]
        assert len(everything) - len(after) == sum(len(share) for share in shares(rank, begun))
    ends = [Checkpoints(RunDirectory(f"runs/{name}").checkpoints).verify(STEPS) for name in ("whole", "killed")]
    for end in ends:
        for name in ("state.pt", "optimizer-worker-0.pt", "optimizer-worker-1.pt"):
            end.files.pop(name, None)  # equal, but for which of their words are the same object
    assert ends[0] == ends[1], "weights, each rank's generators and statistics, and the best metric"
    with RunReader(whole.directory) as one, RunReader(directory) as other:
        losses = {row.step: row.loss for row in one.steps(rank=0)}
        # what was on its way to the driver when the workers were killed is missing there
        found = {row.step: row.loss for row in other.steps(rank=0)}
        assert found.items() <= losses.items()
        assert set(range(begun + 1, STEPS + 1)) <= set(found)
        assert {name: pairs[-1] for name, pairs in one.metrics().items()} == {
            name: pairs[-1] for name, pairs in other.metrics().items()
        }
        assert [event.data["from_step"] for event in other.events(kind="resumed")] == [begun]


def shares(rank: int, steps: int) -> list[range]:
    """Positions in the order of epochs of 44 samples, in batches of 10, that are a rank's of 2."""
    return [range(rank, 4 if step % 5 == 4 else 10, 2) for step in range(steps)]


@pytest.mark.slow  # a run that is refused more
def test_networks_that_differ_by_rank_are_refused_with_a_table_before_the_first_step():
    with pytest.raises(RanksDiffer) as refused:
        start(session("OfMyRank", strategy={"workers": 2}, run={"name": "it"}), NoWatcher())
    first, *table = str(refused.value).splitlines()
    assert first == "ranks differ, so nothing was started:"
    assert table[0] == "  parameter layers.0.weight: rank 0: (8, 6) float32; rank 1: (9, 6) float32"
    with RunReader(RunDirectory("runs/it")) as reader:
        assert (reader.state(), reader.last_step()) == ("failed", 0)


def test_a_nan_ends_a_run_with_rank_step_and_the_last_good_checkpoint():
    spoilt = epoch_order(41, seed=1, epoch=0, shuffle=True).tolist()[21]  # of step 3, the share of rank 1
    source = {"name": "spoilt_points", "spoilt": [spoilt]}
    with pytest.raises(NotFinite) as ended:
        start(session("Exact", source=source, checkpoint={"every": "1 step"}, strategy={"workers": 2}), NoWatcher())
    said, how, *_ = ended.value.report.splitlines()
    where = f"first in the inputs of its batch, in sample {spoilt} of the training data"
    assert said == f"the loss of rank 1 is NaN or infinite at step 3, {where}; last good checkpoint: step 2"
    assert how == "mend these samples, or leave such batches out (train.on_nonfinite=skip)"
