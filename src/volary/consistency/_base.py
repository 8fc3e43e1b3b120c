"""What every consistency model decides: when a worker pushes, and when it must pull."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from volary.exchange._bucket import Chunk, Gate


class Consistency(Protocol):
    """Knows when; never who keeps what. `clock`: steps this worker has finished."""

    clock: int

    def gradient_ready(self, chunk: Chunk) -> None:
        """Backward made the gradients in `chunk`."""
        ...

    def before_use(self, gate: Gate) -> None:
        """Somebody is about to read the parameter behind `gate`."""
        ...

    def step(self) -> None:
        """Backward is over: the step's contributions are complete."""
        ...
