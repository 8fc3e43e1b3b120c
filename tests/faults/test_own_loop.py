"""Loops of a user's own: what they do between steps takes as long as it takes, and who leaves early is named."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from faults._running import VOLARY, events, last_step, learnt, running, state

SCRIPT = """\
import time
import torch
import volary


def look_closely(model):
    with torch.no_grad():
        model(torch.ones(3, 4))
    time.sleep(5)  # saving, metrics, sampling, a compilation


def train(worker):
    torch.manual_seed(1)
    model = torch.nn.Linear(4, 2)
    model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step in range({steps}):
        optimizer.zero_grad()
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
        {between}


if __name__ == "__main__":
    volary.launch(train, workers=2, name="it", strategy={strategy})
"""


def script(between: str, steps: str = "20", **strategy: float) -> tuple[str, str]:
    """Write a script that does `between` after each step; the command."""
    Path("own.py").write_text(SCRIPT.format(between=between, steps=steps, strategy=strategy))
    return sys.executable, "own.py"


@pytest.mark.slow  # as a long forward
def test_code_between_steps_that_takes_longer_than_any_silence_may_goes_on():
    busy = "step == 9 and worker.rank == 0 and look_closely(model)"
    with running(*script(busy, suspect_after_s=1, give_up_after_s=2)) as run:
        assert run.ended().status == 0, run.text()


@pytest.mark.slow  # tests/train/test_own_loop.py names such a rank
def test_rank_with_fewer_steps_is_named_and_no_link_is_suspected():
    with running(*script("pass", steps="20 - worker.rank", suspect_after_s=1, give_up_after_s=2)) as run:
        ended = run.ended()
    assert ended.status != 0
    last = "rank 1 (host "
    sentence = "has left its training loop after step 19, and rank 0 waits in step 20: all workers must take the same"
    assert last in ended.err
    assert sentence in ended.err
    assert "link" not in ended.err
    assert "resume" not in ended.err


SERVED = """\
import time
import torch
import volary
from torch.utils.data import TensorDataset


def train(worker):
    model = torch.nn.Linear(4, 2)
    model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.01))
    feed = worker.feed(TensorDataset(torch.randn(256, 4), torch.randint(2, (256,))), batch_size=32)
    for _ in range(1_000_000):
        for inputs, targets in feed:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
            time.sleep(0.02)


if __name__ == "__main__":
    volary.launch(train, workers=2, name="it", strategy={"consistency": "ssp", "exchange": "server"})
"""


@pytest.mark.slow
def test_over_servers_an_own_loop_goes_on_without_a_killed_worker_and_with_one_that_joins():
    Path("own.py").write_text(SERVED)
    with running(sys.executable, "own.py") as run:
        run.wait_for_step(5)
        with running(*VOLARY, "join", "it") as joining:
            run.wait_until(lambda: learnt(run, 2))
            run.kill(rank=1)
            run.wait_until(lambda: [event.rank for event in events(run.directory, "lost")] == [1])
            at = last_step(run.directory)
            run.wait_until(lambda: last_step(run.directory) > at + 5)
            run.process.send_signal(signal.SIGINT)
            assert run.ended().status == 0, run.text()
            assert joining.ended().status == 0, joining.text()
    assert state(run.directory) == "stopped"
