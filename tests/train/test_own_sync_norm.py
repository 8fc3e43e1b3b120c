"""`worker.sync_batch_norm`: a loop with batch norms equals one process on N workers, also where one has no sample."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from train._own_loops import CLASSES, FEATURES, points
from train.test_own_loop import call
from volary.errors import BadInput

LOCAL = {"consistency": {"name": "local", "period": 2}}


def network() -> nn.Module:
    torch.manual_seed(1)
    layers = (nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, CLASSES))
    return nn.Sequential(*layers).double()


def loop(worker: Any) -> dict[str, Any]:
    """Three epochs of batches of 5, the last one of 2: the third of three workers has none of it."""
    model = worker.sync_batch_norm(network())
    model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9))
    seen = []
    for _ in range(3):
        for inputs, targets in worker.feed(points(22), batch_size=5):
            nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
            optimizer.zero_grad()
            seen.append(len(inputs))
    return {"state": model.state_dict(), "seen": seen}


def in_one(rank: int, world_size: int) -> dict[str, Any]:
    return call(loop, rank, world_size, 0, strategy={})[0]


def differing(rank: int, world_size: int) -> str:
    with pytest.raises(BadInput) as told:
        call(loop, rank, world_size, 0, strategy=LOCAL)
    return str(told.value)


def test_workers_with_shares_of_any_size_equal_one_process(workers):
    (alone,) = workers(1, in_one)
    everyone = workers(3, in_one)
    assert everyone[2]["seen"][4] == 0
    assert all(everyone[0]["seen"])
    for found in everyone:
        assert list(found["state"]) == list(alone["state"])
        for name, expected in alone["state"].items():
            torch.testing.assert_close(
                found["state"][name], expected, rtol=0, atol=1e-10, msg=lambda text, name=name: name + text
            )


@pytest.mark.slow  # the same check as of a session
def test_workers_whose_models_differ_are_refused(workers):
    assert "with this consistency workers' models differ" in workers(2, differing)[0]


def test_a_model_without_a_batch_norm_is_refused():
    def none(worker: Any) -> None:
        worker.sync_batch_norm(nn.Linear(2, 2))

    with pytest.raises(BadInput, match="given a model without a batch norm in it"):
        call(none, 0, 1, 0, strategy={})
