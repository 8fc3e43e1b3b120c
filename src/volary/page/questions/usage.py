"""Usage of processors, memory and network by each worker and machine over time, in columns."""

from __future__ import annotations

from typing import Any

from volary.page.questions.charts import short
from volary.run.database.reader import RunReader


def usage(reader: RunReader, most: int) -> dict[str, Any]:
    """x: seconds since the first look, the middle of each column. values: by name, a list for each rank."""
    view = reader.usage(most)
    if view is None:
        return {"x": [], "values": {}}
    return {
        "x": [short((column + 0.5) * view.width_s) for column in range(view.columns)],
        "values": {
            name: [{"rank": rank, "values": [short(value) for value in values]} for rank, values in sorted(of.items())]
            for name, of in view.values.items()
        },
    }
