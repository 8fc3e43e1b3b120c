"""Evaluation on a second flow: this worker's share, what all shares add up to, and what follows from the figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from volary.comm.groups.blocking import add_up, take_all_from_first
from volary.run.best import Best, not_numbers
from volary.train.agreement.first_state import messages
from volary.train.data.streams import evaluated_streams

if TYPE_CHECKING:
    from torch import Tensor, nn

    from volary.comm.groups.group import Group
    from volary.data.batching.batch import Batch
    from volary.network.criterion import Criterion
    from volary.network.flow import Flow
    from volary.train.recording.recorder import Recorder


def totals(
    flow: Flow, batches: Iterable[Batch], device: torch.device, progress: Callable[[str], None] = lambda _: None
) -> tuple[Tensor, int, int]:
    """The totals of `flow` over these batches, float64 (measured, 2); samples that could not be read; of how many."""
    found, lost, count = flow.no_totals(device), 0, 0
    progress("evaluate")
    with evaluated_streams(flow.module) as streams:
        for batch in batches:
            progress("evaluate")
            held = batch.to(device)
            streams.begin(held)
            found += flow.measure(held.inputs, held.targets)
            streams.end(held)
            lost, count = lost + held.lost, count + held.lost + held.count
    return found, lost, count


def over_all(found: Tensor, lost: int, count: int, group: Group) -> tuple[Tensor, int, int]:
    """Add up over all ranks of `group`: `found` as `totals` gives it, (measured, 2), and the counts. A collective call.
    Raises PeerLost.
    """
    counts = torch.tensor([lost, count], dtype=torch.float64, device=found.device)
    if group.size > 1:
        add_up(found, group)
        add_up(counts, group)
    return found, *map(round, counts.tolist())


@contextmanager
def buffers_of_first(module: nn.Module, group: Group) -> Iterator[None]:
    """Lend every rank of `group` rank 0's buffers (batch norm's statistics, ...), with which the network is saved."""
    own = [(buffer, buffer.clone()) for buffer in module.buffers()] if group.size > 1 else []
    for together in messages([buffer for buffer, _ in own]):
        take_all_from_first(together, group)
    try:
        yield
    finally:
        for buffer, kept in own:
            buffer.copy_(kept)


def record(recorder: Recorder, best: Best, criterion: Criterion, figures: dict[str, float]) -> bool:
    """Write an evaluation down; whether it is the best so far, by the criterion's metric."""
    better = best.judge(figures[criterion.metric], recorder.step, higher_is_better=criterion.higher_is_better)
    if recorder.leads:
        recorder.metrics(figures)
        recorder.event("evaluated", **figures)
        if warning := not_numbers(figures):
            recorder.event("warning", text=warning)
        if better:
            recorder.note(best=best.value, best_step=best.step)
            recorder.event("best", metric=criterion.metric, value=best.value)
    return better
