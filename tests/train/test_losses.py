"""The loss of a loop of one's own: what backward is called on, and whether it is a sum."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from train._own_loops import network, points
from train.test_own_loop import call
from volary.network.loss_graph import sum_in

INPUTS, TARGETS = points(6).tensors


def scores() -> torch.Tensor:
    found: torch.Tensor = network()(INPUTS)
    return found


@pytest.mark.parametrize(
    ("loss", "shown"),
    [
        (lambda: functional.cross_entropy(scores(), TARGETS, reduction="sum"), 'NllLoss with reduction="sum"'),
        (lambda: -functional.mse_loss(scores(), scores(), reduction="sum"), 'MseLoss with reduction="sum"'),
        # of pytorch/examples' VAE: a reconstruction, and a divergence with a factor
        (
            lambda: (
                functional.binary_cross_entropy(scores().sigmoid(), scores().sigmoid().detach(), reduction="sum")
                + -0.5 * scores().sum()
            ),
            'BinaryCrossEntropy with reduction="sum"',
        ),
        (lambda: functional.cross_entropy(scores(), TARGETS, reduction="none").sum(), "sum()"),
        (lambda: functional.cross_entropy(scores(), TARGETS), ""),
        (lambda: functional.cross_entropy(scores(), TARGETS, reduction="sum") / 6, ""),
        (lambda: functional.cross_entropy(scores(), TARGETS) + network()[0].weight.square().sum(), ""),
    ],
)
def test_a_sum_over_samples_is_told_from_a_mean(loss, shown):
    assert sum_in(loss(), 6) == shown


def losing(worker: Any, *, early: bool = False, reduction: str = "mean", passes: int = 1, loss: Any = "mean") -> Any:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = worker.distribute(model, optimizer, passes=passes, loss=loss, early_update=early)
    for number, (inputs, targets) in enumerate(worker.feed(points(22), batch_size=4, shuffle=False)):
        outputs = checkpoint(model, inputs.requires_grad_(), use_reentrant=True) if number == 1 else model(inputs)
        found = functional.cross_entropy(outputs, targets, reduction=reduction)
        (found / passes if passes > 1 else found).backward()
        if number % passes == passes - 1:
            optimizer.step()
            optimizer.zero_grad()
    return None


WAYS: list[dict[str, Any]] = [{}, {"early": True}, {"passes": 2}, {"reduction": "sum", "loss": "sum"}]


def rows(rank: int, world_size: int) -> Any:
    found = []
    for attempt, way in enumerate([*WAYS, {"reduction": "sum"}]):
        strategy = {"exchange": {"name": "allreduce", "route": "torch"}}
        _, recorder = call(lambda worker, way=way: losing(worker, **way), rank, world_size, attempt, strategy=strategy)
        warnings = [one["data"]["text"] for one in recorder.events if one.get("event") == "warning"]
        found.append(([row.loss for row in recorder.rows], warnings))
    return found


@pytest.mark.slow  # test_behaviours.py has losses of all kinds
def test_steps_have_the_loss_that_backward_was_called_on_over_all_workers_and_a_sum_is_told_once(workers):
    alone = rows(0, 1)
    for rank, found in enumerate(workers(2, rows)):
        for (mine, warnings), (expected, _) in zip(found[: len(WAYS)], alone, strict=False):
            assert mine == pytest.approx(expected, rel=1e-6)  # votes travel as fp32
            assert len(mine) in (3, 6)
            assert warnings == []
        _, warnings = found[-1]
        assert warnings == ([SUMMED] if rank == 0 else [])


SUMMED = (
    'the loss is a sum over samples (NllLoss with reduction="sum"), and gradients are taken as those of a mean, as '
    'DistributedDataParallel does; accepted for a sum: worker.distribute(..., loss="sum")'
)


def test_a_gradient_of_no_scalar_has_no_loss():
    def loop(worker: Any) -> None:
        model = network()
        model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
        outputs = model(INPUTS)
        outputs.backward(torch.ones_like(outputs))
        optimizer.step()

    _, recorder = call(loop, 0, 1, 0)
    (row,) = recorder.rows
    assert row.loss != row.loss
