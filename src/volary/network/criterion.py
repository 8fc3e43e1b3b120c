"""The protocol of criteria: the loss that is minimised, and the figures that are measured beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class Criterion(Protocol):
    """A loss together with its measures.

    Measures are kept as totals that add up over batches and ranks with `+`: a float64 tensor (len(measured), 2) whose
    row i holds the sum and the count of `measured[i]`. `figures` divides them, once, at the end.
    """

    @property
    def measured(self) -> tuple[str, ...]:
        """Names of the rows of the totals."""

    @property
    def metric(self) -> str:
        """The figure that says which of two models is better."""

    @property
    def higher_is_better(self) -> bool:
        """Whether more of `metric` is better."""

    def suit(self, classes: int) -> None:
        """Make room in the totals for so many classes, before the first totals. classes: of the data, 0: not known.

        Raises SettingError if a metric has to know them, or cannot take so many.
        """

    def __call__(self, output: Any, target: Tensor) -> Tensor:
        """The scalar loss, a mean over the samples given, or over what counts of them."""

    def counted(self, target: Tensor) -> float | None:
        """Count what the loss of targets (n, ...) divides by, as positions not ignored; None: each counts alike.

        If it is 0 the loss is not called.
        """

    def totals(self, output: Any, target: Tensor) -> Tensor:
        """Sums and counts over the samples given: (len(measured), 2), float64, on the output's device."""

    def figures(self, totals: Tensor) -> dict[str, float]:
        """The averages by name, `metric` among them, and what derives from them; nothing if there was no sample."""

    def check(self, network: str, output: Any, target_shape: tuple[int, ...] | None, classes: int | None) -> None:
        """Raise SettingError, one sentence, if outputs such as `output` (batch first) do not fit this loss and data.

        target_shape: of one sample's target. classes: how many the data has. None: not known.
        """
