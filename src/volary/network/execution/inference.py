"""A network that computes outputs alone, quicker: batch norms in the convolutions before them, channels last."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Container
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torch.nn.utils.parametrize import is_parametrized

from volary.naming import named_modules
from volary.network.execution.channels_last import with_channels_last

_PAIRS = ((nn.Conv1d, nn.BatchNorm1d), (nn.Conv2d, nn.BatchNorm2d), (nn.Conv3d, nn.BatchNorm3d))
_ROUNDING = 1e-4  # of the largest output: what sums in another order may differ by


@torch.no_grad()
def for_inference(module: nn.Module, inputs: Tensor, kept: Container[str] = ()) -> nn.Module:
    """A copy of a network in evaluation mode that gives the same to rounding, on `inputs` (n, ...) at least.

    Where a `Sequential` has a convolution and then a batch norm, these two are one (as in Jacob et al., CVPR 2018,
    section 3.2), and images are stored with their channels last, which convolutions and pooling go over in one piece.
    kept: names of layers whose own outputs are wanted. The module itself if it has neither such a pair nor convolutions
    of images, or its code does not let it be changed so.
    """
    found: nn.Module = copy.deepcopy(module)
    if not _fold(found, kept) and not any(isinstance(part, nn.Conv2d) for part in found.modules()):
        return module
    found.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    found.register_forward_pre_hook(lambda _, given: tuple(map(with_channels_last, given)))
    try:
        ours, theirs = found(inputs), module(inputs)
    except Exception:  # a user's network may want its layers as they were, and say so in any way
        return module
    if not isinstance(ours, Tensor) or (ours - theirs).abs().max() > _ROUNDING * theirs.abs().max():
        return module
    return found


def _fold(module: nn.Module, kept: Container[str]) -> int:
    """Fold what can be folded, in place; how many pairs."""
    uses = Counter(id(child) for part in module.modules() for child in part._modules.values())
    names = {id(part): name for name, part in named_modules(module)}
    pairs = 0
    for parent in list(module.modules()):
        if type(parent) is not nn.Sequential:
            continue
        for place in range(len(parent) - 1):
            first, second = parent[place], parent[place + 1]
            alone = uses[id(first)] == uses[id(second)] == 1
            wanted = names.get(id(first)) in kept or names.get(id(second)) in kept
            if alone and not wanted and (type(first), type(second)) in _PAIRS and not is_parametrized(first):
                one: Any = fuse_conv_bn_eval(cast("Any", first), cast("Any", second))
                parent[place], parent[place + 1] = one, nn.Identity()
                pairs += 1
    return pairs
