"""A GPT: a transformer that predicts the next token (Radford et al. 2019; nanoGPT); `classes` is the vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.errors import SettingError
from volary.network.checks import at_least, share
from volary.network.zoo._base import Network

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class Gpt(Network):
    """nanoGPT's model of characters: 10,745,088 parameters with 65 characters and sequences of 256."""

    layers: int = 6  # blocks of attention and perceptron
    heads: int = 6  # of the attention; they divide the width
    width: int = 384  # values per token
    context: int | None = None  # tokens of the longest sequence; None: of the data's samples
    dropout: float = 0.2  # share of the values that are dropped after embeddings, attention and perceptrons
    bias: bool = False  # biases in linear layers and norms, as GPT-2 has them
    documents: bool = False  # the last symbol ends a document: attention stops there, and positions begin anew
    tied: bool = True  # embedding and output use one matrix (Press & Wolf 2017, arXiv:1608.05859)

    def check(self) -> None:
        """Refuse sizes below one, heads that do not divide the width, and an unfit dropout. Raises SettingError."""
        for field in ("layers", "heads", "width"):
            at_least(field, getattr(self, field), 1)
        if self.context is not None:
            at_least("context", self.context, 1)
        share("dropout", self.dropout)
        if self.width % self.heads:
            raise SettingError(f"width is {self.width}; accepted: a multiple of heads, {self.heads}")

    def build(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """Tokens (batch, time), int64, to scores (batch, time, classes).

        Raises SettingError if samples are no sequences, or longer than the context.
        """
        from volary.network.blocks.transformer import Transformer

        if len(input_shape) != 1:
            raise SettingError(f"network 'gpt' takes sequences of tokens (time,); the input shape is {input_shape}")
        context = self.context or input_shape[0]
        if input_shape[0] > context:
            raise SettingError(f"context is {context}; the data's sequences have {input_shape[0]} tokens")
        return Transformer(self, context, classes)


NETWORK = Gpt
