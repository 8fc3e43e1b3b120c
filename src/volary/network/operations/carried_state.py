"""A state that a network keeps from batch to batch: truncated back-propagation (Williams & Peng 1990)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class CarriedState(nn.Module):
    """Values of `shape` for each sample of a batch: those that the sample before it in its stream has ended with.

    No gradient goes from a batch to the one before. A forward only offers what comes next, and whoever trains lets it
    count (`advance`), so that one that is tried, or run again, changes nothing. keeping: whether somebody does; if not,
    each sample begins with zeros.
    """

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.shape, self.keeping = shape, False
        self.now: Tensor | None = None  # (batch, *shape); None: zeros
        self._offered: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """The values (batch, *shape) that the samples x (batch, ...) begin with, of its type and on its device."""
        if not self.keeping or self.now is None:
            return x.new_zeros(x.shape[0], *self.shape)
        return self.now.to(x)

    def offer(self, values: Tensor) -> None:
        """Give the values (batch, *shape) that the samples of this batch end with."""
        if self.keeping:
            self._offered = values.detach()

    def advance(self) -> None:
        """Go on from what was offered last. A sample whose values are not finite begins anew; so do all without any."""
        values, self._offered = self._offered, None
        if values is not None:
            finite = values.flatten(1).isfinite().all(1).view(-1, *[1] * len(self.shape))
            values = torch.where(finite, values, 0)
        self.now = values

    def begin_anew(self) -> None:
        """Let every sample of the next batch begin with zeros."""
        self.now = self._offered = None


def carried_states(module: nn.Module) -> dict[str, CarriedState]:
    """The states that the parts of a network keep, by name."""
    return {name: part for name, part in module.named_modules() if isinstance(part, CarriedState)}


@contextmanager
def states_apart(module: nn.Module, *, keeping: bool) -> Iterator[None]:
    """Let the network begin anew for a while, and keep its states or not; afterwards they are what they were."""
    states = list(carried_states(module).values())
    before = [(state, state.now, state.keeping) for state in states]
    for state in states:
        state.begin_anew()
        state.keeping = keeping
    try:
        yield
    finally:
        for state, now, kept in before:
            state.begin_anew()
            state.now, state.keeping = now, kept


def state_of(layer: nn.LSTM | nn.GRU) -> CarriedState:
    """A state for a recurrent layer that reads in one direction: what each of its layers ends with."""
    return CarriedState(layer.num_layers * (2 if isinstance(layer, nn.LSTM) else 1), layer.hidden_size)


def recur(layer: nn.LSTM | nn.GRU, x: Tensor, state: CarriedState | None) -> Tensor:
    """Outputs (batch, time, hidden) of a recurrent layer for x (batch, time, width), from its `state` on if it keeps
    one.
    """
    if state is None:
        found: Tensor = layer(x)[0]
        return found
    begins = state(x).transpose(0, 1).contiguous()
    if isinstance(layer, nn.LSTM):
        hidden, cells = begins.chunk(2)
        found, parts = layer(x, (hidden, cells))
        ends = torch.cat(parts)
    else:
        found, ends = layer(x, begins)
    state.offer(ends.transpose(0, 1))
    return found
