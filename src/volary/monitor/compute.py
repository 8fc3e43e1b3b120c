"""How fast a run computes: operations a second, and what share of a matrix product's speed on its machine they are."""

from __future__ import annotations

from dataclasses import dataclass

from volary.run.database.network import LayerGraph

STEP_OVER_FORWARD = 3  # backward makes two gradients of each product: of its inputs, and of its weights
_UNITS = ((1e15, "PFLOP/s"), (1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s"))


@dataclass(frozen=True)
class ComputeRate:
    """operations_per_s: of all workers. share: of what they would reach if they only computed matrix products; None if
    that was not measured.
    """

    operations_per_s: float
    share: float | None

    def __str__(self) -> str:
        """Say it in a few words: `12.3 GFLOP/s, 34 % of a matrix product's`."""
        size, unit = next((one for one in _UNITS if self.operations_per_s >= one[0]), (1e3, "kFLOP/s"))
        percent = None if self.share is None else 100 * self.share
        share = "" if percent is None else f", {percent:{'.0f' if percent >= 10 else '.2g'}} % of a matrix product's"
        return f"{self.operations_per_s / size:.3g} {unit}{share}"


def compute_rate(graph: LayerGraph | None, samples_per_s: float, workers: int) -> ComputeRate | None:
    """The rate of so many samples a second over all workers; None if the network's operations are not known.

    A step counts as three times its forward, which is counted in matrix products and convolutions, two operations for
    each product of two numbers.
    """
    operations = sum(layer.operations for layer in graph.layers) if graph is not None else 0
    if graph is None or not operations or not samples_per_s > 0:
        return None
    rate = STEP_OVER_FORWARD * operations * samples_per_s
    return ComputeRate(rate, rate / (workers * graph.product_per_s) if graph.product_per_s and workers else None)
