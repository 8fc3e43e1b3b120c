"""Staleness over time: the mean of each stretch."""

from __future__ import annotations

from typing import Any

from volary.page.questions.charts import short
from volary.run.database.reader import RunReader


def staleness(reader: RunReader) -> dict[str, Any]:
    """x: seconds since the first count. means: by kind of count, the mean value of what was counted then, or None."""
    course = reader.counts_over_time()
    if not course:
        return {"x": [], "means": {}}
    parts = sorted({part for part, _, _, _ in course})
    place = {part: at for at, part in enumerate(parts)}
    means: dict[str, list[float | None]] = {}
    for part, kind, count, total in course:
        means.setdefault(kind, [None] * len(parts))[place[part]] = short(total / count) if count else None
    return {"x": [part - parts[0] for part in parts], "means": means}
