"""The rows `cpu-...` of exchange.py: what does an exchange cost in CPU seconds, beside DistributedDataParallel's?

Of a step, over all ranks, beyond what the same step costs without exchange (the cheaper of both loops). Two hosts,
widths of ResNet-18, 8 samples each, 1 Gbit/s: as it is (`cpu-dense`, in the lab of `resnet-1g-2`) and with onebit,
beside what the peer's all-reduces cost; with powersgd, beside its PowerSGD hook.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import _exchange_cases as cases
from _exchange_cases import Case
from _exchange_found import Found, median
from _exchange_steps import found_in
from _report import Options, Row


@dataclass(frozen=True)
class Cost:
    """A row's question about a case, and the kind of peer that it is compared with."""

    case: Case
    peer: str
    wanted: str


COSTS = {
    "cpu-dense": Cost(cases.RESNET_1G_2, "DDP", "at most 0.70"),
    "cpu-onebit": Cost(cases.RESNET_1G_2_ONEBIT, "DDP", "as low as can be"),
    "cpu-powersgd": Cost(cases.RESNET_1G_2_POWERSGD, "PowerSGD", "at most 0.90"),
}


def answer(name: str, cost: Cost, found: Found) -> Row:
    """The row, from what was measured."""
    alone_s = min(median(found.ours_alone).cpu_s, median(found.theirs_alone).cpu_s)
    ours_s, theirs_s = median(found.ours).cpu_s - alone_s, median(found.theirs[cost.peer]).cpu_s - alone_s
    print(f"{name}: {alone_s:.3f} s of CPU without exchange; {median(found.ours).seconds:.3f} s a step with it")
    return Row(
        name=name,
        value=ours_s,
        unit="CPU s per step, beyond compute",
        peer=found.peers[cost.peer],
        peer_value=theirs_s,
        ratio=ours_s / theirs_s,
        wanted=cost.wanted,
        better="lower",
    )


def _row(name: str, cost: Cost, options: Options) -> Row:
    return answer(name, cost, found_in(cost.case, quick=options.quick))


ROWS: dict[str, Callable[[Options], Row]] = {name: partial(_row, name, cost) for name, cost in COSTS.items()}
