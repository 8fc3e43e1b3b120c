"""Counts the rows that each layer would send as factors in a step: the choice of its representation needs them."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from volary.exchange.gradients import row_blocks
from volary.exchange.gradients.factor_hooks import outer_layers
from volary.exchange.gradients.plain_layers import in_type_of
from volary.naming import named_parameters

if TYPE_CHECKING:
    from torch import Tensor
    from torch.utils.hooks import RemovableHandle

_THREAD = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)  # not on every system


@dataclass
class StepEstimate:
    """An estimate of one worker's step on so many samples. rows: by the weight that they are multiplied with.

    compute_s: of forward and backward, on the cores that the worker has, or on one alone if it has less.
    """

    samples: float = 1.0
    rows: Mapping[str, float] = field(default_factory=dict)
    compute_s: float = 0.0

    def of(self, samples: float) -> StepEstimate:
        """The same on so many samples: all of it in proportion."""
        scale = samples / self.samples
        return StepEstimate(samples, {name: scale * rows for name, rows in self.rows.items()}, scale * self.compute_s)


@contextmanager
def estimated(module: nn.Module, samples: int) -> Iterator[StepEstimate]:
    """Estimate a step by what is computed meanwhile with `module`, on so many samples; complete at the end."""
    counter, found, clock = RowCounter(module), StepEstimate(samples), _clock(module)
    _await_device(module)
    began_s = clock()
    try:
        yield found
        _await_device(module)
        found.rows, found.compute_s = counter.seen(), clock() - began_s
    finally:
        counter.remove()


def _clock(module: nn.Module) -> Callable[[], float]:
    """The clock that measures seconds of computing.

    A single thread's own: others may have its core meanwhile. Without the system's, which gives it memory for
    gradients: in a step they have theirs.
    """
    on_cpu = all(parameter.device.type == "cpu" for parameter in module.parameters())
    return _own_s if on_cpu and torch.get_num_threads() == 1 else time.perf_counter


def _own_s() -> float:
    return resource.getrusage(_THREAD).ru_utime


def _await_device(module: nn.Module) -> None:
    """Wait until all is computed that was asked of the module's device."""
    for device in {parameter.device for parameter in module.parameters() if parameter.device.type == "cuda"}:
        torch.cuda.synchronize(device)


class RowCounter:
    """Counts the rows that the candidates in `module` work on in forward passes that are trained on.

    Candidates: large fully connected layers, embeddings, 1 x 1 convolutions, each with a weight of its own.
    Rows that are computed in another type than the weight's, as under autocast, do not count: there are no factors.
    """

    def __init__(self, module: nn.Module) -> None:
        names = {id(parameter): name for name, parameter in named_parameters(module)}
        self._counters: dict[str, _Counter] = {}
        self._hooks: list[RemovableHandle] = []
        for layer, weight in outer_layers(module):
            if type(layer) is nn.Linear and weight.numel() * weight.element_size() < row_blocks.LARGE_BYTES:
                continue
            counter = _Counter(weight.shape[1] if type(layer) is nn.Embedding else weight.shape[0])
            self._counters[names[id(weight)]] = counter
            self._hooks.append(layer.register_forward_hook(counter))

    @property
    def names(self) -> list[str]:
        return list(self._counters)

    def seen(self) -> dict[str, int]:
        """Rows since it was last asked, by the weight's name; ask once a step."""
        seen = {name: counter.rows for name, counter in self._counters.items()}
        for counter in self._counters.values():
            counter.rows = 0
        return seen

    def remove(self) -> None:
        """Remove the hooks that count; harmless when repeated."""
        for hook in self._hooks:
            hook.remove()


class _Counter:
    """width: values of one row of the layer's output."""

    def __init__(self, width: int) -> None:
        self._width, self.rows = width, 0

    def __call__(self, layer: nn.Module, inputs: Any, output: Tensor) -> None:
        if torch.is_grad_enabled() and in_type_of(cast("Tensor", layer.weight), inputs[0] if inputs else output):
            self.rows += output.numel() // self._width

    def __reduce__(self) -> Any:
        """A copy of the network counts for nobody."""
        return _Counter, (self._width,)
