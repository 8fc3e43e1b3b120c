"""The centre of elastic averaging on a worker over servers: it is pulled there, beside what the network has."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from volary.naming import named_parameters
from volary.train.strategies.averaging.skeleton import centre_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import nn

    from volary.train.served.layout import Layout


class Centre:
    """Of `module`, whose parameters stay this worker's own. part: of its distance by which it pulls. workers: of the
    run as it begins. It is a `RankState`: a checkpoint has each worker's own parameters.
    """

    def __init__(self, module: nn.Module, part: float, workers: int) -> None:
        self.part, self._workers = part, workers
        self.own = {name: one for name, one in named_parameters(module) if one.requires_grad}
        centre = dict(named_parameters(centre_of(module)))
        self._values = {name: centre[name] for name in self.own}
        self._begun = False

    def beside(self, layout: Layout) -> Layout:
        """The same cuts, whose values come to the centre; buffers stay the network's."""
        named = [[(name, self._values[name]) for name, _ in plan.parameters] for plan in layout.plans]
        plans = [replace(plan, parameters=one) for plan, one in zip(layout.plans, named, strict=True)]
        return replace(layout, plans=plans, tensors={**layout.tensors, **self._values})

    @torch.no_grad()
    def arrived(self) -> None:
        """Its values are here: a worker that has no parameters of its own yet begins there."""
        if not self._begun:
            self._begun = True
            for name, own in self.own.items():
                own.copy_(self._values[name])

    @contextmanager
    @torch.no_grad()
    def lent(self) -> Iterator[None]:
        """Let the network have the centre for a while."""
        kept = self._copied()
        for name, own in self.own.items():
            own.copy_(self._values[name])
        try:
            yield
        finally:
            for name, values in kept.items():
                self.own[name].copy_(values)

    def rank_state(self) -> dict[str, Any]:
        """This worker's parameters, copied, and of how many workers it is one."""
        return {"workers": self._workers, "values": self._copied()}

    @torch.no_grad()
    def restore_rank(self, states: Sequence[dict[str, Any]]) -> None:
        """Go on where this worker was; with another number of workers all begin at the centre."""
        if states and states[0]["workers"] == self._workers:
            self._begun = True
            for name, values in states[0]["values"].items():
                self.own[name].copy_(values)

    def _copied(self) -> dict[str, Any]:
        return {name: one.detach().clone() for name, one in self.own.items()}
