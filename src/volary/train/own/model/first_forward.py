"""Before the first forward that is trained on: twice through the model, to choose how its layers travel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from volary.exchange.choice.rows import estimated
from volary.network.dry_run import unchanged

if TYPE_CHECKING:
    from torch import nn
    from torch.utils.hooks import RemovableHandle

    from volary.train.recording.recorder import Recorder
    from volary.train.strategies.adapting import Adapting

PASSES = 3  # times a forward pass: what it takes together with backward


def choose_with_first_forward(model: nn.Module, strategy: Adapting, passes: int, recorder: Recorder) -> RemovableHandle:
    """Have the strategy choose representations by an estimate of the model's step, `passes` times a backward pass.

    The hook that is returned removes itself once that is done.
    """

    def entering(model: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        # of a layer alone Torch has taken the forward that it is about to call
        if not (model.training and torch.is_grad_enabled() and any(model.children())):
            return
        hook.remove()
        with unchanged(model):
            model(*inputs, **named)  # the first one takes longer than those that follow
            with estimated(model, samples=1) as estimate:
                model(*inputs, **named)
        estimate.compute_s *= PASSES
        strategy.choose(estimate.of(passes))
        recorder.enter("forward")

    hook = model.register_forward_pre_hook(entering, with_kwargs=True)
    return hook
