"""Shared by `train` and `resume`: the view that they hand to the driver, and the result that they print."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from volary.cli.command.output import say_json
from volary.errors import Stopped
from volary.monitor.terminal.console import Console
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory

if TYPE_CHECKING:
    from volary.driver.ending import Ending


def console(quiet: bool, as_json: bool) -> Console:
    """The view of the run; with --json it goes to stderr, and stdout holds the result alone."""
    return Console(quiet, sys.stderr if as_json else sys.stdout)


def conclude(ending: Ending, as_json: bool) -> int:
    """Print the result where it is wanted, and return the exit status: 0, or 130 when the run was stopped."""
    if as_json:
        say_json(
            {
                "run": str(ending.directory.path),
                "state": ending.state,
                "step": ending.step,
                "metrics": newest_metrics(ending.directory),
                "message": ending.message,
            }
        )
    return Stopped.exit_code if ending.state == "stopped" else 0


def newest_metrics(directory: RunDirectory) -> dict[str, float]:
    """The newest value of each metric of the run in `directory`."""
    with RunReader(directory) as reader:
        return {name: pairs[-1][1] for name, pairs in reader.metrics().items()}
