"""Evaluation on a second flow: shared among the ranks, the same figures on each, and what follows from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from volary.errors import PeerLost

if TYPE_CHECKING:
    from volary.data.batch import Batch
    from volary.network.flow import Flow
    from volary.train.recorder import Recorder


@dataclass
class Best:
    """The best evaluation so far. waited: evaluations since then."""

    metric: str
    higher_is_better: bool
    value: float | None = None
    step: int = 0
    waited: int = 0

    def judge(self, value: float, step: int) -> bool:
        """Take note of an evaluation; whether it is the best so far."""
        better = self.value is None or (value > self.value if self.higher_is_better else value < self.value)
        if better:
            self.value, self.step, self.waited = value, step, 0
        else:
            self.waited += 1
        return better

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"value": self.value, "step": self.step, "waited": self.waited}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint's state."""
        self.value, self.step, self.waited = state["value"], state["step"], state["waited"]


def measure(
    flow: Flow,
    batches: Iterable[Batch],
    device: torch.device,
    world_size: int = 1,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, float]:
    """The figures of `flow` over this rank's batches and those of all others. A collective call. Raises PeerLost."""
    totals = flow.no_totals(device)
    for batch in batches:
        progress("evaluate")
        held = batch.to(device)
        totals += flow.measure(held.inputs, held.targets)
    if world_size > 1:
        progress("exchange")
        try:
            torch.distributed.all_reduce(totals)
        except RuntimeError as error:
            raise PeerLost(f"the exchange broke: {str(error).splitlines()[0]}") from error
    return flow.figures(totals)


def record(recorder: Recorder, best: Best, figures: dict[str, float], *, first_rank: bool) -> bool:
    """Write an evaluation down; whether it is the best so far."""
    better = best.judge(figures[best.metric], recorder.step)
    if first_rank:
        recorder.metrics(figures)
        recorder.event("evaluated", **figures)
        if better:
            recorder.note(best=best.value, best_step=best.step)
            recorder.event("best", metric=best.metric, value=best.value)
    return better
