"""The figures of a criterion: its loss, and the metrics beside it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from volary.network.checks import LOSS
from volary.network.metrics import ROOM
from volary.network.metrics._base import Metric


class Measures:
    """The loss, the metrics called `beside`, those of `asked`, and the one that says which model is better.

    decides: the loss, one of `asked` by its figure's name, or the name of a metric; `metric` is its figure's name.
    """

    def __init__(self, decides: str, asked: Sequence[Metric] = (), beside: Sequence[str] = ()) -> None:
        metrics = {one.name: one for one in asked}
        self.metric, self.higher_is_better, self._classes = decides, False, 0
        if decides != LOSS:
            best = metrics.get(decides) or ROOM.load(decides)()
            metrics[best.name], self.metric, self.higher_is_better = best, best.name, bool(best.higher_is_better)
        self._asked = set(metrics)
        self._metrics: dict[str, Metric] = {name: ROOM.load(name)() for name in beside} | metrics

    def suit(self, classes: int) -> None:
        """Keep sums for so many classes, 0: not known. Raises SettingError if that does not suit a metric."""
        for metric in self._metrics.values():
            metric.rows(classes)
        self._classes = classes

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the rows of totals, the loss's first; a metric has as many as it keeps sums."""
        return (LOSS, *(name for name, one in self._metrics.items() for _ in range(one.rows(self._classes))))

    def totals(
        self,
        loss: Tensor,
        output: Tensor,
        target: Tensor,
        count: Tensor,
        *,
        worth: Tensor | None = None,
        positions: bool = False,
    ) -> Tensor:
        """(len(names), 2), float64: the sums of loss and metrics, each beside `count`, a scalar.

        loss: its sum, of what counts `worth`, a scalar (None: `count`). output, target: as `Metric.sums` takes them.
        positions: whether they are of sequences; a metric
        of positions counts nothing elsewhere, unless it was asked for.
        """
        parts = [_beside(loss.reshape(1), count if worth is None else worth)]
        for name, metric in self._metrics.items():
            if positions or metric.outputs != "positions" or name in self._asked:
                parts.append(_beside(metric.sums(output, target, self._classes), count))
            else:
                parts.append(parts[0].new_zeros(metric.rows(self._classes), 2))
        return torch.cat(parts)

    def figures(self, totals: Tensor) -> dict[str, float]:
        """Figures by name, from added totals (len(names), 2); without figures of which nothing counts."""
        sums, counts = totals.t().tolist()
        found, start = {LOSS: sums[0] / counts[0]} if counts[0] else {}, 1
        for metric in self._metrics.values():
            end = start + metric.rows(self._classes)
            if counts[start]:
                found |= metric.figures(sums[start:end], counts[start])
            start = end
        return found


def _beside(sums: Tensor, count: Tensor) -> Tensor:
    return torch.stack([sums.double(), count.double().expand(len(sums))], 1)
