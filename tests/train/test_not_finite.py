"""A loss that is NaN or infinite on one worker: the run stops and says where, or that update is left out everywhere."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from train._training import OVERLAPPED, Quick, made, session, started, trained
from volary.data.batching.batch import Batch
from volary.data.order import epoch_order
from volary.errors import NotFinite
from volary.network.criteria.user_loss import UserLoss
from volary.network.flow import Flow
from volary.train.agreement import votes
from volary.train.loop import train
from volary.train.not_finite import origin

# on two workers of 10 samples a step, these lie in step 3, in the share of rank 1
ORDER = epoch_order(41, seed=1, epoch=0, shuffle=True).tolist()
SPOILT = ORDER[21]
SAMPLE = f"sample {SPOILT} of the training data"
SAID = "the loss of rank 1 is NaN or infinite at step 3"


def spoilt(policy: str, steps: int = 5, value: float = float("nan"), **settings: Any) -> Any:
    source = {"name": "spoilt_points", "spoilt": [SPOILT], "value": value}
    return session("Exact", source=source, train={"steps": steps, "on_nonfinite": policy}, **settings)


STRATEGIES: dict[str, dict[str, Any]] = {
    "auto": {},
    "torch": OVERLAPPED,
    "shares over a ring": {"partition": {"name": "sharded", "level": 2}, "exchange": {"route": "ring"}},
    "shares in shared memory": {"partition": "sharded", "exchange": {"route": "shared"}},
}
each_strategy = pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)


def stop(rank: int, world_size: int, strategy: dict[str, Any]) -> list[str]:
    before = trained(rank, world_size, spoilt("skip", 2, strategy=strategy), "before", disk=Quick())
    said = []
    for name, every in (("saved", "1 step"), ("not saved", "never")):
        one = spoilt("stop", checkpoint={"every": every}, strategy=strategy)
        it = made(rank, world_size, one, name, disk=Quick())
        with started(it), pytest.raises(NotFinite) as ended:
            train(it)
        assert it.recorder.step == 2
        for parameter, expected in before.parameters.items():
            assert torch.equal(it.flow.module.get_parameter(parameter), expected), "of the step before"
        said.append(str(ended.value))
    return said


@each_strategy
def test_stop_names_rank_step_and_the_last_good_checkpoint_on_every_rank(workers, strategy):
    for said in workers(2, stop, strategy):
        assert said == [
            f"{SAID}, first in the inputs of its batch, in {SAMPLE}; last good checkpoint: step 2",
            f"{SAID}, first in the inputs of its batch, in {SAMPLE}; last good checkpoint: none yet",
        ]


def test_ranks_are_named_as_in_a_sentence():
    said = {ranks: str(votes.not_finite(ranks, 3)).partition(" is ")[0] for ranks in ((1,), (0, 1), (0, 1, 2))}
    assert said == {
        (1,): "the loss of rank 1",
        (0, 1): "the loss of ranks 0 and 1",
        (0, 1, 2): "the loss of ranks 0, 1 and 2",
    }


def sample(number: int) -> str:
    return f"sample {number} of the training data"


class Layers(nn.Module):
    """Layers within layers, of which one may be made to give what is no number."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Sequential(nn.ReLU(), nn.Linear(4, 2)))

    def forward(self, inputs: Tensor) -> dict[str, Any]:
        return {"scores": [self.body(inputs)]}


def of(module: nn.Module, inputs: Tensor, loss: Any = lambda output, _: output["scores"][0].sum()) -> str:
    batch = Batch(inputs, torch.zeros(len(inputs)), total=len(inputs), epoch=0, step_in_epoch=0, ends_epoch=False)
    parts = [(batch, lambda place: 100 + place)]
    return origin(Flow(module, UserLoss(loss, "loss"), "train"), parts, nullcontext, sample)


def test_the_first_layer_whose_output_is_not_finite_is_named_and_of_nested_ones_the_innermost():
    module, inputs = Layers(), torch.ones(5, 3)
    assert of(module, inputs) == "", "what does not come again is not guessed"
    module.body[2][0].register_forward_hook(lambda *_: torch.full((5, 4), math.inf))
    assert of(module, inputs) == "first in the output of body.2.0 (ReLU)"
    assert len(module.body[2][0]._forward_hooks) == 1, "nothing is left on the network"
    assert not module.body[0]._forward_hooks


def test_a_parameter_that_is_not_finite_is_named_before_the_layers_that_it_spoils():
    module, inputs = Layers(), torch.ones(5, 3)
    with torch.no_grad():
        module.body[1].running_var[0] = math.nan  # by the batch itself, which is no cause
        assert of(module, inputs) == ""
        module.body[2][1].bias[1] = math.inf
    assert of(module, inputs) == "first in the parameter body.2.1.bias, since an earlier step"


def test_a_batch_or_a_loss_that_is_not_finite_is_told_from_the_network():
    inputs = torch.ones(5, 3)
    assert of(Layers(), inputs, lambda *_: torch.tensor(0.0).log()) == "first in the loss, of outputs that are finite"
    inputs[4, 0] = math.nan
    assert of(Layers(), inputs) == "first in the inputs of its batch, in sample 104 of the training data"
    inputs[2:4] = math.inf
    assert of(Layers(), inputs) == "first in the inputs of its batch, in sample 102 of the training data and 2 more"


def test_looking_for_it_never_raises():
    def fails(*_: Any) -> Tensor:
        raise RuntimeError

    assert of(Layers(), torch.ones(5, 3), fails) == ""


def skip(rank: int, world_size: int, strategy: dict[str, Any]) -> Any:
    def end_of(name: str, *more: Any) -> Any:
        return trained(rank, world_size, spoilt("skip", *more, strategy=strategy), name, disk=Quick())

    before = end_of("before", 2)
    at_once = [end_of(str(value), 3, value) for value in (float("nan"), 1e999)]
    return before, at_once, end_of("after", 5)


@each_strategy
def test_skip_leaves_parameters_untouched_counts_an_event_and_goes_on(workers, strategy):
    everyone = workers(2, skip, strategy)
    for before, at_once, after in everyone:
        for one in at_once:
            assert math.isnan(one.losses[2])
            assert all(torch.equal(one.parameters[name], expected) for name, expected in before.parameters.items())
        assert (after.outcome, len(after.rows)) == ("finished", 5)
        for name, expected in everyone[0][2].parameters.items():
            assert torch.equal(after.parameters[name], expected)
            assert torch.isfinite(expected).all()
            assert torch.equal(expected, before.parameters[name]) is name.startswith("unused")
    assert [after.events("skipped") for *_, after in everyone] == [[{"ranks": [1]}], []], "said once, by rank 0"
