"""A sum of criteria, each with its weight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from volary.errors import SettingError
from volary.network.criteria.class_weights import WeighsClasses
from volary.network.criterion import Criterion


class WeightedSum:
    """Each criterion of the output with its number, or of all that the network gives, times its weight.

    What the first one counts of targets all are means over, so that the sum is the same for any number of workers.
    """

    def __init__(
        self, names: Sequence[str], parts: Sequence[Criterion], weights: Sequence[float], outputs: Sequence[int | None]
    ) -> None:
        self._names = [name if name not in names[:n] else f"{name}_{n}" for n, name in enumerate(names)]
        self._parts, self._weights, self._outputs = parts, weights, outputs
        first = parts[0]
        self.metric, self.higher_is_better = first.metric, first.higher_is_better

    def suit(self, classes: int) -> None:
        """Let metrics keep sums for so many classes. Raises SettingError if that does not suit one."""
        for part in self._parts:
            part.suit(classes)

    def weigh(self, names: Sequence[str], counts: Callable[[], Tensor]) -> None:
        """Let each part weigh targets that may do so."""
        for part in self._parts:
            if isinstance(part, WeighsClasses):
                part.weigh(names, counts)

    @property
    def measured(self) -> tuple[str, ...]:
        """The sum, and then the loss and the metrics of each part."""
        return ("loss", *(name for part in self._parts for name in part.measured))

    @property
    def takes_shares(self) -> bool:
        """Whether targets may be shares of classes."""
        return all(getattr(part, "takes_shares", False) for part in self._parts)

    def __call__(self, output: Any, target: Tensor) -> Tensor:
        """The scalar sum; SettingError if the network has no such output."""
        whole, terms = self._worth(self._parts[0], target), list[Tensor]()
        for part, weight, own in zip(self._parts, self._weights, self._own(output), strict=True):
            if counted := self._worth(part, target):
                terms.append(part(own, target) * (weight * counted / whole))
        return torch.stack(terms).sum()

    def counted(self, target: Tensor) -> float | None:
        """As the first part counts."""
        return self._parts[0].counted(target)

    def totals(self, output: Any, target: Tensor) -> Tensor:
        """The sum's row, (1, 2), and then those of the parts, (len(measured), 2) in all."""
        rows = [part.totals(own, target) for part, own in zip(self._parts, self._own(output), strict=True)]
        sums = [
            weight * one[0, 0] / one[0, 1] * self._worth(part, target)
            for part, weight, one in zip(self._parts, self._weights, rows, strict=True)
            if one[0, 1]
        ]
        whole = rows[0].new_tensor(self._worth(self._parts[0], target))
        first = torch.stack([torch.stack(sums).sum() if sums else torch.zeros_like(whole), whole]).unsqueeze(0)
        return torch.cat([first, *rows])

    def figures(self, totals: Tensor) -> dict[str, float]:
        """The sum as `loss`, each part's loss under its name, and metrics, of parts with the same one the first's."""
        total, count = totals[0].tolist()
        found, start = {"loss": total / count} if count else {}, 1
        for name, part in zip(self._names, self._parts, strict=True):
            end = start + len(part.measured)
            own = part.figures(totals[start:end])
            start = end
            if "loss" in own:
                found[name] = own.pop("loss")
            found |= {figure: value for figure, value in own.items() if figure not in found}
        return found

    def check(self, network: str, output: Any, target_shape: tuple[int, ...] | None, classes: int | None) -> None:
        """Refuse outputs that do not fit a part, and numbers of outputs that there are not. Raises SettingError."""
        for part, own in zip(self._parts, self._own(output), strict=True):
            part.check(network, own, target_shape, classes)

    def _own(self, output: Any) -> list[Any]:
        outputs = output if isinstance(output, tuple) else (output,)
        for number in self._outputs:
            if number is not None and number >= len(outputs):
                raise SettingError(
                    f"loss 'weighted': output is {number}, and the network gives {len(outputs)}; accepted: "
                    f"0 to {len(outputs) - 1}"
                )
        return [output if number is None else outputs[number] for number in self._outputs]

    @staticmethod
    def _worth(part: Criterion, target: Tensor) -> float:
        counted = part.counted(target)
        return float(target.numel()) if counted is None else counted
