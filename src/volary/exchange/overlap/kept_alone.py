"""Gradients that stay where they are: of parts of parameters that one worker keeps, and whose sum is there already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from volary.comm.sums.route import Memory
from volary.exchange.representations._base import Representation

if TYPE_CHECKING:
    from volary.comm.sums.route import Arrival, BufferShape
    from volary.exchange.gradients.plan import BucketPlan
    from volary.exchange.representations._base import CodedSums, Site
    from volary.run.database.traffic import Traffic


@dataclass(frozen=True)
class KeptAlone(Representation):
    """Nothing travels. Workers may have parts of differing size: a parameter is updated at once, whatever its size."""

    by_layer: ClassVar[bool] = True
    travels: ClassVar[bool] = False

    def wire_bytes(self, values: int, value_bytes: int) -> int:
        return 0

    def sums(self, plans: Sequence[BucketPlan], site: Site) -> CodedSums:
        return NoSums([plan.shape for plan in plans])

    def __str__(self) -> str:
        return "kept alone"


class NoSums:
    """See `volary.exchange.representations._base.CodedSums`. What this rank contributes is what is agreed."""

    in_flight = 1
    sent_bytes = received_bytes = 0
    traffic: tuple[Traffic, ...] = ()

    def __init__(self, shapes: Sequence[BufferShape]) -> None:
        self.memory = [Memory.in_place(shape) for shape in shapes]

    def sum_up(self, buffer: int, start: int, end: int) -> Arrival:
        return _Here()


class _Here:
    def wait(self) -> None:
        """Return at once: nothing is under way."""


KEPT_ALONE = KeptAlone()
