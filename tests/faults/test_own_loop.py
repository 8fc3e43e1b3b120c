"""Loops of a user's own: what they do between steps takes as long as it takes, and who leaves early is named."""

from __future__ import annotations

import sys
from pathlib import Path

from faults._running import running

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


def test_code_between_steps_that_takes_longer_than_any_silence_may_goes_on():
    busy = "step == 9 and worker.rank == 0 and look_closely(model)"
    with running(*script(busy, suspect_after_s=1, give_up_after_s=2)) as run:
        assert run.ended().status == 0, run.text()


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
