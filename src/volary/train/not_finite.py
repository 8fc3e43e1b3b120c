"""Finds the source of a loss that is NaN or infinite: the batch, a parameter, or the first layer with such outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from volary.naming import named_modules, named_parameters

if TYPE_CHECKING:
    from volary.data.batching.batch import Batch
    from volary.network.flow import Flow
    from volary.train.coordinator import MicroBatch


def origin(
    flow: Flow,
    parts: Iterable[tuple[Batch | MicroBatch, Callable[[int], int]]],
    casting: Callable[[], AbstractContextManager[Any]],
    called: Callable[[int], str],
) -> str:
    """Say where a loss that is not finite comes from; return "" if another forward pass of the same samples does not
    show it.

    parts: samples whose loss was not finite, each with a function that gives the number in the data of the sample at a
    place. called: gives the name of the sample with a number. This costs a forward pass and no collective; batch norm's
    statistics see the samples again, so it is for a run that ends here. Never raises.
    """
    with suppress(Exception):  # the sentence that this belongs to must be said in any case
        if named := _parameter(flow.module):
            return named
        for part, number in parts:
            if named := _samples(part.inputs, number, called):
                return named
            if flow.counted(part.targets) and (named := _layer(flow, part, casting)):
                return named
    return ""


def _samples(inputs: Tensor, number: Callable[[int], int], called: Callable[[int], str]) -> str:
    if _finite(inputs):
        return ""
    first, *more = (~inputs.isfinite().reshape(len(inputs), -1).all(1)).nonzero().flatten().tolist()
    others = f" and {len(more)} more" if more else ""
    return f"first in the inputs of its batch, in {called(number(first))}{others}"


def _parameter(module: nn.Module) -> str:
    # no buffers: batch norm's statistics have been spoilt by this very batch
    bad = (name for name, parameter in named_parameters(module) if not _finite(parameter))
    return next((f"first in the parameter {name}, since an earlier step" for name in bad), "")


def _layer(flow: Flow, part: Batch | MicroBatch, casting: Callable[[], AbstractContextManager[Any]]) -> str:
    """The first module to finish with such an output: of nested ones the innermost."""
    found: list[str] = []
    hooks = [
        module.register_forward_hook(_looking(name or "the network", found))
        for name, module in named_modules(flow.module)
    ]
    try:
        with torch.no_grad(), casting():
            loss = flow(part.inputs, part.targets)
    finally:
        for hook in hooks:
            hook.remove()
    if found:
        return f"first in the output of {found[0]}"
    return "" if _finite(loss) else "first in the loss, of outputs that are finite"


def _looking(name: str, found: list[str]) -> Callable[[nn.Module, Any, Any], None]:
    def look(module: nn.Module, _: Any, output: Any) -> None:
        if not found and not all(map(_finite, _tensors(output))):
            found.append(f"{name} ({type(module).__name__})")

    return look


def _tensors(output: Any) -> Iterable[Tensor]:
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, dict):
        for value in output.values():
            yield from _tensors(value)
    elif isinstance(output, (tuple, list)):
        for value in output:
            yield from _tensors(value)


def _finite(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() or bool(tensor.isfinite().all())
