"""Attention with several heads (Vaswani et al. 2017, arXiv:1706.03762)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from volary.errors import SettingError
from volary.network.checks import share
from volary.network.layers._base import LayerKind, Shape
from volary.network.operations.windows import refuse_below

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class AttentionLayer(LayerKind):
    """Queries (time, width) to the same shape.

    One edge attends to itself; of two the second has keys and values, of three the second keys, the third values.
    """

    most: ClassVar[int | None] = 3

    heads: int = 1  # parts of the width, each with an attention of its own
    causal: bool = False  # whether each position sees itself and those before it alone
    bias: bool = True  # whether the linear layers in it have biases
    dropout: float = 0.0  # share of the attention's weights that are dropped

    def check(self) -> None:
        refuse_below("heads", self.heads, 1)
        share("dropout", self.dropout)

    def shapes(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        queries, keys, values = self._three(given)
        if any(len(shape) != 2 for shape in given) or keys[0] != values[0]:
            raise SettingError("takes sequences (time, width), keys and values of one length")
        if queries[1] % self.heads:
            raise SettingError(f"has a width of {queries[1]}; accepted: a multiple of heads, {self.heads}")
        return (queries,)

    def build(self, given: tuple[Shape, ...]) -> nn.Module:
        from volary.network.operations.sequences import Attention

        widths = tuple(shape[1] for shape in self._three(given))
        return Attention(widths, self.heads, causal=self.causal, bias=self.bias, dropout=self.dropout)

    def _three(self, given: tuple[Shape, ...]) -> tuple[Shape, Shape, Shape]:
        return given[0], given[min(1, len(given) - 1)], given[-1]


LAYER = AttentionLayer
