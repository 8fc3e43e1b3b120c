"""Bulk synchronous parallel (Valiant 1990): every step waits for every worker's contribution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from volary.consistency._base import Consistency
    from volary.exchange._base import Exchange
    from volary.exchange._bucket import Chunk, Gate


@dataclass(frozen=True, kw_only=True)
class Bsp:
    """All workers finish a step together: n workers at a global batch equal one worker at that batch."""

    def build(self, exchange: Exchange) -> Consistency:
        """The model over `exchange`."""
        return _Synchronous(exchange)


class _Synchronous:
    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self.clock = 0

    def gradient_ready(self, chunk: Chunk) -> None:
        self._exchange.push(chunk.parcel)

    def before_use(self, gate: Gate) -> None:
        self._exchange.pull(gate)

    def step(self) -> None:
        self._exchange.release()
        self.clock += 1


CONSISTENCY = Bsp
