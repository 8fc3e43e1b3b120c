"""Attention of torch (`nn.MultiheadAttention`) whose heads are with different ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from volary.partition.cutting.own_draws import OwnDraws
from volary.partition.cutting.passing import added_up, copied, gathered
from volary.partition.cutting.read_by_hand import HeldInPart

if TYPE_CHECKING:
    from volary.comm.groups.layer_group import LayerGroup

MATRICES = 3  # of queries, keys and values, one below the other in `in_proj_weight`


def has_own_heads(layer: nn.Module) -> bool:
    """Whether it is attention whose queries, keys and values come of one tensor, and nothing is added to them."""
    if type(layer) is not nn.MultiheadAttention:
        return False
    return layer.in_proj_weight is not None and layer.bias_k is None and not layer.add_zero_attn


class HeadsAttention(HeldInPart, nn.MultiheadAttention):
    """Gives what its heads add to all outputs: it has their rows of `in_proj_weight`, and columns of `out_proj.weight`.

    heads: of each rank. draws: of attention that drops some of its weights, which each rank draws for its own heads.
    """

    group: LayerGroup
    heads: Sequence[int]
    draws: OwnDraws | None

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,  # a hint, which torch takes with the mask alone
    ) -> tuple[Tensor, Tensor | None]:
        """As torch's: (N, L, E), or (L, N, E), or without samples (L, E), and weights (N, L, S) or (N, heads, L, S)."""
        given = {id(one): copied(one, self.group) for one in (query, key, value)}
        queries, keys, values = (
            self._by_heads(given[id(one)], number) for number, one in enumerate((query, key, value))
        )
        mask = self._mask(queries, keys, key_padding_mask, attn_mask)
        dropped = self.dropout if self.training else 0.0
        if self.draws is not None and self.training:
            self.draws.begin()
        weights = None
        if need_weights:
            scores = queries @ keys.transpose(-2, -1) / math.sqrt(self.head_dim)
            weights = functional.dropout((scores if mask is None else scores + mask).softmax(-1), dropped)
            found = weights @ values
        else:
            found = functional.scaled_dot_product_attention(queries, keys, values, mask, dropped)
        if self.draws is not None:
            self.draws.end()
        output = added_up(functional.linear(found.transpose(1, 2).flatten(2), self.out_proj.weight), self.group)
        if self.out_proj.bias is not None:
            output = output + self.out_proj.bias
        alone = query.dim() == 2
        if not alone and not self.batch_first:
            output = output.transpose(0, 1)
        return output[0] if alone else output, self._shown(weights, alone=alone, averaged=average_attn_weights)

    def _by_heads(self, x: Tensor, number: int) -> Tensor:
        """Queries, keys or values of this rank's heads, (N, own heads, length, head_dim)."""
        weight = self.in_proj_weight.chunk(MATRICES)[number]
        bias = None if self.in_proj_bias is None else self.in_proj_bias.chunk(MATRICES)[number]
        x = x.unsqueeze(0) if x.dim() == 2 else x if self.batch_first else x.transpose(0, 1)
        found: Tensor = functional.linear(x, weight, bias).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        return found

    def _mask(
        self, queries: Tensor, keys: Tensor, key_padding_mask: Tensor | None, attn_mask: Tensor | None
    ) -> Tensor | None:
        """The values added to the scores of this rank's heads, that (N or 1, own heads or 1, L, S) goes with."""
        found: Tensor | None = None
        if attn_mask is not None:
            mask = _added(attn_mask, queries)
            if mask.dim() == 3:  # of all heads of a sample, one after another
                first = sum(self.heads[: self.group.rank])
                mask = mask.unflatten(0, (-1, sum(self.heads)))[:, first : first + self.heads[self.group.rank]]
            found = mask
        if key_padding_mask is not None:
            padding = _added(key_padding_mask, queries).view(-1, 1, 1, keys.shape[-2])
            found = padding if found is None else found + padding
        return found

    def _shown(self, weights: Tensor | None, *, alone: bool, averaged: bool) -> Tensor | None:
        """The weights of all heads, or their mean."""
        if weights is None:
            return None
        if averaged:
            shown = added_up(weights.sum(1), self.group) / sum(self.heads)
        else:
            shown = gathered(weights.movedim(1, -1), self.group, self.heads).movedim(-1, 1)
        return shown[0] if alone else shown


def _added(mask: Tensor, to: Tensor) -> Tensor:
    """A mask of torch's, of any shape, as what is added to scores: where it is true nothing is looked at."""
    return to.new_zeros(mask.shape).masked_fill_(mask, -torch.inf) if mask.dtype == torch.bool else mask.to(to.dtype)
