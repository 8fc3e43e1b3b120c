"""List the runs: name, state, steps, best metric, when."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from volary.cli import _arguments
from volary.cli._output import say, say_json, say_table

if TYPE_CHECKING:
    from volary.monitor.listing import Listed


@click.command()
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=_arguments.RUNS_FOLDER,
    show_default=True,
    help="Where to look.",
)
@_arguments.as_json
def runs(folder: Path, as_json: bool) -> None:
    """List the runs in a folder, the newest last."""
    from volary.errors import BadInput
    from volary.monitor.listing import listing

    default = click.get_current_context().get_parameter_source("folder") is click.core.ParameterSource.DEFAULT
    if not folder.is_dir() and (folder.exists() or not default):
        why = "is a file" if folder.exists() else "there is no such folder"
        raise BadInput(f"--folder {folder}: {why}; accepted: a folder of runs, by default {_arguments.RUNS_FOLDER}")
    found = listing(folder)
    if as_json:
        say_json([asdict(row) for row in found])
    elif found:
        say_table(("run", "state", "steps", "best", "when"), [_cells(row) for row in found])
    else:
        say(f"no runs in {folder}/; `volary init` and `volary train session.yaml` make the first")


def _cells(row: Listed) -> tuple[str, ...]:
    from volary.monitor.wording import clean, moment, number

    steps = f"{row.step}/{row.steps_planned}" if row.steps_planned else str(row.step)
    best = f"{clean(row.metric)} {number(row.best)}" if row.best is not None else "-"
    return row.name, row.state, steps, best, moment(row.started_at) if row.started_at else "-"
