"""Gated recurrent units (Cho et al. 2014), as torch has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from volary.network.layers.lstm import LstmLayer


@dataclass(frozen=True, kw_only=True)
class GruLayer(LstmLayer):
    """(time, width) to (time, hidden), or to the last position alone. Each sample starts from a zero state."""

    cell: ClassVar[Literal["LSTM", "GRU"]] = "GRU"


LAYER = GruLayer
