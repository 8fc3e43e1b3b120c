"""List the runs: name, state, steps, best metric, when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from volary.cli.command import arguments
from volary.cli.command.output import say, say_json, say_table

if TYPE_CHECKING:
    from volary.monitor.tables.listing import Listed


@click.command()
@arguments.folder
@click.option("--sort", metavar="COLUMN", help="Order by it: of `best` the best first; default: when they began.")
@click.option(
    "--columns", default="", metavar="A,B,...", help="More columns: settings, metrics, time, size and others."
)
@arguments.as_json
def runs(folder: Path, sort: str | None, columns: str, as_json: bool) -> None:
    """List the runs in a folder, the newest last."""
    from volary.monitor.tables.listing import listing, ordered
    from volary.run.sweep import Sweep

    more = [column.strip() for column in columns.split(",") if column.strip()]
    found = listing(arguments.checked(folder), [*more, *([sort] if sort else [])])
    if sort:
        found = ordered(found, sort)
    sweeps = Sweep.all_in(folder)
    if as_json:
        say_json([asdict(row) for row in found])
    elif found:
        more += ["tags"] if any(row.tags for row in found) and "tags" not in more else []
        say_table(("run", "state", "steps", "best", "when", *more), [_cells(row, more) for row in found])
    elif not sweeps:
        say(f"no runs in {folder}/; `volary init` and `volary train session.yaml` make the first")
    for sweep in sweeps if not as_json else ():
        where = f"volary runs --folder {folder / sweep.folder.name}"
        say(f"{sweep.folder.name}  a sweep of {len(sweep.members)} runs: {where}")


def _cells(row: Listed, more: Sequence[str]) -> tuple[str, ...]:
    from volary.monitor.wording import clean, moment, number

    steps = f"{row.step}/{row.steps_planned}" if row.steps_planned else str(row.step)
    best = f"{clean(row.metric)} {number(row.best)}" if row.best is not None else "-"
    when = moment(row.started_at) if row.started_at else "-"
    return row.name, row.state, steps, best, when, *(_cell(row, column) for column in more)


def _cell(row: Listed, column: str) -> str:
    from volary.monitor.wording import clean, duration, moment, number, size

    value = ", ".join(row.tags) if column == "tags" else row.columns[column]
    if value is None or value == "":
        return "-"
    if isinstance(value, str):
        return clean(value)
    words = {"time": duration, "when": moment, "size": size, "sent_bytes": size}
    return words.get(column, number)(value)
