"""Finds the places of workers' contributions in a run whose roster counts steps: a worker counts only what it pushes.

How many contributions make a step is the strategy's business: `backup` leaves some out, with `async` a quick worker
makes more than a slow one, with `push_every` one stands for several. So each is placed by what all workers had learnt
from when it ended, as a share of what they have learnt from by now.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from volary.run.database.course import pyramid
from volary.run.database.course.pyramid import Rows, StepGroup, StepView, merged

_FINE = 2000  # columns by which contributions are placed, however many are wanted
_ROUNDING = 1e-6  # of a step: shares are floating-point numbers
Places = dict[int, list[tuple[int, float]]]  # by rank: contributions so far, and the step that the run was at then


def view(
    rows: Rows, ranks: Sequence[int], done: tuple[int, int], first: int, last: int, most: int, rank: int | None = None
) -> StepView:
    """Steps `first` to `last` of the run in at most `most` columns, of one rank or of all.

    done: the most contributions of a worker, and the steps of the run that all contributions have come to.
    """
    contributions, steps = done
    whole = pyramid.view(rows, ranks, 1, max(1, contributions), max(most, _FINE))
    places = _places(whole, steps)
    last = max(first, min(last, steps))
    found = whole
    if (first, last) != (1, steps):
        low, high = _stretch(places, first, last)
        found = pyramid.view(rows, ranks, low, high, most)
    groups = [(_step(places[one.rank], _end(found, one)), one) for one in found.groups if one.rank in places]
    groups = [(step, one) for step, one in groups if first <= step <= last and rank in (None, one.rank)]
    count = min(most, max((sum(1 for _ in each) for _, each in groupby(one.rank for _, one in groups)), default=1))
    width = -(-(last - first + 1) // max(1, count))
    first = (first - 1) // width * width + 1
    placed = [replace(one, column=(step - first) // width) for step, one in groups]
    columns = groupby(placed, key=lambda one: (one.rank, one.column))
    return StepView(first, last, width, [merged(list(each)) for _, each in columns])


def _places(whole: StepView, steps: int) -> Places:
    """Find places from the samples of all groups, in the order in which they ended."""
    total = sum(group.samples for group in whole.groups) or 1
    places: Places = {}
    learnt = 0
    for group in sorted(whole.groups, key=lambda one: (one.ended_at, one.column)):
        learnt += group.samples
        places.setdefault(group.rank, []).append((_end(whole, group), steps * learnt / total))
    return places


def _end(found: StepView, group: StepGroup) -> int:
    """The newest contribution of the group's column."""
    return min(found.last, found.first + (group.column + 1) * found.width - 1)


def _step(places: list[tuple[int, float]], contribution: int) -> int:
    """Where the run was at a worker's contribution: between two that are known, in proportion."""
    at = bisect_left(places, (contribution, 0.0))
    if at == len(places):
        return _whole(places[-1][1])
    (low, from_step), (high, to_step) = places[at - 1] if at else (0, 0.0), places[at]
    return _whole(from_step + (to_step - from_step) * (contribution - low) / ((high - low) or 1))


def _whole(place: float) -> int:
    """The step that a contribution belongs to which ends there."""
    return max(1, math.ceil(place - _ROUNDING))


def _stretch(places: Places, first: int, last: int) -> tuple[int, int]:
    """The contributions of all workers that may belong to steps `first` to `last`."""
    low = min((max((c for c, step in one if step < first - 1), default=1) for one in places.values()), default=1)
    ends = [next((c for c, step in one if step >= last + 1), one[-1][0]) for one in places.values()]
    return low, max(ends, default=1)
