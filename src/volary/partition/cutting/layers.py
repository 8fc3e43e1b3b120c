"""Layers that hold a part of their tensors: a fully connected layer or an embedding, cut by columns or by rows.

A layer becomes one of these where it stands, and keeps its parameters, whose values become its part of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from volary.partition.cutting.passing import added_up, copied, gathered, own_part
from volary.partition.cutting.read_by_hand import HeldInPart

if TYPE_CHECKING:
    from volary.comm.groups.layer_group import LayerGroup
    from volary.partition.cutting.own_draws import OwnDraws


class ColumnLinear(HeldInPart, nn.Linear):
    """Gives its part of the outputs: rows of `weight`, (own outputs, inputs), and values of `bias`.

    The columns are those of the layer's matrix as papers write it, x A. apart: its outputs stay with the ranks, for a
    `RowLinear`; else each rank gets all, (..., sum of sizes). draws: of a network in training that drops some of what
    is apart.
    """

    group: LayerGroup
    sizes: Sequence[int]
    apart: bool
    draws: OwnDraws | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        """(..., inputs) to (..., outputs), or to this rank's part of these."""
        own = functional.linear(copied(inputs, self.group), self.weight, self.bias)
        if self.draws is not None and self.training:
            self.draws.begin()
        return own if self.apart else gathered(own, self.group, self.sizes)


class RowLinear(HeldInPart, nn.Linear):
    """Gives what its part of the inputs adds to all outputs: columns of `weight`, (outputs, own inputs).

    apart: its inputs are with the ranks already, from a `ColumnLinear`; else it takes this rank's of (..., inputs).
    draws: that layer's.
    """

    group: LayerGroup
    sizes: Sequence[int]
    apart: bool
    draws: OwnDraws | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        """(..., inputs), or this rank's part of these, to (..., outputs)."""
        if self.draws is not None:
            self.draws.end()
        own = inputs if self.apart else own_part(inputs, self.group, self.sizes)
        total = added_up(functional.linear(own, self.weight), self.group)
        return total if self.bias is None else total + self.bias


class ColumnEmbedding(HeldInPart, nn.Embedding):
    """Looks up its part of each vector: `weight` is (entries, own values)."""

    group: LayerGroup
    sizes: Sequence[int]

    def forward(self, inputs: Tensor) -> Tensor:
        """(...), int64, to (..., sum of sizes)."""
        own = functional.embedding(inputs, self.weight, self.padding_idx)
        return gathered(own, self.group, self.sizes)


class RowEmbedding(HeldInPart, nn.Embedding):
    """Looks up what its part of the entries has: `weight` is (own entries, values)."""

    group: LayerGroup
    sizes: Sequence[int]

    def forward(self, inputs: Tensor) -> Tensor:
        """(...), int64, to (..., values). Raises IndexError for an entry that no rank has."""
        if inputs.numel():  # elsewhere what no rank has would be zeros
            low, high = int(inputs.min()), int(inputs.max())
            if low < 0 or high >= sum(self.sizes):
                raise IndexError("index out of range in self")
        first = sum(self.sizes[: self.group.rank])
        place = inputs - first
        mine = (place >= 0) & (place < self.sizes[self.group.rank])
        found = functional.embedding(torch.where(mine, place, 0), self.weight)
        if self.padding_idx is not None:  # its vector gets no gradient
            found = torch.where((inputs == self.padding_idx).unsqueeze(-1), found.detach(), found)
        return added_up(torch.where(mine.unsqueeze(-1), found, 0.0), self.group)


class SharedDropout(nn.Dropout):
    """Drops of this rank's part of values what one device would drop of all of them: each rank draws the whole mask."""

    group: LayerGroup
    sizes: Sequence[int]

    def forward(self, inputs: Tensor) -> Tensor:
        """(..., own values) to the same shape."""
        if not self.training or not self.p:
            return inputs
        mask = functional.dropout(inputs.new_ones(*inputs.shape[:-1], sum(self.sizes)), self.p)
        return inputs * own_part(mask, self.group, self.sizes)


def become(layer: nn.Module, kind: type[nn.Module], **attributes: Any) -> None:
    """Let a layer be of that kind from now on, with these attributes besides its own."""
    layer.__class__ = kind
    vars(layer).update(attributes)
