"""The curves of one run or several, drawn in the terminal or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from shutil import get_terminal_size
from typing import TYPE_CHECKING

import click

from volary.cli.command.output import say, say_json

if TYPE_CHECKING:
    from volary.monitor.curves import Curve
    from volary.run.directory import RunDirectory

HEIGHT = 16
WIDEST = 120


def say_plot(runs: Sequence[RunDirectory], metric: str, *, as_json: bool) -> None:
    """Draw `metric` of each run, in one picture. Raises BadInput if one of them has not recorded it."""
    from volary.monitor.curves import curves
    from volary.monitor.outline import outline
    from volary.run.database.reader import RunReader

    found: list[Curve] = []
    for run in runs:
        with RunReader(run) as reader:
            own_loop = bool(outline(run.session).own_loop)
            mine = curves(reader, metric, 2 * _width(), own_loop=own_loop)
        found += [replace(curve, label=f"{run.name}, {curve.label}") for curve in mine] if len(runs) > 1 else mine
    if as_json:
        say_json([curve.as_dict() for curve in found])
        return
    say_curves(found)


def say_curves(found: Sequence[Curve]) -> None:
    """Draw them, in one picture."""
    from volary.monitor.terminal.plot import COLOURS, plot

    for line in plot(found, _width(), HEIGHT):
        coloured = (c if of is None else click.style(c, fg=COLOURS[of % len(COLOURS)]) for c, of in line)
        say("".join(coloured).rstrip())


def _width() -> int:
    return min(WIDEST, get_terminal_size().columns)
