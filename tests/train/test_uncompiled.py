"""Training without torch's compiler: in a Python of its own, as this one may have it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
UPDATED = """
import sys, torch
from volary.train.optimizers import ROOM
from volary.train.update.uncompiled import spare_the_compiler

def updated(name, wrap=lambda step: step):
    spare_the_compiler()
    torch.manual_seed(0)
    network = torch.nn.Linear(3, 2)
    optimizer = ROOM.load(name)().build(network.parameters())

    def step(x):
        optimizer.zero_grad()
        network(x).square().sum().backward()
        optimizer.step()

    for x in torch.randn(3, 4, 3):
        wrap(step)(x)
    again = ROOM.load(name)().build(network.parameters())
    again.load_state_dict(optimizer.state_dict())
    return [p.detach().clone() for p in network.parameters()]
"""
GATHERED = """
from volary.exchange.gathering.uses import _Looking

with _Looking(lambda tensor: None):
    torch.ones(2) + 1
"""
TRAINED = """
import sys
from train._training import session, trained

often = {"every": "10 steps"}
trained(0, 1, session("Wide", evaluate=often, checkpoint=often))
trained(0, 1, session("Wide", train={"steps": 25}))  # resumed
trained(0, 1, session("Wide", train={"steps": 2}, optimizer={"name": "torch.optim:NAdam", "lr": 0.1}), "own")
"""


def said(program: str) -> str:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (TESTS.parent / "src", TESTS)))}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_training_imports_neither_torchs_compiler_nor_sympy():
    every = "for name in ROOM.names(): updated(name)\n"
    found = "print({'torch._dynamo', 'sympy'} & set(sys.modules))"
    assert said(TRAINED + UPDATED + GATHERED + every + found) == "set()"


@pytest.mark.slow
def test_a_step_that_is_compiled_updates_as_one_that_is_not():
    compare = """
plain = updated("adam")
compiled = updated("adam", lambda step: torch.compile(step, backend="eager"))
print("torch._dynamo" in sys.modules, all(map(torch.equal, plain, compiled)))
"""
    assert said(UPDATED + compare) == "True True"
