"""The figures of a criterion: its loss, and the metrics beside it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from volary.network.checks import LOSS
from volary.network.metrics import ROOM
from volary.network.metrics._base import Metric


class Measures:
    """The loss, the metrics called `beside`, and `metric`, the one of all these that says which model is better."""

    def __init__(self, metric: str, beside: Sequence[str] = ()) -> None:
        self.metric = metric
        names = dict.fromkeys(name for name in (*beside, metric) if name != LOSS)
        self._metrics: dict[str, Metric] = {name: ROOM.load(name)() for name in names}
        self.higher_is_better = metric != LOSS and self._metrics[metric].higher_is_better

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the rows of totals, the loss's first."""
        return (LOSS, *self._metrics)

    def totals(self, loss: Tensor, output: Tensor, target: Tensor, count: Tensor, *, positions: bool = False) -> Tensor:
        """(len(names), 2), float64: the sums of loss and metrics, each beside `count`, a scalar.

        loss: its sum. output, target: as `Metric.total` takes them. positions: whether they are of sequences; a metric
        of positions counts nothing elsewhere, unless it is the one that decides.
        """
        rows = [torch.stack([loss.double(), count.double()])]
        for name, metric in self._metrics.items():
            if positions or metric.outputs != "positions" or name == self.metric:
                rows.append(torch.stack([metric.total(output, target).double(), count.double()]))
            else:
                rows.append(torch.zeros_like(rows[0]))
        return torch.stack(rows)

    def figures(self, totals: Tensor) -> dict[str, float]:
        """Figures by name, from added totals (len(names), 2); without figures of which nothing counts."""
        rows = zip(self.names, totals.tolist(), strict=True)
        means = {name: total / count for name, (total, count) in rows if count}
        return {name: mean if name == LOSS else self._metrics[name].figure(mean) for name, mean in means.items()}
