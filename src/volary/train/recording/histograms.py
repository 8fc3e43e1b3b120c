"""Histograms of weights, gradients and updates at some steps: they show whether each layer learns, and how fast.

The update of a parameter is what a step has changed of it; its mean magnitude over that of the parameter is about 0.001
where the learning rate fits (a rule of thumb, as in Deeplearning4j's and Karpathy's notes). Over parameter
servers it is what has changed when this worker's next contribution begins: all updates in between.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from volary.exchange.gradients.plain_layers import only_looks

if TYPE_CHECKING:
    from torch import Tensor, nn

    from volary.session.values.period import Period
    from volary.train.recording.recorder import Recorder

BINS = 40
MOST_VALUES = 2**16  # of a parameter: of more, as many at equal distances
MOST_SHARE = 0.005  # of training's time; what would take more is left out until it does not


class Histograms:
    """Of the parameters of `module`, on one worker. settle: waits until all updates are in them.

    wanted: whether this worker measures; all have the same parameters, so one is enough. A gradient is this worker's
    own, of its share of the batch; of a layer that sends factors there is none.
    """

    def __init__(
        self, module: nn.Module, recorder: Recorder, period: Period, settle: Callable[[], None], *, wanted: bool
    ) -> None:
        self._named = [(name, one) for name, one in module.named_parameters() if one.requires_grad]
        self._recorder, self._period, self._settle, self._wanted = recorder, period, settle, wanted
        self._began_s, self._took_s = time.perf_counter(), 0.0
        self._begun = 0  # the newest step; 0: none yet
        self._before: dict[str, Tensor] = {}
        self._gradients: dict[str, Tensor] = {}
        self._hooks: list[Any] = []

    def begin(self, done: int, steps_per_epoch: int) -> None:
        """A step begins after `done` others; it may be one to measure. Steps without this worker are not begun here."""
        before, self._begun = self._begun or done, done + 1
        if not self._wanted or not self._period.ends_within(before, self._begun, steps_per_epoch):
            return
        started_s = time.perf_counter()
        if self._took_s > MOST_SHARE * (started_s - self._began_s):
            return
        self._settle()
        self._before = {name: _some(parameter).clone() for name, parameter in self._named}
        for name, parameter in self._named:
            hook = only_looks(self._keep(name))
            self._hooks.append(parameter.register_hook(hook))  # type: ignore[no-untyped-call]
        self._took_s += time.perf_counter() - started_s

    def end(self) -> None:
        """Write down the histograms of the step that has ended, if it was one of those that are looked at."""
        if not self._before:
            return
        started_s = time.perf_counter()
        for hook in self._hooks:
            hook.remove()
        self._settle()
        found = []
        for name, parameter in self._named:
            now = _some(parameter)
            found.append(_histogram("weight", name, now))
            found.append(_histogram("update", name, now - self._before[name]))
            if (gradient := self._gradients.get(name)) is not None:
                found.append(_histogram("gradient", name, gradient))
        self._recorder.histograms([one for one in found if one is not None])
        self._before, self._gradients, self._hooks = {}, {}, []
        self._took_s += time.perf_counter() - started_s

    def _keep(self, name: str) -> Callable[[Tensor], None]:
        def keep(gradient: Tensor) -> None:
            some = _some(gradient)
            held = self._gradients.get(name)
            self._gradients[name] = some.clone() if held is None else held + some  # of several parts of a batch

        return keep


def _some(values: Tensor) -> Tensor:
    """Up to so many of them, always the same ones, flat."""
    flat = values.detach().reshape(-1)
    return flat[:: -(-flat.numel() // MOST_VALUES)] if flat.numel() else flat


def _histogram(kind: str, name: str, values: Tensor) -> tuple[str, str, float, float, float, list[int]] | None:
    """In plain values; None if there is nothing to be seen, or some are no numbers."""
    values = values.float()
    if not values.numel() or not bool(values.isfinite().all()):
        return None
    low, high = (float(bound) for bound in torch.aminmax(values))
    counts = torch.histc(values, BINS, low, high) if high > low else values.new_tensor([values.numel()])
    return kind, name, low, high, float(values.abs().mean()), [int(count) for count in counts.tolist()]
