"""Several runs side by side, in the rows of `volary compare`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from volary.errors import BadInput
from volary.monitor.outline import own_loop
from volary.monitor.tables.comparison import compared, differing, table
from volary.page.overview.folder import Folder
from volary.run.directory import RunDirectory

MOST = 12  # as many as can be told apart


def compare(folder: Folder, names: Sequence[str]) -> dict[str, Any]:
    """Rows of a label and a value for each run; the first `differing` of them are settings. Raises BadInput."""
    if not 2 <= len(names) <= MOST:
        raise BadInput(f"{len(names)} runs; accepted: 2 to {MOST}")
    return side_by_side(names, [folder.run(name) for name in names])


def side_by_side(names: Sequence[str], directories: Sequence[RunDirectory]) -> dict[str, Any]:
    """The same of runs that are known. names: what to call them."""
    runs = [replace(compared(one), name=name) for one, name in zip(directories, names, strict=True)]
    return {
        "runs": list(names),
        "states": [run.state for run in runs],
        "metrics": sorted({metric for run in runs for metric in run.final}),
        "own_loop": any(own_loop(run.settings) for run in runs),
        "differing": len(differing([run.settings for run in runs])),
        "rows": [list(row) for row in table(runs)],
    }
