"""Evaluation on a second flow: shared among the ranks, the same figures on each, and what follows from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from volary.exchange._collectives import add_up, take_all_from_first
from volary.run.best import Best, not_numbers
from volary.train.first_state import messages

if TYPE_CHECKING:
    from torch import nn

    from volary.data.batch import Batch
    from volary.network._criterion import Criterion
    from volary.network.flow import Flow
    from volary.train.recorder import Recorder


def measure(
    flow: Flow,
    batches: Iterable[Batch],
    device: torch.device,
    world_size: int = 1,
    progress: Callable[[str], None] = lambda _: None,
    unread: Callable[[int, int], None] = lambda *_: None,
) -> dict[str, float]:
    """The figures of `flow` over this rank's batches and those of all others. A collective call. Raises PeerLost.

    unread: told how many samples could not be read, of how many; the figures are of the others.
    """
    totals, counts = flow.no_totals(device), torch.zeros(2, dtype=torch.float64, device=device)
    if world_size > 1:
        progress("exchange")
    with buffers_of_first(flow.module, world_size):
        progress("evaluate")
        for batch in batches:
            progress("evaluate")
            held = batch.to(device)
            totals += flow.measure(held.inputs, held.targets)
            counts += torch.tensor([held.lost, held.lost + held.count], dtype=torch.float64)
    if world_size > 1:
        progress("exchange")
        add_up(totals)
        add_up(counts)
    unread(*map(round, counts.tolist()))
    return flow.figures(totals)


@contextmanager
def buffers_of_first(module: nn.Module, world_size: int) -> Iterator[None]:
    """Lend every rank rank 0's buffers (batch norm's statistics, ...), with which the network is saved."""
    own = [(buffer, buffer.clone()) for buffer in module.buffers()] if world_size > 1 else []
    for group in messages([buffer for buffer, _ in own]):
        take_all_from_first(group)
    try:
        yield
    finally:
        for buffer, kept in own:
            buffer.copy_(kept)


def record(
    recorder: Recorder, best: Best, criterion: Criterion, figures: dict[str, float], *, first_rank: bool
) -> bool:
    """Write an evaluation down; whether it is the best so far, by the criterion's metric."""
    better = best.judge(figures[criterion.metric], recorder.step, higher_is_better=criterion.higher_is_better)
    if first_rank:
        recorder.metrics(figures)
        recorder.event("evaluated", **figures)
        if warning := not_numbers(figures):
            recorder.event("warning", text=warning)
        if better:
            recorder.note(best=best.value, best_step=best.step)
            recorder.event("best", metric=criterion.metric, value=best.value)
    return better
