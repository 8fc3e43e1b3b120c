"""Judges, before a session is tried, whether its workers fit into this machine's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volary.run.machine.memory import IMPORTED_BYTES, available_bytes, judge
from volary.session.values.reference import name_of
from volary.train.trying.worker_memory import worker_memory

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch
    from torch import nn

    from volary.session.spec import Session

_GIB = 1 << 30


def remarks_of_memory(
    session: Session, module: nn.Module, device: torch.device, workers_here: int, started: bool
) -> list[str]:
    """A warning if the workers do not fit into this machine's memory; activations, which depend on the batch, come on
    top.
    """
    if device.type != "cpu":
        return []
    parameters, memory = list(module.parameters()), worker_memory(session, module)
    # gradients live once, in their buckets
    each, once = memory.gradients + memory.optimizer + memory.shares + memory.codec, 0
    if not started:
        each, once = each + memory.process + memory.parameters, IMPORTED_BYTES
    needed = once + workers_here * each + memory.servers
    count = sum(parameter.numel() for parameter in parameters)
    takes = f"{workers_here} workers take" if workers_here > 1 else "a worker takes"
    sentence = judge(
        needed,
        available_bytes(),
        f"network {name_of(session.network)!r} has {count:,} parameters; with gradients and the optimiser's "
        f"state, {takes}{' another' * started}",
        "fewer workers, a smaller network, or an optimiser that keeps less",
    )
    return [sentence] if sentence else []


def why_too_large(trained: Iterable[nn.Parameter], device: torch.device) -> str:
    """Why the dry run is left out; empty if it is not."""
    gradients, available = sum(parameter.nbytes for parameter in trained), available_bytes()
    if device.type != "cpu" or available is None or 2 * gradients <= available:
        return ""
    return (
        f"the network was not tried on samples: its gradients take {gradients / _GIB:.1f} GiB, and "
        f"{available / _GIB:.1f} GiB are available"
    )
