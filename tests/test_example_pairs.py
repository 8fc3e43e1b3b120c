"""Scripts before and after: few lines change, and two workers learn what one learns."""

from __future__ import annotations

import difflib
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

from train.test_own_loop import call
from volary.train.own import init

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
PAIRS = sorted(file.parent.name for file in EXAMPLES.glob("*/plain.py"))
LINES = 4  # new or changed: the import, init, distribute and feed


@pytest.mark.parametrize("name", PAIRS)
def test_few_lines_differ(name):
    plain, own = ((EXAMPLES / name / which).read_text().splitlines() for which in ("plain.py", "distributed.py"))
    changed = [line for line in difflib.ndiff(plain, own) if line.startswith("+ ") and line[2:].strip()]
    assert len(changed) == LINES, changed


def learn(rank: int, world_size: int, name: str) -> dict[str, Any]:
    torch.set_default_dtype(torch.float64)

    def train(worker: Any) -> dict[str, Any]:
        init.offer(lambda: worker)
        found = runpy.run_path(str(EXAMPLES / name / "distributed.py"))
        return {one: found[one].state_dict() for one in ("model", "generator", "judge") if one in found}

    return call(train, rank, world_size, 0)[0]


@pytest.mark.parametrize(
    "name", [name if name == "gan" else pytest.param(name, marks=pytest.mark.slow) for name in PAIRS]
)
def test_two_workers_learn_what_one_learns(workers, name):
    (alone,) = workers(1, learn, name)
    for found in workers(2, learn, name):
        for part, state in found.items():
            for where, tensor in state.items():
                torch.testing.assert_close(tensor, alone[part][where], rtol=0, atol=1e-7)
