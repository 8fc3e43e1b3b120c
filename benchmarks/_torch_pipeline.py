"""torch.distributed.pipelining as a peer for _exchange_turns.py: stages of about as many layers each, 1F1B."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn.functional import cross_entropy

from volary.network.blocks.transformer import Transformer

if TYPE_CHECKING:
    from volary.data.feed import Feed

CPU = torch.device("cpu")
MICRO_BATCHES = 8


class StagePeer:
    """A rank of the pipeline, with its stage of a network; and the whole network alone.

    network: which it may take apart. whole: a copy, which `run_alone` trains. feed: of whole batches, the same on all.
    """

    def __init__(
        self, network: nn.Module, whole: nn.Module, rule: Any, feed: Feed, group: distributed.ProcessGroup
    ) -> None:
        rank, ranks = distributed.get_rank(), distributed.get_world_size()
        self._first, self._last, self._feed, self._ranks = rank == 0, rank == ranks - 1, feed, ranks
        stage = stage_by_count(network, rank, ranks)
        self._optimizer = torch.optim.SGD(stage.parameters(), lr=rule.lr, momentum=rule.momentum)
        self._whole = whole
        self._whole_optimizer = torch.optim.SGD(whole.parameters(), lr=rule.lr, momentum=rule.momentum)
        made = PipelineStage(stage, rank, ranks, CPU, group=group)
        self._schedule = Schedule1F1B(made, MICRO_BATCHES, loss_fn=_loss)

    def run(self, steps: int) -> None:
        """Train for so many steps."""
        for _ in range(steps):
            batch = next(self._feed).to(CPU)
            losses: list[Tensor] = []
            given = (batch.inputs,) if self._first else ()
            wanted: dict[str, Any] = {"target": batch.targets, "losses": losses} if self._last else {}
            self._schedule.step(*given, **wanted, return_outputs=False)
            self._optimizer.step()
            self._optimizer.zero_grad(set_to_none=True)

    def run_alone(self, steps: int) -> None:
        """Train the whole network, with a rank's share of each batch, without the others."""
        for _ in range(steps):
            batch = next(self._feed).to(CPU)
            share = len(batch.inputs) // self._ranks
            _loss(self._whole(batch.inputs[:share]), batch.targets[:share]).backward()
            self._whole_optimizer.step()
            self._whole_optimizer.zero_grad(set_to_none=True)


def stage_by_count(network: nn.Module, stage: int, stages: int) -> nn.Sequential:
    """The layers of one of so many stages, of which each has about as many layers as the others."""
    layers = list(_layers(network))
    bounds = [len(layers) * number // stages for number in range(stages + 1)]
    start, end = list(pairwise(bounds))[stage]
    return nn.Sequential(*layers[start:end])


def _layers(network: nn.Module) -> list[nn.Module]:
    if isinstance(network, Transformer):
        return [_Embedded(network), *network.blocks, network.norm, network.head]
    assert isinstance(network, nn.Sequential), "a list of layers"
    return list(network)


class _Embedded(nn.Module):
    """The layers before a transformer's first block: tokens (batch, time) to (batch, time, width)."""

    def __init__(self, network: Transformer) -> None:
        super().__init__()
        self.tokens, self.positions, self.places = network.tokens, network.positions, network.places

    def forward(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.tokens(tokens) + self.positions(self.places(tokens))
        return found


def _loss(scores: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(scores.flatten(0, -2), targets.flatten())
