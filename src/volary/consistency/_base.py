"""What every consistency model decides: when a worker pushes, and when it must pull."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from volary.exchange._buckets import Bucket


class Consistency(Protocol):
    """Knows when; never who keeps what. `clock`: steps this worker has finished."""

    clock: int

    def gradient_ready(self, bucket: Bucket) -> None:
        """Backward made the gradients of `bucket`."""
        ...

    def before_update(self, buckets: Sequence[Bucket]) -> None:
        """The step's update is about to read these buckets."""
        ...

    def step(self) -> None:
        """The step is over."""
        ...
