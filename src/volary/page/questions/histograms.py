"""The distribution of each parameter over time, and the share of it that a step changes.

A schedule lowers that share on purpose: whether a layer hardly learns is judged by what a step would change at the
greatest learning rate of the run.
"""

from __future__ import annotations

from typing import Any

from volary.page.questions.charts import short
from volary.run.database.histograms import KINDS, Histogram
from volary.run.database.reader import RunReader

MOST_STEPS = 80  # of more, as many at equal distances
RULE = 0.001  # of thumb: what a step changes of a parameter, over its magnitude
LARGE, SMALL = 10.0, 0.1  # times the rule: from here on it is said


def histograms(reader: RunReader, name: str) -> dict[str, Any]:
    """ratios: by parameter, what each measured step changed of it; chosen: the histograms of `name`, or the first."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for step, kind, parameter, magnitude in reader.magnitudes():
        found.setdefault(parameter, {}).setdefault(kind, {})[step] = magnitude
    steps = sorted({step for of in found.values() for step in of.get("weight", {})})
    shown = steps[:: -(-len(steps) // MOST_STEPS)] if steps else []
    ratios = {
        parameter: [_ratio(of["update"].get(step), of["weight"].get(step)) for step in shown]
        for parameter, of in found.items()
        if {"weight", "update"} <= of.keys()
    }
    lowered = _lowered(reader, shown)
    chosen = name if name in found else next(iter(found), "")
    return {
        "x": shown,
        "rule": RULE,
        "ratios": ratios,
        "told": [
            sentence
            for parameter, values in ratios.items()
            if not parameter.endswith("bias") and (sentence := _warning(parameter, values, lowered))
        ],  # biases begin at 0, and change by far more than the rule of thumb, which is one of weights
        "chosen": chosen,
        "kinds": _kinds(list(reader.histograms(chosen)), set(shown)) if chosen else {},
    }


def _ratio(update: float | None, weight: float | None) -> float | None:
    return short(update / weight) if update is not None and weight else None


def _lowered(reader: RunReader, shown: list[int]) -> float:
    """The learning rate of the newest of these steps, over the greatest of the run; 1 if nobody knows one."""
    if not shown:
        return 1.0
    greatest, newest = (
        max((group.lr or 0.0 for group in reader.view(first, shown[-1], 1).groups), default=0.0)
        for first in (1, shown[-1])
    )
    return newest / greatest if greatest else 1.0


def _warning(parameter: str, values: list[float | None], lowered: float) -> str:
    """Say what the newest ratio means, if it is far from the rule."""
    newest = next((value for value in reversed(values) if value is not None), None)
    if newest is None:
        return ""
    if newest > LARGE * RULE:
        return (
            f"{parameter}: a step changes {newest:.2g} of it, far more than {RULE:g}; is the learning rate too large?"
        )
    if newest < SMALL * RULE * lowered:
        scheduled = (
            "" if lowered == 1 else f" times {lowered:.2g}, as far as its schedule has lowered the learning rate"
        )
        return f"{parameter}: a step changes {newest:.2g} of it, far less than {RULE:g}{scheduled}; it hardly learns"
    return ""


def _kinds(found: list[Histogram], shown: set[int]) -> dict[str, list[dict[str, Any]]]:
    return {
        kind: [
            {"step": one.step, "low": one.low, "high": one.high, "counts": one.counts}
            for one in found
            if one.kind == kind and one.step in shown
        ]
        for kind in KINDS
    }
