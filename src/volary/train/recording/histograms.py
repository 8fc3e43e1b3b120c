"""Histograms of weights, gradients and updates at some steps: they show whether each layer learns, and how fast.

The update of a parameter is what a step has changed of it; its mean magnitude over that of the parameter is about 0.001
where the learning rate fits (a rule of thumb, as in Deeplearning4j's and Karpathy's notes). Over parameter
servers it is what has changed when this worker's next contribution begins: all updates in between; a step behind what
the gradients of the step before have changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from volary.exchange.gradients.plain_layers import only_looks
from volary.exchange.gradients.plan import values_in
from volary.naming import trained_parameters
from volary.sharding.ranges import Range

if TYPE_CHECKING:
    from torch import Tensor, nn

    from volary.session.values.period import Period
    from volary.sharding.holdings import Holdings
    from volary.train.recording.recorder import Recorder

BINS = 40
MOST_VALUES = 2**16  # of a parameter: of more, as many at equal distances
MOST_SHARE = 0.005  # of training's time; what would take more is left out until it does not


class HistogramBudget:
    """The time that histograms may take. Measurements are made within it."""

    def __init__(self) -> None:
        self._began_s, self._took_s, self._started_s = time.perf_counter(), 0.0, 0.0

    @property
    def spent(self) -> bool:
        """Whether they have taken their share already."""
        return self._took_s > MOST_SHARE * (time.perf_counter() - self._began_s)

    def __enter__(self) -> None:
        self._started_s = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._took_s += time.perf_counter() - self._started_s


class UpdateHistograms:
    """Measures one update of each of the `named` parameters, from now until `write`.

    kept: of their values it looks at those that this worker keeps; None: at all.
    """

    def __init__(self, named: Sequence[tuple[str, Tensor]], kept: Holdings | None = None) -> None:
        self._named, self._kept = named, kept
        self._before = [self._look(name, parameter).clone() for name, parameter in named]
        self._gradients: dict[str, Tensor] = {}

    def add_gradient(self, name: str, gradient: Tensor) -> None:
        """Add what backward gives this parameter for a part of a batch, in its shape. A sparse gradient is ignored."""
        if gradient.is_sparse:
            return
        some = _some(gradient)
        held = self._gradients.get(name)
        self._gradients[name] = some.clone() if held is None else held + some

    def write(self, recorder: Recorder) -> None:
        """Record how they are now, their gradients, and what has changed."""
        found = []
        for (name, parameter), before in zip(self._named, self._before, strict=True):
            now = self._look(name, parameter)
            found += [_histogram("weight", name, now), _histogram("update", name, now - before)]
            if (gradient := self._gradients.get(name)) is not None:
                found.append(_histogram("gradient", name, gradient))
        recorder.histograms([one for one in found if one is not None])

    def _look(self, name: str, parameter: Tensor) -> Tensor:
        if self._kept is None:
            return _some(parameter)
        parts = self._kept.kept(Range(name, 0, parameter.numel()))
        return torch.cat([parameter.new_empty(0), *(_some(values_in(part, parameter), len(parts)) for part in parts)])


class Histograms:
    """Histograms of the parameters of `module`, on one worker. await_all: waits until a step may compute with them.

    kept: it looks at what this worker keeps of them; None: at all of them, which all workers have, so one worker is
    enough: the leader. A gradient is this worker's own, of its share of
    the batch; a layer that sends factors has none.
    """

    def __init__(
        self,
        module: nn.Module,
        recorder: Recorder,
        period: Period,
        await_all: Callable[[], None],
        kept: Holdings | None = None,
    ) -> None:
        self._named = list(trained_parameters(module).items())
        self._recorder, self._period, self._await_all, self._kept = recorder, period, await_all, kept
        self._budget = HistogramBudget()
        self._begun = 0  # the newest step; 0: none yet
        self._measured: UpdateHistograms | None = None
        self._hooks: list[Any] = []

    def begin(self, done: int, steps_per_epoch: int) -> None:
        """A step begins after `done` others; it may be one to measure. Steps without this worker are not begun here."""
        before, self._begun = self._begun or done, done + 1
        due = self._recorder.leads and self._period.ends_within(before, self._begun, steps_per_epoch)
        if not due or self._budget.spent:
            return
        with self._budget:
            self._await_all()
            self._measured = UpdateHistograms(self._named, self._kept)
            for name, parameter in self._named:
                hook = only_looks(_adding(self._measured, name))
                self._hooks.append(parameter.register_hook(hook))

    def end(self) -> None:
        """Write down the histograms of the step that has ended, if it was one of those that are looked at."""
        if self._measured is None:
            return
        with self._budget:
            for hook in self._hooks:
                hook.remove()
            self._await_all()
            self._measured.write(self._recorder)
            self._measured, self._hooks = None, []


def _adding(measured: UpdateHistograms, name: str) -> Callable[[Tensor], None]:
    return lambda gradient: measured.add_gradient(name, gradient)


def _some(values: Tensor, parts: int = 1) -> Tensor:
    """Up to MOST_VALUES of them all, in so many parts of which this is one; always the same ones, flat."""
    flat = values.detach().reshape(-1)
    return flat[:: -(-flat.numel() * parts // MOST_VALUES)] if flat.numel() else flat


def _histogram(kind: str, name: str, values: Tensor) -> tuple[str, str, float, float, float, list[int]] | None:
    """A histogram in plain values; None if there is nothing to see, or some values are not finite."""
    values = values.float()
    if not values.numel() or not bool(values.isfinite().all()):
        return None
    low, high = (float(bound) for bound in torch.aminmax(values))
    counts = torch.histc(values, BINS, low, high) if high > low else values.new_tensor([values.numel()])
    return kind, name, low, high, float(values.abs().mean()), [int(count) for count in counts.tolist()]
