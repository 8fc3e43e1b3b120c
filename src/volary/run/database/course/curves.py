"""Measured values over steps, in a given number of points: each stands for some steps, with minimum and maximum."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from volary.run.database.course.pyramid import StepGroup, StepView, merged

MEASURED = {
    "loss": "AVG(loss)",
    "lr": "AVG(lr)",
    "samples_per_s": "SUM(samples) * COUNT(*) / SUM(step_s)",
    "step_s": "AVG(step_s)",
    "data_s": "AVG(data_s)",
    "forward_s": "AVG(forward_s)",
    "backward_s": "AVG(backward_s)",
    "exchange_s": "AVG(exchange_s)",
    "optimizer_s": "AVG(optimizer_s)",
    "sent_bytes": "SUM(sent_bytes)",
    "received_bytes": "SUM(received_bytes)",
}
"""Name, and what of a step's rows: the workers' mean, or for samples and bytes what all of them have together."""


@dataclass(frozen=True, slots=True)
class Point:
    """Some steps, the last of which is `step`: the least, the mean and the most. NaN if none of them is a number."""

    step: int
    least: float
    mean: float
    most: float


def select(name: str) -> str:
    """The query for the curve of one of `MEASURED`; its parameters are how many points, and the newest step."""
    return (
        "SELECT MAX(step), MIN(value), AVG(value), MAX(value) "
        f"FROM (SELECT step, {MEASURED[name]} AS value FROM steps GROUP BY step) "
        "GROUP BY (step - 1) * ? / ? ORDER BY MAX(step)"
    )


def of_view(name: str, view: StepView) -> list[Point]:
    """The same curve from groups of steps, whose sums are known: of a loss alone the least and the most of a point."""
    columns: dict[int, list[StepGroup]] = defaultdict(list)
    for group in view.groups:
        columns[group.column].append(group)
    return [_point(name, view, groups) for _, groups in sorted(columns.items())]


def _point(name: str, view: StepView, groups: list[StepGroup]) -> Point:
    whole = merged(groups)
    step = min(view.last, view.first + (whole.column + 1) * view.width - 1)
    if name == "loss":
        known = (whole.loss_min, whole.loss_sum, whole.loss_max)
        least, total, most = (math.nan if value is None else value for value in known)
        return Point(step, least, total / (whole.loss_count or 1), most)
    if name == "lr":
        value = math.nan if whole.lr is None else whole.lr
    elif name == "samples_per_s":
        value = whole.samples * len(groups) / whole.step_s if whole.step_s else math.nan
    else:
        share = view.width if name.endswith("_bytes") else whole.count  # of a step, all workers; or the mean of each
        value = getattr(whole, name) / share
    return Point(step, value, value, value)
