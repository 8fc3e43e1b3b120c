"""Sequences: attention, recurrent layers, positions."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from volary.network.operations.carried_state import recur, state_of


class Attention(nn.Module):
    """Attention with several heads between linear layers. widths: of queries, keys and values."""

    def __init__(self, widths: tuple[int, ...], heads: int, *, causal: bool, bias: bool, dropout: float) -> None:
        super().__init__()
        self.heads, self.causal, self.dropout = heads, causal, dropout
        self.queries, self.keys, self.values = (nn.Linear(width, widths[0], bias=bias) for width in widths)
        self.project = nn.Linear(widths[0], widths[0], bias=bias)

    def forward(self, *edges: Tensor) -> Tensor:
        """One to three tensors (batch, time, width) to the first one's shape: queries, keys, values."""
        queries, keys, values = (
            layer(edges[min(place, len(edges) - 1)]).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for place, layer in enumerate((self.queries, self.keys, self.values))
        )
        dropped = self.dropout if self.training else 0.0
        found = scaled_dot_product_attention(queries, keys, values, dropout_p=dropped, is_causal=self.causal)
        given: Tensor = self.project(found.transpose(1, 2).flatten(-2))
        return given


class Recurrent(nn.Module):
    """A recurrent layer of torch, of whose outputs all positions count, or the last alone.

    stateful: it keeps its state from batch to batch.
    """

    def __init__(self, layer: nn.LSTM | nn.GRU, *, last: bool, stateful: bool) -> None:
        super().__init__()
        self.layer, self.last = layer, last
        self.state = state_of(layer) if stateful else None

    def forward(self, x: Tensor) -> Tensor:
        """(batch, time, width) to (batch, time, hidden), or (batch, hidden)."""
        found = recur(self.layer, x, self.state)
        return found[:, -1] if self.last else found


class Positions(nn.Module):
    """Adds a vector that is learnt for each position."""

    def __init__(self, positions: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(positions, width))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, time, width) to the same shape."""
        return x + self.weight[: x.shape[1]]
