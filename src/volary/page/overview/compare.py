"""Several runs side by side, in the rows of `volary compare`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from volary.errors import BadInput
from volary.monitor.outline import own_loop
from volary.monitor.tables.comparison import Compared, compared, differing, table
from volary.monitor.wording import whole
from volary.page.overview.folder import Folder
from volary.run.directory import RunDirectory
from volary.session.pages.defaults import is_default

MOST = 12  # as many as can be told apart


def compare(folder: Folder, names: Sequence[str]) -> dict[str, Any]:
    """Rows of a label and a value for each run; the first `differing` of them are settings. Raises BadInput.

    A setting that only some runs have, by the plug-ins that they chose, is there if one of them set it.
    """
    if not 2 <= len(names) <= MOST:
        raise BadInput(f"{len(names)} runs; accepted: 2 to {MOST}")
    return side_by_side(names, [folder.run(name) for name in names])


def side_by_side(names: Sequence[str], directories: Sequence[RunDirectory]) -> dict[str, Any]:
    """The same of runs that are known. names: what to call them."""
    runs = [replace(compared(one), name=name) for one, name in zip(directories, names, strict=True)]
    rows = table(runs)
    settings = len(differing([run.settings for run in runs]))
    shown = [row for row in rows[:settings] if not _comes_with_a_choice(row[0], runs)]
    return {
        "runs": list(names),
        "states": [run.state for run in runs],
        "metrics": sorted({metric for run in runs for metric in whole(run.final)}),
        "own_loop": any(own_loop(run.settings) for run in runs),
        "differing": len(shown),
        "rows": [list(row) for row in [*shown, *rows[settings:]]],
    }


def _comes_with_a_choice(setting: str, runs: Sequence[Compared]) -> bool:
    having = [run.settings for run in runs if setting in run.settings]
    return len(having) < len(runs) and all(is_default(setting, settings) for settings in having)
