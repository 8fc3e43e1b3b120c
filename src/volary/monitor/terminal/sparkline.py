"""A row of bars for a curve: `▇▅▃▂▁▁`."""

from __future__ import annotations

import math
from collections.abc import Sequence

BARS = "▁▂▃▄▅▆▇█"
GAP = " "  # a value that is not a number


def sparkline(values: Sequence[float], width: int) -> str:
    """At most `width` bars between the least and the greatest of `values`; each is the mean of as many as it must."""
    count = min(width, len(values))
    shares = [values[place * len(values) // count : (place + 1) * len(values) // count] for place in range(count)]
    means = [_mean(share) for share in shares]
    known = [mean for mean in means if math.isfinite(mean)]
    return "".join(_bar(mean, min(known), max(known)) if math.isfinite(mean) else GAP for mean in means)


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    return sum(known) / len(known) if known else math.nan


def _bar(value: float, least: float, most: float) -> str:
    height = (value - least) / (most - least) if most > least else 0.0
    return BARS[min(len(BARS) - 1, int(height * len(BARS)))]
