"""A line search to a point that meets the strong Wolfe conditions (Nocedal & Wright, algorithms 3.5 and 3.6).

Of each trial it is told the loss and the slope, and nothing else. Constants are those of torch.optim.LBFGS, so that the
same function has the same trials.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

ENOUGH = 1e-4  # share of the decrease that the first slope promises, which a trial must have
FLAT = 0.9  # share of the first slope that a trial's may have
MOST_TRIALS = 25
SMALLEST = 1e-9  # change of a parameter below which nothing is tried any more
MARGIN = 0.1  # share of the bracket at each end of it, where two trials in a row are not


class SearchPoint(NamedTuple):
    """A trial: where along the direction, what was found there, and the how manieth it is; 0: where all began."""

    step: float
    loss: float
    slope: float
    number: int


@dataclass(frozen=True)
class Trial:
    """The point to look at next. keeps: the numbers of points that may yet be the end of the search."""

    step: float
    keeps: frozenset[int] = frozenset()


_Search = Generator[Trial, SearchPoint, SearchPoint]


def searched(start: SearchPoint, first: float, size: float, seen: Iterable[tuple[float, float]]) -> Trial | SearchPoint:
    """The next trial, or the point that the search ends with, after the loss and the slope of each trial so far.

    start: its slope is below 0. first: the first step. size: the largest magnitude of the direction.
    """
    search = _search(start, first, size)
    now = next(search)
    for number, (loss, slope) in enumerate(seen, 1):
        try:
            now = search.send(SearchPoint(now.step, loss, slope, number))
        except StopIteration as end:
            found: SearchPoint = end.value
            return found
    return now


def _search(start: SearchPoint, first: float, size: float) -> _Search:
    """Go further until there is a minimum between two points, then between those."""
    before, tried = start, 0
    point = yield Trial(first)
    while tried < MOST_TRIALS:
        too_high = _is_too_high(start, point) or (tried > 1 and point.loss >= before.loss)
        if not too_high and _is_flat(start, point):
            return point
        if too_high or point.slope >= 0:
            return (yield from _zoom(start, [before, point], size, tried))
        further = point.step + 0.01 * (point.step - before.step), 10 * point.step
        before, tried, step = point, tried + 1, _cubic_minimum(before, point, *further)
        point = yield Trial(step, frozenset({before.number}))
    return min(start, point, key=lambda one: one.loss)


def _zoom(start: SearchPoint, bracket: list[SearchPoint], size: float, tried: int) -> _Search:
    low, high = _by_loss(bracket)
    close = False
    while tried < MOST_TRIALS and abs(bracket[1].step - bracket[0].step) * size >= SMALLEST:
        left, right = sorted(one.step for one in bracket)
        step, margin = _cubic_minimum(bracket[0], bracket[1], left, right), MARGIN * (right - left)
        if min(right - step, step - left) >= margin:
            close = False
        elif not close and left < step < right:
            close = True
        else:
            step, close = right - margin if abs(step - right) < abs(step - left) else left + margin, False
        point = yield Trial(step, frozenset(one.number for one in bracket))
        tried += 1
        if _is_too_high(start, point) or point.loss >= bracket[low].loss:
            bracket[high] = point
            low, high = _by_loss(bracket)
            continue
        if _is_flat(start, point):
            return point
        if point.slope * (bracket[high].step - bracket[low].step) >= 0:
            bracket[high] = bracket[low]
        bracket[low] = point
    return bracket[low]


def _is_too_high(start: SearchPoint, point: SearchPoint) -> bool:
    return point.loss > start.loss + ENOUGH * point.step * start.slope


def _is_flat(start: SearchPoint, point: SearchPoint) -> bool:
    return abs(point.slope) <= -FLAT * start.slope


def _by_loss(bracket: list[SearchPoint]) -> tuple[int, int]:
    """The places of the lower and of the higher one."""
    return (0, 1) if bracket[0].loss <= bracket[1].loss else (1, 0)


def _cubic_minimum(one: SearchPoint, other: SearchPoint, least: float, most: float) -> float:
    """Where the cubic through two points and their slopes is least, between bounds; their middle if it has none."""
    left, right = sorted((one, other), key=lambda point: point.step)
    if right.step == left.step:
        return (least + most) / 2
    mean = left.slope + right.slope - 3 * (left.loss - right.loss) / (left.step - right.step)
    square = mean * mean - left.slope * right.slope
    below = right.slope - left.slope + 2 * sqrt(square) if square >= 0 else 0.0
    if not below:
        return (least + most) / 2
    step = right.step - (right.step - left.step) * (right.slope + sqrt(square) - mean) / below
    return min(max(step, least), most)
