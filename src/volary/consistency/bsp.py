"""Bulk synchronous parallel (Valiant 1990): every step waits for every worker's contribution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from volary.consistency._base import Consistency
    from volary.exchange._base import Exchange
    from volary.exchange._bucket import Chunk, Gate
    from volary.server.closing import Closer


@dataclass(frozen=True, kw_only=True)
class Bsp:
    """All workers finish a step together: n workers at a global batch equal one worker at that batch."""

    needs_server: ClassVar[bool] = False
    elastic: ClassVar[bool] = False
    steals: ClassVar[bool] = False
    epoch_share: ClassVar[None] = None
    push_every: ClassVar[int] = 1
    fetch_every: ClassVar[int] = 1
    asks_ahead: ClassVar[bool] = False

    def build(self, exchange: Exchange) -> Consistency:
        """The model over `exchange`."""
        return _Synchronous(exchange)

    def closer(self, workers: int, first: int = 0, samples: int = 0) -> Closer:
        """A step is an update once everybody has computed it; it is made as contributions arrive."""
        from volary.consistency._with_all import WithAll

        return WithAll(first, early=True)


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
