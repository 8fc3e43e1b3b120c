"""How a worker makes its part of a step, as the loop that it runs in decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from volary.exchange.choice.rows import StepEstimate


@dataclass(frozen=True, kw_only=True)
class StepSettings:
    """How a worker makes its part of a step.

    passes: backward passes a step (gradient accumulation). weight: the factor of what this rank contributes, which then
    is a loop of one's own and keeps its layers as they are; None: it is its share of the mean over all ranks' samples
    already. samples: how many the run has seen; None where nobody knows. on_nonfinite: what becomes of gradients that
    no codec can encode. estimate: of this worker's steps, on rank 0, if it is known what they will be.
    """

    passes: int = 1
    weight: Callable[[], float] | None = None
    samples: Callable[[], int] | None = None
    on_nonfinite: str = "stop"
    estimate: StepEstimate | None = None
