"""Copy a run to CSV, TensorBoard, W&B, MLflow and others."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from volary.cli.command import arguments
from volary.cli.command.output import remark, say

if TYPE_CHECKING:
    from volary.run.directory import RunDirectory


@click.command()
@arguments.run
@click.option("--to", "to", multiple=True, required=True, metavar="LOGGER", help="Where to; may be repeated.")
@click.option("--follow", is_flag=True, help="Until the run is over, if it is under way.")
def log(run: RunDirectory, to: tuple[str, ...], follow: bool) -> None:
    """Copy what RUN has recorded to a logger: `csv`, or with settings, `{name: csv, folder: here}`.

    Guide: docs/loggers.md.
    """
    from volary.loggers.copying.copy import copy_run
    from volary.loggers.copying.read import read

    loggers = read(to)
    if not follow or sys.stdout.isatty():  # beside a training its console has the terminal
        remark(f"copying {run.name} to {', '.join(to)}")
    try:
        about = copy_run(run, loggers, follow=follow)
    except KeyboardInterrupt:
        remark("stopped: what was copied so far stays")
        raise
    for logger in loggers:
        say(logger.where(about))
