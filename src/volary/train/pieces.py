"""An elementwise update rule, taken apart: each chunk of the parameters is updated when its gradient has come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from volary.exchange._plan import in_memory_order

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

COUNTER = "step"  # torch's optimisers count a parameter's updates under this name; all else that is a tensor is values


@dataclass(frozen=True)
class Portion:
    """Values `start` to `end`, in the order in memory, of a parameter; gradient: theirs, (end - start,)."""

    parameter: Tensor
    start: int
    end: int
    gradient: Tensor


class Pieces:
    """Optimisers of the portions of each chunk, which together do what one over all parameters does.

    build: an optimiser of given tensors. clip_value: bound of each gradient value. Their state is kept in the form of
    `whole`, an optimiser of all parameters: a checkpoint says nothing of chunks.
    """

    def __init__(
        self,
        chunks: Sequence[Sequence[Portion]],
        build: Callable[[list[Tensor]], Optimizer],
        whole: Optimizer,
        clip_value: float | None,
    ) -> None:
        self._chunks, self._whole, self._clip_value = chunks, whole, clip_value
        # views share their parameter's version: whoever still needs the old values in a backward is told by autograd
        self._values = [
            [in_memory_order(one.parameter.detach())[one.start : one.end] for one in chunk] for chunk in chunks
        ]
        self._rules = [build(values) for values in self._values]
        whole.state.clear()

    def set_lr(self, rates: Sequence[float]) -> None:
        """The learning rate of each group of parameters, from the next update on."""
        for rule in self._rules:
            for group, rate in zip(rule.param_groups, rates, strict=True):
                group["lr"] = rate

    def apply(self, number: int, used: Sequence[bool], scale: float = 1.0) -> None:
        """Update the portions of chunk `number`; not those of parameters that no rank used. scale: of gradients."""
        for value, portion, counts in zip(self._values[number], self._chunks[number], used, strict=True):
            gradient = portion.gradient if scale == 1.0 else portion.gradient * scale
            value.grad = self._clipped(gradient) if counts else None
        self._rules[number].step()

    def gather(self) -> dict[str, Any]:
        """The state of all, as `whole` would have it."""
        found: dict[Tensor, dict[str, Any]] = {}
        for chunk, values, rule in zip(self._chunks, self._values, self._rules, strict=True):
            for portion, value in zip(chunk, values, strict=True):
                for key, entry in rule.state.get(value, {}).items():
                    _put(found.setdefault(portion.parameter, {}), key, entry, portion)
        self._whole.state.clear()
        self._whole.state.update(found)
        state = self._whole.state_dict()
        self._whole.state.clear()
        return state

    def scatter(self, state: dict[str, Any]) -> None:
        """Go on from such a state."""
        load_state(self._whole, state)
        for chunk, values, rule in zip(self._chunks, self._values, self._rules, strict=True):
            for portion, value in zip(chunk, values, strict=True):
                rule.state[value] = {
                    key: _share(key, entry, portion)
                    for key, entry in self._whole.state.get(portion.parameter, {}).items()
                }
        self._whole.state.clear()

    def _clipped(self, gradient: Tensor) -> Tensor:
        return gradient if self._clip_value is None else gradient.clamp(-self._clip_value, self._clip_value)


def load_state(optimizer: Optimizer, state: dict[str, Any]) -> None:
    """Set an optimiser's state, in the order in memory of its parameters: it may have come in another.

    torch's fused rules read a parameter and its state as flat runs, each in its own order.
    """
    optimizer.load_state_dict(state)
    for parameter, entries in optimizer.state.items():
        for key, entry in entries.items():
            values = isinstance(entry, torch.Tensor) and entry.shape == parameter.shape
            if values and entry.stride() != parameter.stride():
                entries[key] = torch.empty_like(parameter, dtype=entry.dtype, requires_grad=False).copy_(entry)


def _put(state: dict[str, Any], key: str, entry: Any, portion: Portion) -> None:
    """Add a portion's entry to its parameter's state: values go to their place, anything else is alike in all."""
    if isinstance(entry, torch.Tensor) and entry.dim() == 1 and key != COUNTER:
        whole = state.setdefault(key, torch.empty_like(portion.parameter, dtype=entry.dtype, requires_grad=False))
        in_memory_order(whole)[portion.start : portion.end] = entry
    else:
        state[key] = entry.clone() if isinstance(entry, torch.Tensor) else entry


def _share(key: str, entry: Any, portion: Portion) -> Any:
    if isinstance(entry, torch.Tensor) and entry.shape == portion.parameter.shape and key != COUNTER:
        return in_memory_order(entry)[portion.start : portion.end].clone()
    return entry.clone() if isinstance(entry, torch.Tensor) else entry
