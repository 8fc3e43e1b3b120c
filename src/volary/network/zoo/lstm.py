"""An LSTM language model (Zaremba et al. 2014, arXiv:1409.2329, the medium one); `classes` is the vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.errors import SettingError
from volary.network.checks import at_least, share
from volary.network.zoo._base import Network

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class Lstm(Network):
    """19,780,400 parameters with 10,000 words. Each sample starts from a zero state, unless it is stateful."""

    hidden: int = 650  # units of each layer
    layers: int = 2  # LSTM layers
    embedding: int | None = None  # values per word; None: as many as `hidden`
    dropout: float = 0.5  # share of the values between layers that are dropped
    tied: bool = False  # embedding and output use one matrix (Press & Wolf 2017, arXiv:1608.05859)
    stateful: bool = False  # each sample goes on from the state of the one before it: truncated back-propagation

    def check(self) -> None:
        """Refuse sizes below one, an unfit dropout, and tied matrices of different shapes. Raises SettingError."""
        at_least("hidden", self.hidden, 1)
        at_least("layers", self.layers, 1)
        at_least("embedding", self._embedding(), 1)
        share("dropout", self.dropout)
        if self.tied and self._embedding() != self.hidden:
            raise SettingError(f"embedding is {self.embedding}; tied needs it equal to hidden, {self.hidden}")

    def build(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """Tokens (batch, time), int64, to scores (batch, time, classes).

        Raises SettingError if samples are no sequences.
        """
        from volary.network.blocks.language_model import LanguageModel

        if len(input_shape) != 1:
            raise SettingError(f"network 'lstm' takes sequences of tokens (time,); the input shape is {input_shape}")
        return LanguageModel(
            classes,
            self._embedding(),
            self.hidden,
            self.layers,
            dropout=self.dropout,
            tied=self.tied,
            stateful=self.stateful,
        )

    def _embedding(self) -> int:
        return self.hidden if self.embedding is None else self.embedding


NETWORK = Lstm
