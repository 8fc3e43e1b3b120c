"""A network has the same names, in what is saved and in settings, whether it is compiled, wrapped, or neither."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from _workers import joined
from train._own_served import own_served
from train._own_workers import worker_in
from volary.naming import loadable, named_buffers, named_modules, named_parameters, plain_names, unwrapped
from volary.run.checkpoints import Checkpoints
from volary.session.script import Script
from volary.train.recording.recorder import Recorder
from volary.train.state.drafts import DirectoryDrafts
from volary.train.state.weights import SavedWeights, weights_of

STEPS, SAVED_AT = 6, 3


class Net(nn.Module):
    """With a part that is called as DataParallel calls its own."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(32, 32)
        self.module = nn.Sequential(nn.BatchNorm1d(32), nn.Linear(32, 2, bias=False))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.module(self.fc(inputs).relu())  # type: ignore[no-any-return]


def compiled(module: nn.Module) -> nn.Module:
    return torch.compile(module, backend="eager")  # type: ignore[return-value]


def compiled_within(module: nn.Module) -> nn.Module:
    module.fc = compiled(module.fc)
    return module


WRAPPERS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "plain": lambda module: module,
    "compiled": compiled,
    "compiled within": compiled_within,
    "parallel": nn.DataParallel,
    "compiled and parallel": lambda module: nn.DataParallel(compiled(module)),
}


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_names_are_those_of_the_network_however_it_is_wrapped(wrap):
    torch.manual_seed(1)
    one, other = Net(), Net()
    names = list(one.state_dict())
    wrapped, plain = wrap(one), plain_names(wrap(Net()))
    assert [plain(name) for name in wrapped.state_dict()] == names
    assert [name for name, _ in named_parameters(wrapped)] == [name for name, _ in other.named_parameters()]
    assert [name for name, _ in named_buffers(wrapped)] == [name for name, _ in other.named_buffers()]
    assert {name for name, _ in named_modules(wrapped)} == {name for name, _ in other.named_modules()}
    assert type(unwrapped(wrapped)) is Net
    wrapped.load_state_dict(loadable(wrapped, other.state_dict()))
    torch.testing.assert_close([*wrapped.state_dict().values()], [*other.state_dict().values()], rtol=0, atol=0)


def loop(worker: Any, wrap: Callable[[nn.Module], nn.Module], die: bool) -> dict[str, Any]:
    """Six steps of a network whose wrapper may be another in each attempt; saves after the third, and may die there."""
    torch.manual_seed(1)
    model = wrap(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    model, optimizer = worker.distribute(model, optimizer)
    state = worker.restore(model=model, optimizer=optimizer, copy=wrap(Net()), steps=0)
    steps, data = state["steps"], torch.randn(48, 32, generator=torch.Generator().manual_seed(2))
    for _ in worker.epochs(1):
        for inputs, labels in worker.feed(TensorDataset(data, torch.arange(48) % 2), batch_size=8):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
            steps += 1
            if steps == SAVED_AT:
                worker.save(model=model, optimizer=optimizer, copy=state["copy"], steps=steps)
                if die:
                    return {}
    return {name: one.clone() for name, one in weights_of(model).items()}


def attempt(rank: int, number: int, folder: Path, wrapper: str, *, die: bool = False) -> dict[str, Any]:
    strategy = {
        "workers": 2,
        "codec": {"fc.*": {"name": "onebit", "warm_up_samples": 0}},
        "exchange": {"name": "allreduce", "route": "torch"},
    }
    recorder, pulse = Recorder(rank), SimpleNamespace(asked_to_end=False)
    drafts = DirectoryDrafts(Checkpoints(folder), recorder, 3, keep_best=False)
    worker = worker_in(Script(program="mine.py", strategy=strategy), joined(number), recorder, pulse, drafts)
    try:
        return loop(worker, WRAPPERS[wrapper], die)
    finally:
        worker.close()


CHANGES = [("compiled", "plain"), ("plain", "compiled within"), ("compiled and parallel", "plain")]


def in_two_lives(rank: int, world_size: int) -> Any:
    whole = attempt(rank, 0, Path("../whole"), "plain")
    found = []
    for number, (before, after) in enumerate(CHANGES):
        attempt(rank, 2 * number + 1, Path(f"../cut-{number}"), before, die=True)
        found.append(attempt(rank, 2 * number + 2, Path(f"../cut-{number}"), after))
    checkpoints = Checkpoints(Path("../cut-0"))
    saved = SavedWeights(checkpoints.path(SAVED_AT), checkpoints.manifest(SAVED_AT))
    return whole, found, sorted(saved)


@pytest.mark.slow  # over servers it is resumed below
def test_a_run_is_resumed_bit_for_bit_with_its_codec_when_the_network_is_wrapped_otherwise(workers):
    for whole, found, names in workers(2, in_two_lives):
        assert names == sorted(Net().state_dict())
        for change, resumed in zip(CHANGES, found, strict=True):
            for name, values in whole.items():
                torch.testing.assert_close(resumed[name], values, rtol=0, atol=0, msg=f"{change}: {name}")


def over_servers(rank: int, world_size: int) -> Any:
    strategy = {"workers": world_size - 1}
    for name, wrapper, die in (("whole", "plain", False), ("cut", "compiled", True)):
        found = own_served(
            rank, world_size, lambda worker, wrap=WRAPPERS[wrapper], die=die: loop(worker, wrap, die), strategy, name
        )
        if name == "whole":
            whole = found
    resumed = own_served(rank, world_size, lambda worker: loop(worker, WRAPPERS["plain"], False), strategy, "cut")
    return (whole.weights, found.weights, resumed.weights) if rank == 0 else None


@pytest.mark.slow  # over all-reduce above
def test_over_servers_a_compiled_network_is_saved_and_resumed_under_its_own_names(workers):
    whole, cut, resumed = workers(3, over_servers)[0]
    assert set(whole) == set(cut) == set(Net().state_dict())
    for name, values in whole.items():
        torch.testing.assert_close(resumed[name], values, rtol=0, atol=0, msg=name)
