"""Where to cut a chain of layers into stages: the slowest of them is to be as quick as can be."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf


@dataclass(frozen=True)
class LayerCost:
    """The costs of a layer, with all samples of a micro-batch.

    seconds: forward and backward. out_bytes: what it hands to the next one.
    """

    seconds: float
    out_bytes: int = 0
    trained: bool = True


def stage_seconds(layers: Sequence[LayerCost], start: int, end: int, bytes_per_s: float) -> float:
    """How long a stage of the layers from `start` to `end` takes for a micro-batch, forward and backward.

    What it hands over, and what is handed to it, travels there and back at `bytes_per_s`, between no two at once.
    """
    handed = layers[end - 1].out_bytes * (end < len(layers)) + (layers[start - 1].out_bytes if start else 0)
    return sum(layer.seconds for layer in layers[start:end]) + 2 * handed / bytes_per_s


def best_cut(
    layers: Sequence[LayerCost], stages: int, legal: Container[int], *, bytes_per_s: float = inf
) -> list[int] | None:
    """The layers with which stages begin, rising, the first 0; None if there is no such cut.

    The slowest stage takes as little time as it can, and then the cut is the one with the least sum of squares of
    times. legal: layers before which the chain may be cut. Each stage trains something. By dynamic
    programming, in len(layers) ** 2 * stages steps (PipeDream's partitioner, SOSP 2019).
    """
    total = len(layers)

    @cache
    def cost(start: int, end: int) -> float:
        trains = any(layer.trained for layer in layers[start:end])
        return stage_seconds(layers, start, end, bytes_per_s) if trains else inf

    # of the cheapest way to make so many stages of the first layers: the slowest one, and where the last one begins
    slowest = [[inf] * (total + 1) for _ in range(stages + 1)]
    begins = [[-1] * (total + 1) for _ in range(stages + 1)]
    squares = [[inf] * (total + 1) for _ in range(stages + 1)]
    slowest[0][0] = squares[0][0] = 0.0
    for number in range(1, stages + 1):
        for end in range(1, total + 1):
            for start in range(number - 1, end):
                if start and start not in legal:
                    continue
                last = cost(start, end)
                found = max(slowest[number - 1][start], last), squares[number - 1][start] + last * last
                if found < (slowest[number][end], squares[number][end]):
                    slowest[number][end], squares[number][end] = found
                    begins[number][end] = start
    if slowest[stages][total] == inf:
        return None
    cut, end = list[int](), total
    for number in range(stages, 0, -1):
        end = begins[number][end]
        cut.append(end)
    return cut[::-1]
