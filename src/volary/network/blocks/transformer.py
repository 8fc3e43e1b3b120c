"""A transformer for language: embeddings, blocks of causal attention and perceptron, the next token's scores."""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import init
from torch.nn.functional import scaled_dot_product_attention

from volary.errors import SettingError

STD = 0.02  # of first weights (Radford et al. 2019)


class Sizes(Protocol):
    """The sizes of the network, as `volary.network.zoo.gpt` sets them."""

    @property
    def layers(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def dropout(self) -> float: ...
    @property
    def bias(self) -> bool: ...
    @property
    def tied(self) -> bool: ...
    @property
    def documents(self) -> bool: ...


class Transformer(nn.Module):
    """Tokens (batch, time), int64, to scores (batch, time, vocabulary); time is at most `context`.

    With `documents` the last token of the vocabulary ends a document: the next one is as if it stood alone.
    """

    def __init__(self, sizes: Sizes, context: int, vocabulary: int) -> None:
        super().__init__()
        width = sizes.width
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = Places(context)
        self.documents = SameDocument(vocabulary - 1) if sizes.documents else None
        self.positions = nn.Embedding(context, width)
        self.dropout = nn.Dropout(sizes.dropout)
        self.blocks = nn.Sequential(*(Block(sizes) for _ in range(sizes.layers)))
        self.norm = nn.LayerNorm(width, bias=sizes.bias)
        self.head = nn.Linear(width, vocabulary, bias=False)
        if sizes.tied:
            self.head.weight = self.tokens.weight
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                # what a block adds is smaller the more blocks add to the same values
                residual = name.endswith(("project.weight", "shrink.weight"))
                init.normal_(parameter, std=STD / math.sqrt(2 * sizes.layers) if residual else STD)
            elif name.endswith("bias"):
                init.zeros_(parameter)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of the token that follows each position. Raises SettingError for a sequence beyond the context."""
        x, places = self.tokens(tokens), self.places(tokens)
        if self.documents is None:
            x = self.blocks(self.dropout(x + self.positions(places)))
        else:
            seen = self.documents(tokens)
            x = self.dropout(x + self.positions(seen.sum(-1).squeeze(1) - 1))
            for block in self.blocks:
                x = block(x, seen)
        scores: Tensor = self.head(self.norm(x))
        return scores


class Places(nn.Module):
    """The places of tokens in their sequence."""

    def __init__(self, context: int) -> None:
        super().__init__()
        self.context = context

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, time) to (time,), int64. Raises SettingError for a sequence beyond the context."""
        time = tokens.shape[1]
        if time > self.context:
            raise SettingError(f"network 'gpt' has a context of {self.context} tokens; a sequence has {time}")
        return torch.arange(time, device=tokens.device)


class SameDocument(nn.Module):
    """Which tokens a token sees: itself, and those before it of its document. end: the token that ends one."""

    def __init__(self, end: int) -> None:
        super().__init__()
        self.end = end

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, time) to (batch, 1, time, time), bool: for each token a row of those that it sees."""
        ends = tokens == self.end
        document = ends.cumsum(1) - ends.long()  # an end is of the document that it ends
        return (document.unsqueeze(2) == document.unsqueeze(1)).tril().unsqueeze(1)


class Block(nn.Module):
    """Causal self-attention and a perceptron, each beside a shortcut, behind a layer norm."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width, bias = sizes.width, sizes.bias
        self.heads = sizes.heads
        self.first, self.second = (nn.LayerNorm(width, bias=bias) for _ in range(2))
        self.attend = nn.Linear(width, 3 * width, bias=bias)
        self.project = nn.Linear(width, width, bias=bias)
        self.grow = nn.Linear(width, 4 * width, bias=bias)
        self.shrink = nn.Linear(4 * width, width, bias=bias)
        self.activation = nn.GELU()
        self.dropout = nn.Dropout(sizes.dropout)

    def forward(self, x: Tensor, seen: Tensor | None = None) -> Tensor:
        """(batch, time, width) to the same shape. seen: as `SameDocument` gives it; None: all before a token."""
        split = [one.unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in self.attend(self.first(x)).chunk(3, -1)]
        queries, keys, values = split
        dropped = self.dropout.p if self.training else 0.0
        attended = scaled_dot_product_attention(queries, keys, values, seen, dropped, is_causal=seen is None)
        x = x + self.dropout(self.project(attended.transpose(1, 2).flatten(-2)))
        found: Tensor = x + self.dropout(self.shrink(self.activation(self.grow(self.second(x)))))
        return found
