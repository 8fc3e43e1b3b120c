"""Compare runs: settings that differ, metrics, time, bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from volary.cli.command import arguments
from volary.cli.command.output import say_json, say_table
from volary.cli.command.plot import say_plot

if TYPE_CHECKING:
    from volary.run.directory import RunDirectory


@click.command()
@click.argument("runs", type=arguments.RunName(), nargs=-1, required=True, metavar="RUN...")
@click.option("--plot", metavar="METRIC", help="Draw the curve of a metric of each, in one picture.")
@arguments.as_json
def compare(runs: tuple[RunDirectory, ...], plot: str | None, as_json: bool) -> None:
    """Show two or more runs side by side: the settings that differ, and what each came to and took."""
    from volary.monitor.tables.comparison import compared, differing, table

    if plot is not None:
        say_plot(runs, plot, as_json=as_json)
        return
    found = [compared(run) for run in runs]
    if as_json:
        settings = differing([run.settings for run in found])
        say_json({"differing": settings, "runs": [run.as_dict() for run in found]})
        return
    say_table(("", *(run.name for run in found)), table(found))
