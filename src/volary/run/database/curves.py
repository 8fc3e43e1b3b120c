"""Measured values over steps, in a given number of points: each stands for some steps, with minimum and maximum."""

from __future__ import annotations

from dataclasses import dataclass

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
