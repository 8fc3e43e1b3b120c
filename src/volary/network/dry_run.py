"""One run of a network and its loss, forward and backward, to learn before training whether they fit the data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from volary.errors import BadInput, SettingError
from volary.errors.raised import raised
from volary.network.criteria.fit import described
from volary.network.operations.single_value import ENOUGH_FOR_EACH, single_value

if TYPE_CHECKING:
    from volary.network.criterion import Criterion


def try_once(
    module: nn.Module,
    criterion: Criterion,
    inputs: Tensor,
    targets: Tensor,
    *,
    classes: int | None,
    network: str,
    loss: str,
    casting: AbstractContextManager[Any],
) -> None:
    """Raise SettingError, one sentence, if samples (n, ...) do not go through the module, the loss and backward.

    classes: how many the data has, None: not known. network, loss: their names in messages. casting: forward's context.
    """
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    with ExitStack() as around:
        around.enter_context(unchanged(module))
        with casting:
            output = _forward(module, inputs, network)
            _refuse_merged_samples(output, network, len(inputs))
            criterion.check(network, output, tuple(targets.shape[1:]), classes)
            if not trained:
                raise SettingError(
                    f"network {network!r} has no parameter to train; accepted: at least one with requires_grad"
                )
            value = _loss(criterion, output, targets, loss)
        _refuse_detached(output, value, network, loss)
        reached = around.enter_context(_dropped_gradients(trained))
        try:
            value.backward()
        except Exception as error:
            raise SettingError(f"network {network!r} and loss {loss!r}: backward {raised(error).predicate}") from error
        if not reached:
            raise SettingError(
                f"network {network!r} and loss {loss!r} give no parameter a gradient: none of them is part of the loss"
            )


@contextmanager
def _dropped_gradients(parameters: Iterable[nn.Parameter]) -> Iterator[set[int]]:
    """Yield a set of the ids of those that get a gradient; none is kept, so that they take no memory together."""
    reached = set[int]()

    def drop(parameter: Tensor) -> None:
        reached.add(id(parameter))
        parameter.grad = None

    hooks = [parameter.register_post_accumulate_grad_hook(drop) for parameter in parameters]
    try:
        yield reached
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def unchanged(module: nn.Module) -> Iterator[None]:
    """Afterwards buffers, gradients, modes and attributes of all parts are as before, and torch's generators too.

    Networks keep what they like beside their parameters: batch norm its statistics, some a hidden state or a counter.
    """
    parts = [(part, dict(vars(part)), dict(part._buffers)) for part in module.modules()]
    buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]
    gradients = [(parameter, parameter.grad) for parameter in module.parameters()]
    for parameter, _ in gradients:
        parameter.grad = None
    try:
        with _kept_generators(module):
            yield
    finally:
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
        for parameter, gradient in gradients:
            parameter.grad = gradient
        for part, attributes, own_buffers in parts:
            part._buffers.update(own_buffers)
            vars(part).update(attributes)
            for name in set(vars(part)) - set(attributes):
                del vars(part)[name]


def _forward(module: nn.Module, inputs: Tensor, network: str) -> Any:
    try:
        # Real and not on the meta device: meta kernels import sympy and dynamo, over a second; this takes milliseconds.
        return module(inputs)
    except Exception as error:
        one = " (1 sample, as a worker gets at a time)" if len(inputs) == 1 else ""
        given = f"{described(tuple(inputs.shape[1:]))} and type {str(inputs.dtype).removeprefix('torch.')}{one}"
        found = raised(error)
        text = (
            f"{norm} got a single value a channel; {ENOUGH_FOR_EACH}" if (norm := single_value(error)) else _text(error)
        )
        if found.place:
            raise SettingError(
                f"network {network!r} raised {type(error).__name__} at {found.place}, given inputs of shape {given}: "
                f"{text}"
            ) from error
        raise SettingError(f"network {network!r} does not take the data's inputs of shape {given}: {text}") from error


def _loss(criterion: Criterion, output: Any, targets: Tensor, loss: str) -> Tensor:
    try:
        return criterion(output, targets)
    except BadInput:
        raise
    except Exception as error:
        given = f"outputs {_shown(output)} and targets {_shown(targets)}"
        raise SettingError(f"loss {loss!r} {raised(error).predicate} (given {given})") from error


def _refuse_detached(output: Any, value: Tensor, network: str, loss: str) -> None:
    if value.requires_grad:
        return
    first = output[0] if isinstance(output, tuple) and output else output
    if isinstance(first, Tensor) and not first.requires_grad:
        raise SettingError(
            f"network {network!r} gives an output without a gradient (is there a detach(), a no_grad() or an argmax in "
            "its forward?)"
        )
    raise SettingError(
        f"loss {loss!r} gives a tensor without a gradient (is there a detach(), an item() or a no_grad() in it?)"
    )


def _refuse_merged_samples(output: Any, network: str, samples: int) -> None:
    """SettingError if `output` is a tensor whose first size is not the number of samples that went in."""
    first = output[0] if isinstance(output, tuple) and output else output
    if isinstance(first, Tensor) and (not first.dim() or first.shape[0] != samples):
        raise SettingError(
            f"network {network!r} gives shape {tuple(first.shape)} for {samples} samples; "
            "the first size of its output must be the number of samples (is there a view(-1, n) in it?)"
        )


def _kept_generators(module: nn.Module) -> AbstractContextManager[Any]:
    """Torch's random generators as they are, afterwards: a dry run must not change the training that follows."""
    devices = {parameter.device for parameter in module.parameters() if parameter.device.type == "cuda"}
    return torch.random.fork_rng(devices=list(devices))


def _text(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _shown(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{described(tuple(value.shape[1:]))} {str(value.dtype).removeprefix('torch.')}"
    return f"of type {type(value).__name__}"
